// PartStart: the start of this node's engine for a job of several nodes.
//
// A temporary job that finds no place waits for one in the queue of Retries. An idle job of its owner ends
// for it, on all its nodes (ranks/evictions.hpp). If there is none, the job still waits for a moment: the
// last ranks of another job may be leaving. Two jobs may have each taken the place that the other lacks. Then
// the one with the smaller epoch gives up after that moment, on all nodes alike, and the other waits for its
// place.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/options.hpp"
#include "daemon/supervisor/jobs/retries.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"

#include <chrono>
#include <functional>
#include <memory>

namespace muster::supervisor {

// Owns    what it waits with.
// Thread  the supervisor's loop.
// Bound   one start at a time; Retries' queue, and kPlaceTime of it.
// Fails   birth.on_held: as RunningJobs::start, and if no place has come.
class PartStart {
 public:
  static constexpr Nanos kHope = std::chrono::milliseconds(200);  // without a place that may come

  // Whether a job that is ending, or that can end for it, leaves its place to that job.
  using PlaceMayCome = std::function<bool(const control::JobSpec&)>;

  PartStart(control::Loop& loop, const Clock& clock, const JobTable& table, RunningJobs& jobs,
            Retries& retries, const Options& options, PlaceMayCome place_may_come);
  ~PartStart() { stop(); }
  PartStart(const PartStart&) = delete;
  PartStart& operator=(const PartStart&) = delete;

  // `birth`: with held_epoch and on_held.
  void start(const control::JobSpec& spec, const RunningJobs::Birth& birth);
  // A start that waits is given up.
  void stop();
  bool waits() const { return waiting_ != nullptr; }
  // The latest start waits, or has waited.
  bool has_waited() const { return has_waited_; }
  // The refusal after which it waits.
  const Status& why() const { return waiting_->refusal; }

 private:
  struct Wait {
    control::JobSpec spec;
    RunningJobs::Birth birth;
    Instant hopes_until;
    Instant ends;
    Status refusal;
  };
  void apply(std::shared_ptr<Wait> wait);
  bool may_wait(const Wait& wait) const;
  bool others_give_up(const Wait& wait) const;

  control::Loop& loop_;
  const Clock& clock_;
  const JobTable& table_;
  RunningJobs& jobs_;
  Retries& retries_;
  const Options& options_;
  const PlaceMayCome place_may_come_;
  std::shared_ptr<Wait> waiting_;
  bool has_waited_ = false;
  control::Loop::Watch timer_ = 0;
};

}  // namespace muster::supervisor
