#include "daemon/supervisor/spanning/part_start.hpp"

#include <utility>

namespace muster::supervisor {

PartStart::PartStart(control::Loop& loop, const JobTable& table, RunningJobs& jobs, const Options& options,
                     MakePlace make_place)
    : loop_(loop), table_(table), jobs_(jobs), options_(options), make_place_(std::move(make_place)) {}

void PartStart::start(const control::JobSpec& spec, const RunningJobs::Birth& birth) {
  stop();
  attempt(spec, birth, 0);
}

void PartStart::stop() {
  loop_.unwatch(std::exchange(timer_, 0));
}

void PartStart::attempt(const control::JobSpec& spec, const RunningJobs::Birth& birth, int attempts) {
  const Status started = jobs_.start(spec, birth, {});
  if (started.ok()) return;
  if (started.code() != Code::kNoResource || !may_wait(spec, attempts)) return birth.on_held(fail(started));
  timer_ = loop_.after(kPause, [this, spec, birth, attempts] {
    timer_ = 0;
    attempt(spec, birth, attempts + 1);
  });
}

// Whether it is a place that the job lacks, and one may come.
bool PartStart::may_wait(const control::JobSpec& spec, int attempts) const {
  if (!spec.temporary() || attempts >= kAttempts || table_.places().has_room(spec.owner.account))
    return false;
  return check_size(spec, options_).ok() && make_place_(spec);
}

}  // namespace muster::supervisor
