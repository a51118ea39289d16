// JobTable: which jobs exist, who may claim which rank of them, and by which token. A sans-IO core: no
// process, socket, clock or random source inside; the supervisor carries out what it decides.
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

// kAdopting: a predecessor's, whose engine has not yet said who is attached.
enum class JobState : std::uint8_t { kStarting, kAdopting, kReady, kEnding };
const char* state_name(JobState state) noexcept;

struct Claim {
  bool held = false;
  std::int32_t pid = 0;
  std::uint32_t uid = 0;          // while it is held: of whom
  std::uint32_t attachments = 0;  // as the engine counts them
  std::string token;              // empty: none was issued
  std::uint32_t token_at = 0;     // attachments when it was: one more, and somebody has used it
  bool spent = false;             // on a claim that its engine has not yet answered
};

// Who holds a rank, as its engine says.
struct Attachment {
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
  std::int32_t world_size = -1;  // -1: does not say
  std::string token;
  std::string mesh;  // as it was written; empty: does not say
};

// A mesh with all its dims, of so many ranks; an empty one is what is meant where none is named. kConfig.
Result<std::string> canonical_mesh(std::string_view mesh, std::uint32_t world);

// Owns    the jobs' table.
// Thread  the supervisor's loop.
// Bound   jobs by owner, as `places` says. What is adopted counts, and may be beyond it.
// Fails   each call with what the claimant or the administrator must change.
class JobTable {
 public:
  explicit JobTable(Shares places) : places_(std::move(places)) {}

  // kDuplicate for a name in use, kDenied if by another user; kNoResource without a place for the owner. The
  // job is kStarting.
  Result<Job*> create(const control::JobSpec& spec);
  // The user may make no more jobs, until some are gone that are ending.
  bool place_is_coming(std::uint32_t uid) const;
  void ready(const std::string& name);
  // It was kAdopting, and its engine turns out to have made nothing yet.
  void starting(const std::string& name);
  void ending(const std::string& name);
  void erase(const std::string& name);

  // A fresh single-use token for a rank; the former one is void. `random` is 32 random bytes in hex.
  Status issue(const std::string& job, Rank rank, std::string random);

  // Decides on a claim and, if it is good, takes the seat and spends the token. kNotFound, kDenied,
  // kDuplicate (with the holder), kBadArgument (rank, world size), kConfig (mesh), kJobEnded (the job is
  // ending), kPending (the job is kAdopting).
  Status claim(const std::string& job, const Claimant& claimant);
  // The engine has let the claimant in, for the `attachments`-th time in that seat. True if a token that was
  // issued meanwhile stands, and counts from now.
  bool attached(const std::string& job, Rank rank, std::uint32_t attachments);
  // The claimant has left before its engine was asked: the seat is free, and the token good.
  void withdraw(const std::string& job, Rank rank);
  // The claim's attachment did not come about, or is over.
  void release(const std::string& job, Rank rank);

  // A predecessor's job, kAdopting: whatever the limits now are, it is there. kDuplicate.
  Result<Job*> adopt(const control::JobSpec& spec, const std::vector<IssuedToken>& tokens);
  // Its engine has spoken: the job is kReady, unless it is ending. Tokens that somebody has attached with are
  // void. kProtocol for a list of another length.
  Status reconcile(const std::string& job, const std::vector<Attachment>& sittings);

  // The owner and root may act on a job.
  static Status may_act(const Job& job, std::uint32_t uid);

  Job* find(const std::string& name);
  const std::map<std::string, Job>& jobs() const { return jobs_; }
  const Shares& places() const { return places_; }
  // Enters each seat that is held, for its user.
  void count_sessions(Shares& sessions) const;

 private:
  Job* enter(Job job);

  Shares places_;  // of jobs, by owner
  std::map<std::string, Job> jobs_;
};

}  // namespace muster::supervisor
