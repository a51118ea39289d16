// Claims: lets ranks in. A rank says Hello, claims its place in the job table, and is handed over to its
// engine with its socket.
//
//   Hello -> checked -> (job made) -> claimed -> attached by the engine, or refused
//
// In between, a rank may wait: for the engine's first report, for the end of an idle job, for room in the
// engine's channel, or for the end of the rank's former process. In a cluster, a rank of a job that is not
// there waits for the others at the rendezvous, unless its launcher says that all of them are on this node.
#pragma once

#include "api/shm/control.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/jobs/retries.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/listener/identities.hpp"
#include "daemon/supervisor/listener/refusals.hpp"
#include "daemon/supervisor/ranks/evictions.hpp"
#include "daemon/supervisor/spanning/rendezvous_service.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::supervisor {

// Owns    the sockets of ranks that wait, and of those whose engine has not answered yet.
// Thread  the supervisor's loop.
// Bound   sessions_max, by account: ranks that are held, and ranks that wait without a claim. Retries bounds
//         how many of these try again, and how often.
// Fails   never. A refused rank gets the reason.
class Claims {
 public:
  struct Events {
    std::function<void()> changed;                          // the number of sessions
    std::function<void()> save;                             // what a successor must find has changed
    std::function<Status(const std::string& job)> awaited;  // why a user may not make a job of that name
    // Whether a job of several nodes waits for its place here. turn_away() follows if it gets none.
    std::function<bool(const std::string& job)> waits_for_place;
  };
  Claims(control::Loop& loop, JobTable& table, RunningJobs& jobs, Evictions& evictions, Retries& retries,
         Refusals& refusals, RendezvousService& rendezvous_service, const Options& options, Events events);

  // Takes a rank's first message, which nobody has checked.
  void hear(shm::Descriptor socket, PendingClient peer, std::span<const std::byte> hello);
  // The job's engine has reported, or never will: ranks that wait for it go on, or get the reason.
  void job_reported(const std::string& job, const Status& status);
  // The job ends: ranks that wait for it get the reason.
  void turn_away(const std::string& job, const Status& why);
  // The job is gone: ranks that have waited for its end begin anew.
  void admit_waiting(const std::string& job);
  // The decisions of the rendezvous: a rank is refused; or this node makes the job, and all its ranks go on.
  void refuse_gathered(std::uint64_t ticket, const Status& why);
  void all_gathered(const Rendezvous::Job& job, const std::string& mesh);
  // No rank waits at the rendezvous any more.
  void disperse(const Status& why);

  // Counts held ranks, and ranks that wait for their job without a claim.
  Shares sessions_by_user() const;

 private:
  struct Client {
    shm::Descriptor socket;
    PendingClient peer;
    shm::Hello hello;
    std::string key;  // the digest of its job's key; empty: it has none
    std::string job;  // its id, once it is known
    int attempts = 0;
    bool applied = false;            // it has waited for its job's place once
    bool claimed = false;            // it holds its rank in the table
    bool gathered = false;           // the other ranks are here too
    std::uint64_t ticket = 0;        // of the rendezvous, where it waits; 0: it does not
    control::Loop::Watch watch = 0;  // of its end, while it waits there

    control::Actor actor() const;
    Rank rank() const { return Rank(static_cast<std::uint32_t>(hello.rank)); }
    bool has_left() const;  // it has closed the socket
    RankOrigin origin() const;
    // Whether it waits for the other ranks of its job; which job that is, and the rank as the rendezvous
    // knows it.
    bool must_gather(const Options& options) const;
    Rendezvous::Job gathers() const;
    Result<Rendezvous::Rank> rendezvous_rank(std::string_view mesh) const;
    // The job that it makes.
    Result<control::JobSpec> spec(std::string_view mesh, const Options& options) const;
  };
  struct Waiting {
    std::vector<Client> clients;
    control::Loop::Watch attach_again = 0;  // the engine had no room for them
  };
  void admit(Client client);
  Status check_room(const Client& client, const std::string& job);
  bool wait_for_place(Client& client, const std::string& job);
  bool means_another(const Client& client, const std::string& job, const Status& claimed) const;
  void gather(Client client, std::string_view mesh);
  std::vector<Client> take_gathered(const std::function<bool(const Client&)>& which);
  void depart(Client& client);
  Status check_possible(const Client& client, std::string_view mesh) const;
  Status make_job(const Client& client, std::string_view mesh);
  bool claim_later(Client& client);
  void hand_over(Client client);
  void hand_over_again(const std::string& job);
  void on_attached(const std::string& job, Client client, const Result<control::Packet>& answer);
  void refuse(const Client& client, const Status& why);
  std::vector<Client> take_waiting(const std::string& job);
  void forget_leavers();

  control::Loop& loop_;
  JobTable& table_;
  RunningJobs& jobs_;
  Evictions& evictions_;
  Retries& retries_;
  Refusals& refusals_;
  RendezvousService& rendezvous_service_;
  const Options& options_;
  Events events_;
  std::map<std::string, Waiting> waiting_;  // by job
};

}  // namespace muster::supervisor
