// PartStart: the start of this node's engine for a job of several nodes.
//
// Where a temporary job finds no place, an idle job of its owner makes room (ranks/evictions.hpp). That one
// may be of several nodes too, and ends once they agree on it, so the start waits until its place is there.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/options.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"

#include <chrono>
#include <functional>

namespace muster::supervisor {

// Owns    what it waits with.
// Thread  the supervisor's loop.
// Bound   one start at a time; kAttempts.
// Fails   birth.on_held: as RunningJobs::start, and if no place has come.
class PartStart {
 public:
  static constexpr Nanos kPause = std::chrono::milliseconds(5);
  static constexpr int kAttempts = 2200;  // in 11 s: an engine has 10 s to end

  // False: that job will get no place.
  using MakePlace = std::function<bool(const control::JobSpec&)>;

  PartStart(control::Loop& loop, const JobTable& table, RunningJobs& jobs, const Options& options,
            MakePlace make_place);
  ~PartStart() { stop(); }
  PartStart(const PartStart&) = delete;
  PartStart& operator=(const PartStart&) = delete;

  // `birth`: with held_epoch and on_held.
  void start(const control::JobSpec& spec, const RunningJobs::Birth& birth);
  // A start that waits is given up.
  void stop();
  bool waits() const { return timer_ != 0; }

 private:
  void attempt(const control::JobSpec& spec, const RunningJobs::Birth& birth, int attempts);
  bool may_wait(const control::JobSpec& spec, int attempts) const;

  control::Loop& loop_;
  const JobTable& table_;
  RunningJobs& jobs_;
  const Options& options_;
  const MakePlace make_place_;
  control::Loop::Watch timer_ = 0;
};

}  // namespace muster::supervisor
