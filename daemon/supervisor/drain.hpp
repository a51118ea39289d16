// Drain: how a supervisor comes to its end. No further rank and no further job is let in, those that are
// there may finish, and the engines end.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/job_table.hpp"
#include "daemon/supervisor/running_jobs.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <utility>

namespace muster::supervisor {

// Owns    the time that is given.
// Thread  the supervisor's loop.
// Bound   Times of drain_timeout.
// Fails   never.
class Drain {
 public:
  enum class Ranks : std::uint8_t { kMayLeave, kMustLeave };
  // Engines need some of the time themselves: one that its user has stopped is killed.
  struct Times {
    Nanos for_ranks{0};
    Nanos for_engines{0};
    Nanos latest() const { return for_ranks + for_engines; }
  };
  // Of a drain_timeout. From 10 s on the latest end is the timeout itself; a shorter one is passed by less
  // than kEnginesMin.
  static constexpr Nanos kEnginesMin = std::chrono::seconds(1);
  static constexpr Times times_of(Nanos drain_timeout) {
    const Nanos engines = std::min(kEnginesMin, drain_timeout / 10);
    return {drain_timeout - engines, kEnginesMin};
  }

  struct Events {
    std::function<void()> begun;  // once
    std::function<void()> ended;  // no engine is left; perhaps several times
  };
  Drain(control::Loop& loop, const JobTable& table, RunningJobs& jobs, Nanos drain_timeout, Events events)
      : loop_(loop),
        table_(table),
        jobs_(jobs),
        times_(times_of(drain_timeout)),
        events_(std::move(events)) {}

  // A second call with kMustLeave ends what the first one waits for.
  void begin(Ranks ranks);
  // To be called when the number of jobs or sessions has changed.
  void check();
  const Times& times() const { return times_; }

 private:
  bool has_ranks() const { return table_.sessions() + table_.adopting() > 0; }
  void end_jobs(Nanos time);

  control::Loop& loop_;
  const JobTable& table_;
  RunningJobs& jobs_;
  Times times_;
  Events events_;
};

}  // namespace muster::supervisor
