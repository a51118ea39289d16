// SpanningPart: this node's part of one job that has ranks on several nodes.
//
// Such a job is made on all of its nodes or on none (job_making.hpp). A node that loses the leader before it
// has received `commit` ends its part, so nothing is left half made. Once made, the job lives as long as a
// part of it.
//
// A user who ends the job ends it on all nodes. A part that ends for another reason, or whose node is lost,
// leaves the others as they are: its members are lost to their groups. The node begins its part again as soon
// as it can, with the job's epoch, and the engines connect anew (engine_links.hpp). If no part is left, the
// leader makes the job again. A temporary job, which a user has asked for, is not made again.
//
// A job that only its ranks have asked for ends once no node has any (idle_job.hpp), and so does one whose
// maker's node is away. Its maker may be back with that node, and has the job anew then.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/options.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/peers/peers.hpp"
#include "daemon/supervisor/spanning/engine_links.hpp"
#include "daemon/supervisor/spanning/idle_job.hpp"
#include "daemon/supervisor/spanning/job_making.hpp"
#include "daemon/supervisor/spanning/making_world.hpp"
#include "daemon/supervisor/spanning/part_start.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    what the part waits for.
// Thread  the supervisor's loop.
// Bound   the nodes of the job.
// Fails   never: the log and awaited() give the reason why a job cannot be made. One of the cluster file is
//         tried again; a temporary one is over.
class SpanningPart {
 public:
  static constexpr Nanos kRetry = std::chrono::seconds(2);

  struct Surroundings {
    control::Loop& loop;
    const Clock& clock;
    const JobTable& table;
    RunningJobs& jobs;
    Peers& peers;
    const Options& options;
    Retries& retries;
    PartStart::PlaceMayCome place_may_come;
    // Ranks wait for the part while it waits for its place; it gets none.
    std::function<void(const std::string& job, const Status& why)> turn_away;
    // The job is over. Called while the part is still at work.
    std::function<void(const std::string& job)> over = {};
  };
  // The request by which a temporary job is made here; empty for all other jobs.
  struct Request {
    Connections::Id owner = 0;
    RunningJobs::OnReady made;                 // it is ready on all nodes, or why it is not
    Nanos patience = JobMaking::kPrepareTime;  // so long it may take
  };
  // `spec`: without its epoch. `leader`: a node of it. `gid`: of its owner.
  SpanningPart(const Surroundings& around, control::JobSpec spec, std::string leader, std::uint32_t gid,
               Request request);
  ~SpanningPart() { around_.loop.unwatch(timer_); }
  SpanningPart(const SpanningPart&) = delete;
  SpanningPart& operator=(const SpanningPart&) = delete;

  const control::JobSpec& spec() const { return spec_; }
  EngineLinks& links() { return links_; }
  // The job is over, and is not made again.
  bool over() const { return state_ == State::kOver; }
  // The epoch of this node's part, if ranks may use it; else 0.
  std::uint64_t ready_epoch() const { return state_ == State::kReady ? epoch_ : 0; }
  // A full share holds up the start of its engine here.
  bool waits_for_place() const { return start_.waits(); }
  // Why the job is not there yet. kOk: it is.
  Status awaited() const;
  // The trouble to report: why the job is not there, or which nodes are missing; empty: none.
  std::string news() const;

  // A predecessor's engine has the part.
  void adopt(std::uint64_t epoch);
  // Begins the part, if it can be begun now.
  void try_begin();

  void on_up(const std::string& peer, std::uint64_t its_epoch);
  void on_down(const std::string& peer, const Status& why);
  // A message of one of its nodes, with an epoch that is not 0.
  void hear(const std::string& peer, const std::string& step, std::uint64_t epoch,
            const control::Json& message);
  // The leader makes the job anew: this part ends.
  void give_way(const std::string& leader);
  void on_word(const RunningJobs::EngineEvent& word);
  void on_ending(const Status& why);
  void on_gone(const Status& why);
  // The requester has left: a part without an engine ends here. RunningJobs ends one with an engine.
  void on_left(Connections::Id owner);
  // No rank of a temporary job is here, or one is again.
  void on_idle(RunningJobs::Idle idle) { idle_job_.set(idle); }

 private:
  enum class State : std::uint8_t {
    kWaiting,    // for its nodes, its leader, or the end of an earlier part
    kMaking,     // the job is being made
    kBeginning,  // the job is made, and this node's engine starts
    kJoining,    // and connects with those of the others
    kReady,
    kOver,  // ended on purpose
  };
  enum class Again : std::uint8_t { kYes, kNo };

  void begin(std::uint64_t epoch, State state);
  void on_made(const Status& status);
  void ready();
  void on_links();
  void look_at(const std::string& peer);
  void end(const std::string& why, Again again);
  void leave(const std::string& why, Again again);
  void tell_end(const std::string& why, Again again);
  void hear_prepare(const std::string& peer, std::uint64_t epoch);
  void hear_end(const control::Json& message);
  void retry_later();

  const Surroundings around_;
  const control::JobSpec spec_;
  const std::string leader_;
  const bool leads_;
  const std::uint32_t gid_;
  Request wish_;
  std::vector<std::string> others_;
  EngineLinks links_;
  MakingWorld making_world_;
  JobMaking making_;
  PartStart start_;
  IdleJob idle_job_;
  State state_ = State::kWaiting;
  std::uint64_t epoch_ = 0;
  Status why_;         // the last attempt failed
  bool told_ = false;  // the others know that it ends
  control::Loop::Watch timer_ = 0;
  std::uint64_t next_epoch_ = 0;  // of a job of the file that waits until the earlier part has ended
};

}  // namespace muster::supervisor
