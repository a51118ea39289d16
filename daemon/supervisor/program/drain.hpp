// Drain: ends a supervisor. No further rank or job is let in; present ranks may finish, and then the engines
// end.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/jobs/job_table.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <functional>
#include <utility>

namespace muster::supervisor {

// Owns    the time limits.
// Thread  the supervisor's loop.
// Bound   Times of drain_timeout.
// Fails   never.
class Drain {
 public:
  enum class Ranks : std::uint8_t { kMayLeave, kMustLeave };
  // Engines need time of their own: an engine that its user has stopped is killed.
  struct Times {
    Nanos for_ranks{0};
    Nanos for_engines{0};
    Nanos latest() const { return for_ranks + for_engines; }
  };
  // Splits a drain_timeout. From 10 s on, ranks and engines together end within the timeout. A shorter
  // timeout is exceeded by less than kEnginesMin.
  static constexpr Nanos kEnginesMin = std::chrono::seconds(1);
  static constexpr Times times_of(Nanos drain_timeout) {
    const Nanos engines = std::min(kEnginesMin, drain_timeout / 10);
    return {drain_timeout - engines, kEnginesMin};
  }

  struct Events {
    std::function<void()> begun;  // once
    std::function<void()> ended;  // no engine is left; may be called several times
  };
  Drain(control::Loop& loop, const JobTable& table, RunningJobs& jobs, Nanos drain_timeout, Events events)
      : loop_(loop),
        table_(table),
        jobs_(jobs),
        times_(times_of(drain_timeout)),
        events_(std::move(events)) {}

  // A second call, with kMustLeave, cuts the first one's waiting short.
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
