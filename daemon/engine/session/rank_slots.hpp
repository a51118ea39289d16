// RankSlots: one slot for each rank of this node, with the session of its client. Closing sessions are kept
// until their running work has ended.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/world.hpp"
#include "api/shm/descriptor.hpp"
#include "daemon/engine/session/process_state.hpp"
#include "daemon/engine/session/session.hpp"
#include "scheduler/run/graph.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::engine {

struct RankSlot {
  std::unique_ptr<Session> session;  // none: the rank is not attached
  shm::Descriptor doorbell;
  std::uint32_t attachments = 0;
  std::uint64_t starts = 0;  // of all its clients
  std::string offence;       // how the session broke the protocol; empty: it did not
  ProcessId process;
  Instant heard_at{0};  // its client's last command or message
};

// Owns    the sessions, also those that are closing.
// Thread  under the engine's lock.
// Bound   one session a rank, and those whose work still runs.
// Fails   never. A session that breaks the protocol is not read any more; the conductor takes it out.
class RankSlots {
 public:
  RankSlots(const World& world, scheduler::Graph& graph, const Clock& clock)
      : graph_(graph), clock_(clock), slots_(world) {}

  RankSlot& of(Rank rank) { return slots_[rank]; }
  const RankSlot& of(Rank rank) const { return slots_[rank]; }
  const RankTable<RankSlot>& all() const { return slots_; }
  // The sessions of those ranks that are attached.
  std::vector<SessionId> sessions_of(std::span<const Rank> ranks) const;

  // ---- sessions that have ended ----------------------------------------------------------------
  // The rank's session is closing from now on.
  void leave(Rank rank);
  // Work of the rank's closing session may still write.
  bool lingers(Rank rank) const;
  // The session of that rank that made the plan, also if it is closing. A plan lives until its starts have
  // ended.
  Session* owner_of(const scheduler::Plan& plan, Rank rank);
  // Takes out the closing sessions that no work uses any more.
  std::vector<std::unique_ptr<Session>> take_idle();
  std::size_t closing() const { return closing_.size(); }

  // ---- progress --------------------------------------------------------------------------------
  // Takes a batch of commands of each rank. Returns how many.
  std::size_t drain(Instant now);
  // Takes all commands that the rank's client has pushed before its message: once through the ring.
  void drain_all(Rank rank);
  // Arms the rings. True if no rank has work, so that the engine may sleep.
  bool arm();
  void awake();
  void beat(Instant now);
  void wake_clients();
  // Closes every session with `code`.
  void close(Code code, std::string_view why);
  // A session that broke the protocol, and how.
  std::optional<std::pair<Rank, std::string>> offender() const;

 private:
  std::size_t drain(RankSlot& slot, Instant now);

  scheduler::Graph& graph_;
  const Clock& clock_;
  RankTable<RankSlot> slots_;
  std::vector<std::unique_ptr<Session>> closing_;
};

}  // namespace muster::engine
