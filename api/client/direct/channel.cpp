#include "api/client/direct/channel.hpp"

#include "api/base/assert.hpp"
#include "api/base/fault_point.hpp"
#include "api/shm/fence.hpp"
#include "api/shm/futex.hpp"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <utility>

#include <sched.h>

namespace muster::client {
namespace {

using shm::Published;
using shm::Untrusted;

constexpr int kLooks = 2000;          // about 40 µs
constexpr int kCrowdedLooks = 2;      // where the core is wanted by others
constexpr int kYields = 1000;         // about 0.5 ms with nobody else to run, longer with
constexpr int kYieldsPerGlance = 16;  // between looks at verdict and clock
constexpr Nanos kNapMax = std::chrono::milliseconds(5);
constexpr int kSleepsPerCheck = 20;  // between questions whether the engine lives

std::uint64_t look(const std::uint64_t* word) {
  return Untrusted<std::uint64_t>(word).load_acquire();
}

}  // namespace

Channel::Channel(Words words, std::vector<Peer> peers, Vigil& vigil)
    : words_(words),
      peers_(std::move(peers)),
      arrivals_(peers_.size()),
      lives_(peers_.size()),
      sent_(peers_.size()),
      received_(peers_.size()),
      outdated_(peers_.size()),
      enrolled_(shm::enrol_for_fences()),
      vigil_(vigil) {
  MUSTER_ASSERT(words_.index < peers_.size());
  Published<std::uint64_t>(&words_.seat->generation).store_release(words_.generation);
}

// ---- verdicts ----------------------------------------------------------------------------------

bool Channel::ended() const {
  return Untrusted<std::uint64_t>(&words_.line->generation).load_ordered() != words_.generation;
}

bool Channel::broken() const {
  return ended() || Untrusted<std::int32_t>(&words_.line->standing).load() != 0;
}

// What stands against the group lets nobody begin. It ends nothing: the generation did, when the member left
// that will not come back, and what all had arrived at by then goes on.
bool Channel::revoked() const {
  return look(&words_.line->revoked) >= words_.generation;
}

bool Channel::parted(std::uint32_t i) const {
  return ended() || (broken() && look(peers_[i].life) % 2 == 0);
}

bool Channel::late() const {
  if (!ended()) return false;
  const std::uint64_t generation = look(&words_.line->generation);
  const bool known = generation - words_.generation <= shm::kGenerationsKept;
  const std::uint64_t* completed = &words_.line->completed[words_.generation % shm::kGenerationsKept];
  return revoked() || !known || look(completed) < number_;
}

// Asked in this order: the seat of a member that is gone is made ready anew before its rank has a life again,
// so that whoever misses that it was gone finds the slot empty.
bool Channel::let_go(std::uint32_t i) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // what was read came before the looks
  if (!broken()) return false;
  const bool told = revoked() || look(&peers_[i].seat->generation) > words_.generation;
  return told || look(peers_[i].life) % 2 == 0;
}

// What peers may still read of the old generation stays until the next arrival there, and how far this member
// came in it until the generation after the next. That it has gone on is said last.
//
// Where several generations have ended meanwhile, what came after the one that is told is old news if all are
// here; but if somebody is not, it may have left in one of them, and nobody would say so: then each is told
// in turn.
std::uint64_t Channel::take_verdict() {
  const std::uint64_t due = words_.generation;
  const std::uint64_t present = Untrusted<std::uint64_t>(&words_.line->generation).load_acquire();
  const bool all_here =
      std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return look(peer.life) % 2 == 1; });
  // What stands against the group is no end: nothing has begun, and messages of two who are here go on.
  if (present == due) return due;
  words_.generation = all_here ? present : std::min(due + 1, present);
  number_ = 0;
  shared_ = 0;
  Published<std::uint64_t>(own_progress()).store_release(0);
  Published<std::uint64_t>(&words_.seat->generation).store_release(words_.generation);
  // The caller may write from here on what peers still read: they look at the generation after they have.
  std::atomic_thread_fence(std::memory_order_release);
  std::fill(sent_.begin(), sent_.end(), 0);
  std::fill(received_.begin(), received_.end(), 0);
  outdated_slots_ = {true, true};
  std::fill(outdated_.begin(), outdated_.end(), Outdated{true, true});
  return due;
}

// ---- waiting -----------------------------------------------------------------------------------

// Ends with the word, with a verdict after which it is hopeless, with an interrupt, or with the engine.
template<class Reached, class Hopeless>
Meeting Channel::wait(const std::uint64_t* word, Reached reached, Hopeless hopeless, Patience& patience) {
  for (int i = patience.crowded() ? kCrowdedLooks : kLooks; i > 0; --i) {
    MUSTER_FAULT_POINT("meet.looking");
    if (reached(look(word))) return Meeting::kMet;
    relax();
  }
  for (int yields = 0; yields < kYields; ++yields) {
    if (yields % kYieldsPerGlance == 0)
      if (const auto end = glance(word, reached, hopeless, patience)) return *end;
    MUSTER_FAULT_POINT("meet.yielding");
    ::sched_yield();
    if (reached(look(word))) return Meeting::kMet;
  }
  for (int sleeps = 1;; ++sleeps) {
    if (const auto end = glance(word, reached, hopeless, patience)) return *end;
    if (sleeps % kSleepsPerCheck == 0 && vigil_.engine_gone()) return Meeting::kAlone;
    nap(word, reached, patience);
    if (reached(look(word))) return Meeting::kMet;
  }
}

// The last look at the word comes after the look at the verdict: what had come before the verdict counts.
template<class Reached, class Hopeless>
std::optional<Meeting> Channel::glance(const std::uint64_t* word, Reached reached, Hopeless hopeless,
                                       Patience& patience) {
  const bool verdict = hopeless();
  if (reached(look(word))) return Meeting::kMet;
  if (verdict) return Meeting::kBroken;
  if (patience.interruptible() && vigil_.interrupted()) return Meeting::kInterrupted;
  if (patience.over(vigil_)) {
    if (patience.gives_up()) return Meeting::kBroken;
    vigil_.overdue(*this);
    // Each question to an engine that does not answer takes the session's whole time: no second one.
    if (vigil_.engine_gone()) return Meeting::kAlone;
    patience.renew();
  }
  return std::nullopt;
}

template<class Reached>
void Channel::nap(const std::uint64_t* word, Reached reached, Patience& patience) {
  Published<std::uint32_t>(&words_.header->asleep).store(1);
  shm::heavy_fence();
  MUSTER_FAULT_POINT("meet.falling_asleep");
  const std::uint64_t seen = look(word);
  const Nanos left = patience.deadline(vigil_) - vigil_.now();
  if (!reached(seen) && left.count() > 0)
    shm::futex_wait(lower_half(word), static_cast<std::uint32_t>(seen), std::min(kNapMax, left));
  MUSTER_FAULT_POINT("meet.woken");
  Published<std::uint32_t>(&words_.header->asleep).store(0);
  Published<std::uint64_t>(&words_.header->sleeps).add(1);
}

// Dekker: a peer that is about to sleep has said so before it looks at the word once more, and its heavy
// fence stands for the one that is missing here.
void Channel::publish(std::uint64_t* word, std::uint64_t value, std::span<const Peer> listeners) {
  Published<std::uint64_t>(word).store_release(value);
  shm::light_fence(enrolled_);
  MUSTER_FAULT_POINT("word.published");
  bool asleep = false;
  for (const Peer& peer : listeners)
    asleep = Untrusted<std::uint32_t>(&peer.header->asleep).load() != 0 || asleep;
  if (!asleep) return;
  MUSTER_FAULT_POINT("word.waking");
  shm::futex_wake(lower_half(word));
}

// ---- collectives -------------------------------------------------------------------------------

bool Channel::begin() {
  if (broken()) return false;
  ++number_;
  if (std::exchange(outdated_slots_[number_ & 1], false)) {
    auto* slot = reinterpret_cast<shm::DirectSlot*>(slot_bytes(number_));
    renew(&slot->sequence, &slot->generation);
  }
  return true;
}

// Numbers begin again in each generation, so that the same one may stand there: a peer must see neither the
// old contents as those of the new generation, nor new ones as those of the old. Everything that is written
// after this comes after it.
void Channel::renew(std::uint64_t* number, std::uint64_t* generation) const {
  Published<std::uint64_t>(number).store(0);
  Published<std::uint64_t>(generation).store_release(words_.generation);
  std::atomic_thread_fence(std::memory_order_release);
}

const shm::DirectSlot* Channel::slot_of(std::uint32_t i) const {
  return reinterpret_cast<const shm::DirectSlot*>(peers_[i].slots + (number_ & 1) * shm::kSlotBytes);
}

void Channel::arrive(std::uint64_t plan, const Hash128& common, shm::Place place,
                     std::span<const std::byte> inside) {
  auto* slot = reinterpret_cast<shm::DirectSlot*>(slot_bytes(number_));
  Published<std::uint64_t>(&words_.seat->plans[number_ & 1]).store(plan);
  Published<std::uint64_t>(&slot->generation).store(words_.generation);
  Published<std::uint64_t>(&slot->common[0]).store(common.low);
  Published<std::uint64_t>(&slot->common[1]).store(common.high);
  Published<std::uint64_t>(&slot->place).store(shm::pack_place(place));
  if (!inside.empty()) std::memcpy(slot->payload, inside.data(), inside.size());
  MUSTER_FAULT_POINT("slot.filled");
  publish(&slot->sequence, number_, peers_);
}

bool Channel::copy_arrival(const shm::DirectSlot* slot, std::uint64_t number, Arrival* arrival) const {
  arrival->common.low = Untrusted<std::uint64_t>(&slot->common[0]).load();
  arrival->common.high = Untrusted<std::uint64_t>(&slot->common[1]).load();
  arrival->place = shm::unpack_place(Untrusted<std::uint64_t>(&slot->place).load());
  std::memcpy(arrival->payload, slot->payload, shm::kInlineBytes);
  std::atomic_thread_fence(std::memory_order_acquire);
  return stands(&slot->sequence, number, &slot->generation);
}

Meeting Channel::await_arrivals(Patience& patience) {
  wanted_ = {shm::DirectWait::kArrivals, 0, number_, 0};
  for (std::uint32_t i = 0; i < members(); ++i) {
    const shm::DirectSlot* slot = slot_of(i);
    const auto arrived = [this, slot](std::uint64_t sequence) {
      return sequence == number_ && stands(&slot->sequence, number_, &slot->generation);
    };
    // Up to where all had arrived before the generation ended, each arrival was there before its end was: one
    // that is not there any more went with a member that has come back.
    const auto hopeless = [this] { return broken(); };
    const Meeting meeting = wait(&slot->sequence, arrived, hopeless, patience);
    if (meeting != Meeting::kMet) return meeting;
    lives_[i] = look(peers_[i].life);
    // Only a peer that was lost and came back writes a slot that others have not left.
    if (!copy_arrival(slot, number_, &arrivals_[i])) return Meeting::kBroken;
  }
  // Whoever has arrived has left the operation before behind, and with it the slot of the next.
  fetch_to_write(slot_bytes(number_ + 1));
  return Meeting::kMet;
}

bool Channel::unchanged(std::uint32_t i) const {
  const shm::DirectSlot* slot = slot_of(i);
  std::atomic_thread_fence(std::memory_order_acquire);
  return stands(&slot->sequence, number_, &slot->generation);
}

// The number is of this generation: a writer that begins a new one takes the number away first (renew).
bool Channel::stands(const std::uint64_t* word, std::uint64_t number, const std::uint64_t* generation) const {
  return look(generation) == words_.generation && look(word) == number;
}

void Channel::withdraw() {
  auto* slot = reinterpret_cast<shm::DirectSlot*>(slot_bytes(number_));
  renew(&slot->sequence, &slot->generation);
}

void Channel::set_phase(std::uint64_t phase) {
  publish(own_progress(), shm::make_progress(number_, phase), peers_);
  MUSTER_FAULT_POINT("phase.set");
}

Meeting Channel::await_phase(std::uint64_t phase, Patience& patience) {
  wanted_ = {shm::DirectWait::kPhase, 0, number_, phase};
  return await_progress(shm::make_progress(number_, phase), patience);
}

Meeting Channel::await_departure(std::uint64_t number, Patience& patience) {
  return await_progress(shm::make_progress(number, shm::kPhaseLast), patience);
}

// All of them had arrived. That somebody has left since then, or has gone on to the next generation, is no
// matter if it is not one that is waited for. There, no operation gets as far as a phase without this member.
Meeting Channel::await_progress(std::uint64_t target, Patience& patience) {
  for (std::uint32_t i = 0; i < members(); ++i) {
    const auto reached = [target](std::uint64_t at) { return at >= target; };
    const auto hopeless = [this, i] { return let_go(i) || (broken() && look(peers_[i].life) != lives_[i]); };
    const std::uint64_t* word = &peers_[i].seat->progress[words_.generation & 1];
    const Meeting meeting = wait(word, reached, hopeless, patience);
    if (meeting != Meeting::kMet) return meeting;
  }
  return Meeting::kMet;
}

// ---- pairs -------------------------------------------------------------------------------------

void Channel::send(std::uint32_t to, std::uint64_t plan, const Hash128& common, shm::Place place,
                   std::span<const std::byte> inside) {
  shm::DirectSlot& slot = words_.pairs[to].sent;
  if (std::exchange(outdated_[to].sent, false)) renew(&slot.sequence, &slot.generation);
  Published<std::uint64_t>(&words_.seat->plans[0]).store(plan);
  Published<std::uint64_t>(&slot.generation).store(words_.generation);
  Published<std::uint64_t>(&slot.common[0]).store(common.low);
  Published<std::uint64_t>(&slot.common[1]).store(common.high);
  Published<std::uint64_t>(&slot.place).store(shm::pack_place(place));
  if (!inside.empty()) std::memcpy(slot.payload, inside.data(), inside.size());
  publish(&slot.sequence, ++sent_[to], std::span(&peers_[to], 1));
}

Meeting Channel::await_received(std::uint32_t to, bool* disagreed, Patience& patience) {
  const shm::DirectPair& theirs = peers_[to].pairs[words_.index];
  const std::uint64_t number = sent_[to];
  wanted_ = {shm::DirectWait::kReceived, to, number, 0};
  std::uint64_t found = 0;  // another look would be at what the receiver does next
  const auto done = [&](std::uint64_t received) {
    found = received;
    return received >> 1 == number && stands(&theirs.received, received, &theirs.received_generation);
  };
  const auto hopeless = [this, to] { return parted(to); };
  const Meeting meeting = wait(&theirs.received, done, hopeless, patience);
  *disagreed = meeting == Meeting::kMet && (found & 1) != 0;
  return meeting;
}

Meeting Channel::await_message(std::uint32_t from, std::uint64_t plan, Arrival* arrival, Patience& patience) {
  Published<std::uint64_t>(&words_.pairs[from].plan).store(plan);
  const shm::DirectSlot* slot = &peers_[from].pairs[words_.index].sent;
  const std::uint64_t number = received_[from] + 1;
  wanted_ = {shm::DirectWait::kMessage, from, number, 0};
  const auto sent = [&](std::uint64_t sequence) {
    return sequence == number && stands(&slot->sequence, number, &slot->generation);
  };
  const auto hopeless = [this, from] { return parted(from); };
  const Meeting meeting = wait(&slot->sequence, sent, hopeless, patience);
  if (meeting != Meeting::kMet) return meeting;
  return copy_arrival(slot, number, arrival) ? Meeting::kMet : Meeting::kBroken;
}

bool Channel::message_stands(std::uint32_t from) const {
  const shm::DirectSlot* slot = &peers_[from].pairs[words_.index].sent;
  std::atomic_thread_fence(std::memory_order_acquire);
  return stands(&slot->sequence, received_[from] + 1, &slot->generation);
}

void Channel::withdraw_message(std::uint32_t to) {
  shm::DirectSlot& slot = words_.pairs[to].sent;
  renew(&slot.sequence, &slot.generation);
}

void Channel::acknowledge(std::uint32_t from, bool disagreed) {
  shm::DirectPair& pair = words_.pairs[from];
  if (std::exchange(outdated_[from].received, false)) renew(&pair.received, &pair.received_generation);
  ++received_[from];
  Published<std::uint64_t>(&pair.received_generation).store(words_.generation);
  publish(&pair.received, received_[from] << 1 | std::uint64_t{disagreed}, std::span(&peers_[from], 1));
}

}  // namespace muster::client
