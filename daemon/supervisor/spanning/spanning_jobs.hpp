// SpanningJobs: the jobs that have ranks on several nodes: those of the cluster file, and temporary ones,
// which a user has asked for on one of their nodes (spanning_part.hpp).
#pragma once

#include "daemon/supervisor/spanning/rendezvous.hpp"
#include "daemon/supervisor/spanning/spanning_part.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

namespace muster::supervisor {

// Owns    this node's part of each job.
// Thread  the supervisor's loop.
// Bound   the jobs of the cluster file, Options::jobs_max temporary ones, and one request that waits for
//         each.
// Fails   as SpanningPart; make: as it says.
class SpanningJobs {
 public:
  // The owner of the ranks that wait here for a job that they gather; nothing: no rank waits.
  using OwnerHere = std::function<std::optional<Rendezvous::Owner>(const Rendezvous::Job&)>;
  SpanningJobs(const SpanningPart::Surroundings& around, OwnerHere owner_here);

  // To be called once, after a predecessor's jobs were taken over.
  void start();
  // Whether it is a job of several nodes.
  bool has(const std::string& job) const { return parts_.contains(job); }
  // Makes a temporary job on its nodes, of which this is one. It ends on all of them with its owner's
  // connection. Calls `wish.made` when it is ready, or with the reason why it cannot be, unless this fails:
  // kDuplicate, kBusy (a node is away).
  Status make(control::JobSpec spec, std::uint32_t gid, SpanningPart::Request request);

  // This node's parts that ranks may use, for a greeting.
  control::Json parts() const;
  bool waits_for_place(const std::string& job) const;
  // Why that job is not there yet. kOk: it is, or it is no spanning job.
  Status awaited(const std::string& job) const;
  // The jobs that are not there, or not on all of their nodes, each with its reason.
  control::Json report() const;

  void on_up(const std::string& peer, const control::Json& its_parts);
  void on_down(const std::string& peer, const Status& why);
  // The peer is silent; and then: it is given up.
  void on_suspected(const std::string& peer);
  void on_lost(const std::string& peer, const Status& why);
  void heard(const std::string& peer, const control::Json& message);
  // The reports of RunningJobs on any job.
  void on_word(const std::string& job, const RunningJobs::EngineEvent& word);
  void on_ending(const std::string& job, const Status& why);
  void on_gone(const std::string& job, const Status& why);
  void on_left(Connections::Id owner);
  void on_idle(const std::string& job, RunningJobs::Idle idle);

 private:
  SpanningPart& enter(control::JobSpec spec, const std::string& leader, std::uint32_t gid,
                      SpanningPart::Request request);
  void receive_request(const std::string& peer, const std::string& job, const control::Json& message);
  struct Requested {
    control::JobSpec spec;
    std::uint32_t gid = 0;  // of its owner
  };
  Result<Requested> request_in(const std::string& peer, const std::string& job,
                               const control::Json& message) const;
  Status find_owner(Requested& requested) const;
  bool name_is_free(const std::string& peer, const control::JobSpec& spec);
  Status enter_asked(Requested requested);
  bool is_over(const std::string& job) const;
  void forget_if_over(const std::string& job);

  struct Later {
    std::string peer;
    control::Json message;  // its `prepare`
  };

  const SpanningPart::Surroundings around_;
  const OwnerHere owner_here_;
  std::map<std::string, std::unique_ptr<SpanningPart>> parts_;
  std::map<std::string, Later> later_;  // by job; until the part of that name is gone
};

}  // namespace muster::supervisor
