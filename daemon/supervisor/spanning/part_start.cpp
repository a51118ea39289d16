#include "daemon/supervisor/spanning/part_start.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {

PartStart::PartStart(control::Loop& loop, const Clock& clock, const JobTable& table, RunningJobs& jobs,
                     Retries& retries, const Options& options, PlaceMayCome place_may_come)
    : loop_(loop),
      clock_(clock),
      table_(table),
      jobs_(jobs),
      retries_(retries),
      options_(options),
      place_may_come_(std::move(place_may_come)) {}

void PartStart::start(const control::JobSpec& spec, const RunningJobs::Birth& birth) {
  has_waited_ = false;
  const Instant now = clock_.now();
  apply(std::make_shared<Wait>(Wait{spec, birth, now + kHope, now + Retries::kPlaceTime, {}}));
}

void PartStart::stop() {
  loop_.unwatch(std::exchange(timer_, 0));
  waiting_ = nullptr;
}

// The callback comes last: it may begin another start.
void PartStart::apply(std::shared_ptr<Wait> wait) {
  stop();
  wait->refusal = jobs_.start(wait->spec, wait->birth, {});
  if (wait->refusal.ok()) return;
  const control::Account account = wait->spec.owner.account;
  const bool lacks_place = wait->refusal.code() == Code::kNoResource && wait->spec.temporary() &&
                           check_size(wait->spec, options_).ok();
  if (!lacks_place || !may_wait(*wait) || !retries_.has_room(account))
    return wait->birth.on_held(fail(wait->refusal));
  waiting_ = wait;
  has_waited_ = true;
  if (const Instant now = clock_.now(); now < wait->hopes_until)
    timer_ = loop_.after(wait->hopes_until - now, [this] {
      timer_ = 0;
      retries_.fill_places();
    });
  const std::weak_ptr<Wait> here = wait;
  retries_.wait_for_place({account, wait->spec.id(), [here] { return here.expired(); },
                           [this, here] {
                             if (auto again = here.lock()) apply(std::move(again));
                           },
                           [this, here] {
                             const auto still = here.lock();
                             return still && may_wait(*still);
                           }});
}

bool PartStart::may_wait(const Wait& wait) const {
  if (table_.places().has_room(wait.spec.owner.account)) return false;
  const Instant now = clock_.now();
  return now < wait.ends && (place_may_come_(wait.spec) || now < wait.hopes_until || others_give_up(wait));
}

// Whether a job with a place here gives it up for this one. If two jobs lack each other's place, the one with
// the smaller epoch gives up, or with the smaller id, and the other waits.
bool PartStart::others_give_up(const Wait& wait) const {
  return std::any_of(table_.jobs().begin(), table_.jobs().end(), [&](const auto& entry) {
    const Job& job = entry.second;
    return job.state == Job::State::kStarting && job.spec.temporary() && job.spec.world.nodes().size() > 1 &&
           job.spec.owner.account == wait.spec.owner.account &&
           std::pair(job.spec.epoch, job.spec.id()) < std::pair(wait.birth.held_epoch, wait.spec.id());
  });
}

}  // namespace muster::supervisor
