#include "scheduler/run/pair_place.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <utility>

namespace muster::scheduler {
namespace {

constexpr std::size_t kOpenExpected = 16;  // starts of a member in flight for which room is made at first

}  // namespace

PairPlace::PairPlace(Epochs epochs, const Epochs::Member& sender, const Epochs::Member& receiver, bool spans)
    : epochs_(std::move(epochs)), spans_(spans) {
  members_[0].stands = sender;
  members_[1].stands = receiver;
  for (Member& member : members_) member.open.reserve(kOpenExpected);
}

void PairPlace::Member::restart(const Epochs::Member& now) {
  stands = now;
  next = 1;
  open.clear();
  of_tags.clear();
}

PairPlace::Message* PairPlace::Member::find(std::uint64_t number) {
  const auto found = std::find_if(open.begin(), open.end(),
                                  [number](const Message& message) { return message.number == number; });
  return found == open.end() ? nullptr : &*found;
}

void PairPlace::Member::remove(std::uint64_t number) {
  std::erase_if(open, [number](const Message& message) { return message.number == number; });
}

Stamp PairPlace::stamp(Side side, std::uint32_t tag) {
  Member& mine = members_[at(side)];
  for (Message& message : mine.open) {
    if (!message.given_back || message.tag != tag) continue;
    message.given_back = false;
    return {mine.stands.epoch(), message.number};
  }
  mine.open.push_back({mine.next, tag, spans_ ? mine.of_tags.increment(tag) : 0, false, std::nullopt});
  return {mine.stands.epoch(), mine.next++};
}

void PairPlace::give_back(Side side, const Stamp& stamp) {
  Member& mine = members_[at(side)];
  Message* const message = mine.stands.epoch() == stamp.epoch ? mine.find(stamp.number) : nullptr;
  if (message == nullptr) return;
  // If it is the last of its tag, the member's next start comes behind all open ones anyway.
  const bool last = std::none_of(mine.open.begin(), mine.open.end(), [message](const Message& other) {
    return other.tag == message->tag && other.number > message->number;
  });
  if (last) {
    if (spans_) mine.of_tags.decrement(message->tag);
    return mine.remove(stamp.number);
  }
  message->given_back = true;
  message->arrived.reset();
}

void PairPlace::forget(Side side, const Stamp& stamp) {
  Member& mine = members_[at(side)];
  if (mine.stands.epoch() == stamp.epoch) mine.remove(stamp.number);
}

// A start of an ended epoch never has `arrived`, so this never returns one.
PairPlace::Message* PairPlace::partner_of(Side side, const Message& mine) {
  std::size_t before = 0;  // starts of the tag that are to be matched first
  for (const Message& message : members_[at(side)].open)
    if (message.tag == mine.tag && message.number < mine.number) ++before;
  for (Message& message : members_[1 - at(side)].open)
    if (message.tag == mine.tag && before-- == 0) return message.arrived ? &message : nullptr;
  return nullptr;
}

std::optional<PairPlace::Met> PairPlace::arrive(Side side, std::uint32_t tag, const Arrival& arrival) {
  Message* const mine = members_[at(side)].find(arrival.stamp.number);
  MUSTER_ASSERT(mine != nullptr && mine->tag == tag);
  mine->arrived = arrival;
  const Message* const partner = partner_of(side, *mine);
  if (partner == nullptr) return std::nullopt;
  const Arrival other = *partner->arrived;
  members_[1 - at(side)].remove(partner->number);
  members_[at(side)].remove(arrival.stamp.number);
  return side == Side::kSender ? Met{arrival, other} : Met{other, arrival};
}

std::uint64_t PairPlace::arrive_from_here(Side side, const Stamp& stamp) {
  const Message* const mine = members_[at(side)].find(stamp.number);
  MUSTER_ASSERT(spans_ && mine != nullptr);
  const std::uint64_t ordinal = mine->ordinal;
  members_[at(side)].remove(stamp.number);
  return ordinal;
}

void PairPlace::withdraw(Side side, const Arrival& arrival) {
  for (Message& message : members_[at(side)].open)
    if (message.arrived && message.arrived->lane == arrival.lane && message.arrived->value == arrival.value)
      message.arrived.reset();
}

void PairPlace::waiting(std::vector<Arrival>& into) const {
  for (const Member& member : members_)
    for (const Message& message : member.open)
      if (message.arrived) into.push_back(*message.arrived);
}

void PairPlace::end(const CausePtr& cause, Epochs::Why why, std::vector<Arrival>& waited) {
  if (!epochs_.end(cause, why)) return;
  waiting(waited);
  for (Member& member : members_)
    for (Message& message : member.open) message.arrived.reset();
}

void PairPlace::attached(Side side, bool first) {
  Member& mine = members_[at(side)];
  if (first)
    mine.stands.begin(epochs_);
  else
    mine.restart(Epochs::Member(epochs_.present()));
}

void PairPlace::move_on(Side side, std::uint64_t fault) {
  Member& mine = members_[at(side)];
  if (mine.stands.move_on(epochs_, fault)) mine.restart(mine.stands);
}

void PairPlace::heard(Side side, std::uint64_t fault) {
  Member& mine = members_[at(side)];
  if (mine.stands.hear(epochs_, fault)) mine.restart(mine.stands);
}

}  // namespace muster::scheduler
