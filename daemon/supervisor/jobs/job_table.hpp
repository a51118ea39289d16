// JobTable: the jobs, the ranks of them that clients may claim, and the tokens for that. A sans-IO core: no
// process, socket, clock or random source inside; its callers carry out what it decides.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/result.hpp"
#include "daemon/control/job.hpp"
#include "daemon/supervisor/base/shares.hpp"
#include "daemon/supervisor/jobs/state.hpp"
#include "daemon/supervisor/listener/cgroup_origin.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::supervisor {

struct Job {
  // kAdopting: the job is a predecessor's, and its engine has not yet reported which ranks are attached.
  enum class State : std::uint8_t { kStarting, kAdopting, kReady, kEnding };
  // One rank's claim in the table.
  struct Claim {
    bool held = false;
    std::int32_t pid = 0;
    Account account;                // the holder's, while the rank is held
    std::uint32_t attachments = 0;  // as the engine counts them
    std::string token;              // empty: none was issued
    std::uint32_t token_at = 0;     // attachments when it was issued: one more, and the token was used
    bool spent = false;             // a claim has used the token, and the engine has not yet answered
    RankOrigin origin;              // of the last holder, also after it has left
  };
  control::JobSpec spec;
  State state = State::kStarting;
  RankTable<Claim> claims;  // of this node's ranks

  std::uint32_t held() const;
  // `rank`: as a claimant says it.
  bool is_held(std::int32_t rank) const;
};
const char* state_name(Job::State state) noexcept;

// It is the actor's: he has made it, or shows its key.
bool is_own(const Job& job, const control::Actor& actor);
// He may act on his own jobs, and on all if he governs. kDenied.
Status may_act(const Job& job, const control::Actor& actor);

// The canonical text of a mesh of `world` ranks, with all its dims. An empty text: the default mesh. kConfig.
Result<std::string> canonical_mesh(std::string_view mesh, std::uint32_t world);

// Jobs are named by JobSpec::id(): a name belongs to an identity.
//
// Owns    the jobs and their claims.
// Thread  the supervisor's loop.
// Bound   jobs by owner, as `places` says. Jobs of a predecessor count too, also above that bound.
// Fails   each call with what the claimant or the administrator must change.
class JobTable {
 public:
  // An engine's report of one rank.
  struct RankReport {
    bool attached = false;
    std::int32_t pid = 0;
    std::uint32_t attachments = 0;
    CgroupOrigin seen = {};  // of the process
  };
  struct Claimant {
    control::Actor actor;
    std::int32_t pid = 0;
    std::int32_t rank = -1;
    std::int32_t world_size = -1;  // -1: not said
    std::string token;
    std::string mesh;  // as it was written; empty: not said
  };
  // `places`: the shares of jobs, by account.
  explicit JobTable(Shares places) : places_(std::move(places)) {}

  // The job is kStarting. kDuplicate: the owner has one of that name; kNoResource: he has no place left.
  Result<Job*> create(const control::JobSpec& spec);
  // The account has no place for another job now, but will have one once the jobs that are ending are gone.
  bool place_is_coming(const Account& account) const;
  void ready(const std::string& name);
  // The job was kAdopting, but its engine has not made the job yet.
  void starting(const std::string& name);
  void ending(const std::string& name);
  void erase(const std::string& name);

  // A fresh single-use token for a rank; the former one is void. `random` is 32 random bytes in hex.
  Status issue(const std::string& job, Rank rank, std::string random);

  // Decides on a claim. If it is good, the rank is held and the token is spent. kNotFound, kDenied,
  // kDuplicate (with the holder), kBadArgument (rank, world size), kConfig (mesh), kJobEnded (the job is
  // ending), kPending (the job is kAdopting).
  Status claim(const std::string& job, const Claimant& claimant);
  // The engine has attached the claimant, for the `attachments`-th time at that rank. True if a token issued
  // meanwhile stays valid, and counts from now.
  bool attached(const std::string& job, Rank rank, std::uint32_t attachments);
  // Where the rank is that was attached. Returns whether a Slurm job that was known has changed.
  bool came_from(const std::string& job, Rank rank, const RankOrigin& origin);
  // The claimant has left before its engine was asked: the rank is free, and its token stays good.
  void withdraw(const std::string& job, Rank rank);
  // The claim's attachment failed, or has ended.
  void release(const std::string& job, Rank rank);

  // Enters a predecessor's job as kAdopting, whatever the limits are now. kDuplicate.
  Result<Job*> adopt(const control::JobSpec& spec, const std::vector<SavedJob::Token>& tokens);
  // Its engine has reported: the job is kReady, unless it is ending. Tokens used unseen become void.
  // kProtocol if the list has another length.
  Status reconcile(const std::string& job, const std::vector<RankReport>& reports);  // by LocalRank

  // The id of the job that the actor makes or joins under that name, or `said` if that is an id.
  std::string own_id(const std::string& said, const control::Actor& actor) const;
  // The id of the job that the actor calls so. If he has made none of that name, it is another job on which
  // he may act, if there is one alone: kBadArgument if there are several.
  Result<std::string> id_of(const std::string& said, const control::Actor& actor) const;
  // How the actor calls the job: his own by its name, any other by its id.
  std::string name_for(const Job& job, const control::Actor& actor) const;

  Job* find(const std::string& name);
  const Job* find(const std::string& name) const;
  // Null also if the name belongs to a later job.
  const Job* find(const std::string& name, std::uint64_t epoch) const;
  const std::map<std::string, Job>& jobs() const { return jobs_; }
  const Shares& places() const { return places_; }
  // Ranks that are held, in all jobs.
  std::uint32_t sessions() const;
  // Jobs that are kAdopting.
  std::size_t adopting() const;

 private:
  Job* enter(Job job);

  Shares places_;
  std::map<std::string, Job> jobs_;
};

// Jobs of which a rank is, or was last, of that Slurm job, and on which the actor may act.
std::vector<std::string> jobs_of_slurm(const JobTable& table, std::string_view slurm_job,
                                       const control::Actor& actor);
// Enters each rank that is held, for its user.
void count_sessions(const JobTable& table, Shares& sessions);

}  // namespace muster::supervisor
