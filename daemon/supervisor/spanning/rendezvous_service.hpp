// RendezvousService: the meeting point of ranks that a launcher starts on several nodes. It carries out the
// decisions of Rendezvous: it exchanges messages with other nodes, has the job made, and refuses ranks.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/options.hpp"
#include "daemon/supervisor/peers/peers.hpp"
#include "daemon/supervisor/spanning/rendezvous.hpp"
#include "daemon/supervisor/spanning/spanning_jobs.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace muster::supervisor {

// Owns    the gathering, and its timers.
// Thread  the supervisor's loop.
// Bound   as Rendezvous. The caller owns the ranks' sockets, and bounds them.
// Fails   come: as Rendezvous. Later failures are refusals.
class RendezvousService {
 public:
  // Ranks that come within this time are announced to the other nodes together.
  static constexpr Nanos kPause = std::chrono::milliseconds(2);
  // A rank gets the reason so long before it gives up: a tenth of its timeout, and this at most.
  static constexpr Nanos kToldBefore = std::chrono::seconds(1);

  // Both are called on the loop, never within a call of this object.
  struct Events {
    std::function<void(std::uint64_t ticket, const Status& why)> refuse;
    // All ranks are on this node. `mesh`: empty, no rank has named one.
    std::function<void(const Rendezvous::Job& job, const std::string& mesh)> all_here;
  };
  RendezvousService(control::Loop& loop, const Clock& clock, SpanningJobs& spanning, Peers& peers,
                    const Options& options, Events events);
  ~RendezvousService();
  RendezvousService(const RendezvousService&) = delete;
  RendezvousService& operator=(const RendezvousService&) = delete;

  // `rank` without `ticket`, which is returned, and `until`.
  Result<std::uint64_t> come(Rendezvous::Rank rank, Nanos patience);
  // It waits no longer; nobody waits with ticket 0.
  void leave(std::uint64_t ticket);

  void heard(const std::string& peer, const control::Json& message);
  void on_up(const std::string& peer);
  void on_down(const std::string& peer);

  std::optional<Rendezvous::Owner> owner_here(const Rendezvous::Job& job) const {
    return rendezvous_.owner_here(job);
  }
  // The jobs of that user whose ranks wait here, each with what it waits for: [{job, why}].
  control::Json report(const control::Actor& actor) const;

 private:
  void soon();
  void carry_out();
  void make(const Rendezvous::Placement& placement);
  Result<control::JobSpec> spec_of(const Rendezvous::Placement& placement) const;
  std::string away() const;

  control::Loop& loop_;
  const Clock& clock_;
  SpanningJobs& spanning_;
  Peers& peers_;
  const Options& options_;
  const Events events_;
  Rendezvous rendezvous_;
  std::uint64_t next_ = 1;
  control::Loop::Watch soon_ = 0;
  control::Loop::Watch deadline_ = 0;
};

}  // namespace muster::supervisor
