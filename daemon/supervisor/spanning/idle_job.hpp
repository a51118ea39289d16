// IdleJob: ends a job of several nodes once it has no rank any more. This is the part of one of its nodes.
//
// A job that only its ranks have asked for has no owner who ends it. A node tells the others (`vacant`) when
// its last rank has left, and when one comes again. Once all nodes are idle, the first of them asks the
// others (`closing`). From then on ranks that come wait. Each node answers (`closed`) whether it is still
// idle. If all are, the job ends, and the ranks that wait gather for another one. Otherwise the first node
// sends `reopen`. So no rank is attached to a job that has been given up.
//
// Each node waits for Options::made_job_linger before it counts as idle, unless one sends `hurry`, because
// the owner needs the room. A node that still has ranks answers that it is not idle, so that another job
// makes room. A node that is away counts as idle after the same time. A job whose maker's node is away ends
// in the same way, on the nodes that are there. While its maker is there, the maker ends it.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/options.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/peers/peers.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    what is known of the job's nodes, and a timer.
// Thread  the supervisor's loop.
// Bound   the nodes of the job.
// Fails   never.
class IdleJob {
 public:
  struct Surroundings {
    control::Loop& loop;
    RunningJobs& jobs;
    Peers& peers;
    const Options& options;
  };
  // `reaped`: called with the reason when the job must end on all nodes that are there. `spec` outlives this
  // object.
  IdleJob(const Surroundings& around, const control::JobSpec& spec,
          std::function<void(const std::string& why)> reaped);
  ~IdleJob() { around_.loop.unwatch(away_timer_); }

  // This node's part begins, in that epoch; no rank has left it yet.
  void begin(std::uint64_t epoch);
  // Ranks may use the part. From now on, until it ends, this node may find the job idle.
  void open();
  void end();
  // No rank is here, or one is again.
  void set(RunningJobs::Idle idle);
  // The job has ended because its maker's node was away: that node decides whether it goes on there.
  bool without_maker() const { return without_maker_; }

  void on_up(const std::string& peer);
  void on_down(const std::string& peer);
  // Whether such a message is for this object; and one of the part's epoch.
  static bool is_step(const std::string& step);
  void hear(const std::string& peer, const std::string& step, const control::Json& message);

 private:
  void say(const std::string& peer, const char* step) const;
  void tell_all(const char* step) const;
  void look();
  void close();
  void reopen();
  void finish();

  const Surroundings around_;
  const control::JobSpec& spec_;
  const std::function<void(const std::string& why)> reaped_;
  std::vector<std::string> others_;
  std::uint64_t epoch_ = 0;
  bool is_open_ = false;
  bool idle_ = false;
  bool hurries_ = false;  // all nodes know that the owner needs the room
  bool without_maker_ = false;
  std::set<std::string> idle_others_;
  std::set<std::string> away_;  // for so long that they count as idle
  control::Loop::Watch away_timer_ = 0;
  std::optional<std::set<std::string>> unanswered_;  // this node has asked, and these have not answered
  std::string asked_by_;                             // that node has asked, and has not decided yet
};

}  // namespace muster::supervisor
