#include "daemon/engine/session/rank_slots.hpp"

#include "api/base/fault_point.hpp"

#include <algorithm>

namespace muster::engine {

std::vector<SessionId> RankSlots::sessions_of(std::span<const Rank> ranks) const {
  std::vector<SessionId> sessions;
  for (const Rank rank : ranks)
    if (const auto& session = of(rank).session) sessions.push_back(session->options().id);
  return sessions;
}

// ---- sessions that have ended ------------------------------------------------------------------

void RankSlots::leave(Rank rank) {
  RankSlot& slot = of(rank);
  slot.doorbell.reset();
  slot.offence.clear();
  closing_.push_back(std::move(slot.session));
}

bool RankSlots::lingers(Rank rank) const {
  return std::any_of(closing_.begin(), closing_.end(),
                     [&](const auto& session) { return session->options().rank == rank; });
}

Session* RankSlots::owner_of(const scheduler::Plan& plan, Rank rank) {
  Session* present = of(rank).session.get();
  if (present != nullptr && present->options().id == plan.owner) return present;
  for (const auto& session : closing_)
    if (session->options().id == plan.owner) return session.get();
  return nullptr;
}

std::vector<std::unique_ptr<Session>> RankSlots::take_idle() {
  std::vector<std::unique_ptr<Session>> idle;
  std::erase_if(closing_, [&](std::unique_ptr<Session>& session) {
    if (!session->plans().idle()) return false;
    idle.push_back(std::move(session));
    return true;
  });
  return idle;
}

// ---- progress ----------------------------------------------------------------------------------

std::size_t RankSlots::drain(Instant now) {
  std::size_t taken = 0;
  for (RankSlot& slot : slots_)
    if (slot.session) taken += drain(slot, now);
  return taken;
}

std::size_t RankSlots::drain(RankSlot& slot, Instant now) {
  if (!slot.offence.empty()) return 0;
  auto drained = slot.session->intake().drain(graph_, now);
  if (drained) {
    if (*drained == 0) return 0;
    slot.heard_at = now;
    MUSTER_FAULT_POINT("engine.drained");
    return *drained;
  }
  // The conductor takes the session out. Until then it is not read any more.
  slot.offence = drained.error().message();
  slot.session->publication().counters().add(shm::Counter::kRefusals, 1);
  slot.session->publication().close(Code::kProtocol);
  return 0;
}

void RankSlots::drain_all(Rank rank) {
  constexpr std::size_t kTurns = shm::kRingCapacity / CommandIntake::kBatch;
  for (std::size_t turn = 0; turn <= kTurns && drain(of(rank), clock_.now()) > 0;) ++turn;
}

bool RankSlots::arm() {
  bool quiet = true;
  for (RankSlot& slot : slots_) {
    if (!slot.session) continue;
    // Arm also after one had work: awake() disarms all, so all must be armed or none.
    const bool sleeps = slot.session->intake().try_sleep();
    // A session that waits for room on a full lane brings no work until something else makes room.
    if (slot.session->intake().blocked()) continue;
    quiet = quiet && sleeps && !slot.session->intake().has_backlog();
  }
  return quiet;
}

void RankSlots::awake() {
  for (RankSlot& slot : slots_)
    if (slot.session) slot.session->intake().awake();
}

void RankSlots::beat(Instant now) {
  for (RankSlot& slot : slots_) {
    if (!slot.session) continue;
    slot.session->publication().beat(now);
    const auto& exposed = graph_.lanes()[slot.session->options().rank].exposed();
    auto& counters = slot.session->publication().counters();
    counters.set(shm::Counter::kExposedNs, static_cast<std::uint64_t>(exposed.all.count()));
    counters.set(shm::Counter::kHaloExposedNs, static_cast<std::uint64_t>(exposed.to_halos.count()));
  }
}

void RankSlots::wake_clients() {
  for (RankSlot& slot : slots_)
    if (slot.session && slot.session->publication().take_news()) slot.session->publication().wake_client();
}

void RankSlots::close(Code code, std::string_view why) {
  for (RankSlot& slot : slots_)
    if (slot.session) slot.session->publication().close(code, why);
}

std::optional<std::pair<Rank, std::string>> RankSlots::offender() const {
  for (const RankSlot& slot : slots_)
    if (slot.session && !slot.offence.empty()) return std::pair(slot.session->options().rank, slot.offence);
  return std::nullopt;
}

}  // namespace muster::engine
