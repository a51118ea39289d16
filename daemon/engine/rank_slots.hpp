// RankSlots: one slot for each rank, with the session of its client. Sessions that have ended lie beside them
// until their running work has ended.
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/descriptor.hpp"
#include "daemon/engine/process_state.hpp"
#include "daemon/engine/session.hpp"
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
// Fails   never. A session that breaks the protocol is read no more, and is to be taken out.
class RankSlots {
 public:
  RankSlots(std::uint32_t world, scheduler::Graph& graph, const Clock& clock)
      : graph_(graph), clock_(clock), slots_(world) {}

  RankSlot& of(Rank rank) { return slots_[rank.value]; }
  const RankSlot& of(Rank rank) const { return slots_[rank.value]; }
  const std::vector<RankSlot>& all() const { return slots_; }
  // Of those ranks that are attached.
  std::vector<SessionId> sessions_of(std::span<const Rank> ranks) const;

  // ---- sessions that have ended ----------------------------------------------------------------
  // The rank's session is closing from now on.
  void leave(Rank rank);
  // Work of the rank's former session may still be writing.
  bool lingers(Rank rank) const;
  // The session that has made the plan, of that rank. A plan outlives its session's slot until its starts
  // have ended.
  Session* owner_of(const scheduler::Plan& plan, Rank rank);
  // Those that no work uses any more.
  std::vector<std::unique_ptr<Session>> take_idle();
  std::size_t closing() const { return closing_.size(); }

  // ---- progress --------------------------------------------------------------------------------
  // A batch of commands of each rank. Returns how many.
  std::size_t drain(Instant now);
  // What the rank's client has pushed before it asked: once through the ring.
  void drain_all(Rank rank);
  // True if no rank has work for a sleeping engine, so that it may sleep.
  bool arm();
  void awake();
  void beat(Instant now);
  void wake_clients();
  // Every session hears `code` from now on.
  void close(Code code, std::string_view why);
  // A session that broke the protocol, and how.
  std::optional<std::pair<Rank, std::string>> offender() const;

 private:
  std::size_t drain(RankSlot& slot, Instant now);

  scheduler::Graph& graph_;
  const Clock& clock_;
  std::vector<RankSlot> slots_;
  std::vector<std::unique_ptr<Session>> closing_;
};

}  // namespace muster::engine
