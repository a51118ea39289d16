// JobTable: which jobs exist, who may claim which rank of them, and by which token. A sans-IO core: no
// process, socket, clock or random source is inside. Others carry out what it decides.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/result.hpp"
#include "daemon/control/job.hpp"
#include "daemon/supervisor/shares.hpp"

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace muster::supervisor {

// kAdopting: the job is a predecessor's, and its engine has not yet said which ranks are attached.
enum class JobState : std::uint8_t { kStarting, kAdopting, kReady, kEnding };
const char* state_name(JobState state) noexcept;

// One rank's place in the table.
struct Claim {
  bool held = false;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;          // the holder's, while the rank is held
  std::uint32_t attachments = 0;  // as the engine counts them
  std::string token;              // empty: none was issued
  std::uint32_t token_at = 0;     // attachments when it was issued: one more, and the token was used
  bool spent = false;             // the token was used by a claim that the engine has not yet answered
};

// What an engine says of one rank.
struct RankReport {
  bool attached = false;
  std::int32_t pid = 0;
  std::uint32_t attachments = 0;
};

// A token that a predecessor issued.
struct IssuedToken {
  std::uint32_t rank = 0;
  std::uint32_t attachments = 0;
  std::string text;
};

struct Job {
  control::JobSpec spec;
  JobState state = JobState::kStarting;
  std::vector<Claim> claims;  // by rank

  std::uint32_t held() const;
};

struct Claimant {
  std::uint32_t uid = 0;
  std::int32_t pid = 0;
  std::int32_t rank = -1;
  std::int32_t world_size = -1;  // -1: it does not say
  std::string token;
  std::string mesh;  // as it was written; empty: it does not say
};

// A mesh with all its dims, of so many ranks. An empty text is the mesh of a job that names none. kConfig.
Result<std::string> canonical_mesh(std::string_view mesh, std::uint32_t world);

// Owns    the jobs and their claims.
// Thread  the supervisor's loop.
// Bound   jobs by owner, as `places` says. Adopted jobs count too, and may be beyond it.
// Fails   each call with what the claimant or the administrator must change.
class JobTable {
 public:
  // `places`: of jobs, by owner.
  explicit JobTable(Shares places) : places_(std::move(places)) {}

  // The job is kStarting. kDuplicate: the name is in use; kDenied: by another user; kNoResource: the owner
  // has no place left.
  Result<Job*> create(const control::JobSpec& spec);
  // The user has no place for another job now, but will have one once the jobs that are ending are gone.
  bool place_is_coming(std::uint32_t uid) const;
  void ready(const std::string& name);
  // The job was kAdopting, and its engine has made nothing yet.
  void starting(const std::string& name);
  void ending(const std::string& name);
  void erase(const std::string& name);

  // A fresh single-use token for a rank; the former one is void. `random` is 32 random bytes in hex.
  Status issue(const std::string& job, Rank rank, std::string random);

  // Decides on a claim. If it is good, the rank is held and the token is spent. kNotFound, kDenied,
  // kDuplicate (with the holder), kBadArgument (rank, world size), kConfig (mesh), kJobEnded (the job is
  // ending), kPending (the job is kAdopting).
  Status claim(const std::string& job, const Claimant& claimant);
  // The engine has let the claimant in, for the `attachments`-th time at that rank. True if a token that was
  // issued meanwhile stands, and counts from now.
  bool attached(const std::string& job, Rank rank, std::uint32_t attachments);
  // The claimant has left before its engine was asked: the rank is free, and its token stays good.
  void withdraw(const std::string& job, Rank rank);
  // The claim's attachment did not come about, or is over.
  void release(const std::string& job, Rank rank);

  // A predecessor's job, kAdopting: it is there, whatever the limits now are. kDuplicate.
  Result<Job*> adopt(const control::JobSpec& spec, const std::vector<IssuedToken>& tokens);
  // Its engine has spoken: the job is kReady, unless it is ending. Tokens that were used unseen are void.
  // kProtocol for a list of another length.
  Status reconcile(const std::string& job, const std::vector<RankReport>& reports);

  // The owner and root may act on a job. kDenied.
  static Status may_act(const Job& job, std::uint32_t uid);

  Job* find(const std::string& name);
  const Job* find(const std::string& name) const;
  // Null also if the name belongs to a later job.
  const Job* find(const std::string& name, std::uint64_t epoch) const;
  bool is_held(const std::string& job, std::int32_t rank) const;
  const std::map<std::string, Job>& jobs() const { return jobs_; }
  const Shares& places() const { return places_; }
  // Ranks that are held, in all jobs.
  std::uint32_t sessions() const;
  // Enters each rank that is held, for its user.
  void count_sessions(Shares& sessions) const;
  // Jobs that are kAdopting.
  std::size_t adopting() const;

 private:
  Job* enter(Job job);

  Shares places_;
  std::map<std::string, Job> jobs_;
};

}  // namespace muster::supervisor
