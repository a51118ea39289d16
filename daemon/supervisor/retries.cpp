#include "daemon/supervisor/retries.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

namespace muster::supervisor {

Retries::Retries(control::Loop& loop, const Clock& clock, const JobTable& table)
    : loop_(loop), clock_(clock), table_(table), waiting_(kLimits, geteuid()) {}

bool Retries::has_room(std::uint32_t uid) {
  std::erase_if(applicants_, [this](const Waiting& waiting) {
    const bool left = waiting.applicant.has_left();
    if (left) waiting_.leave(waiting.applicant.uid);
    return left;
  });
  return waiting_.has_room(uid);
}

void Retries::after(Nanos delay, std::uint32_t uid, std::function<void()> again) {
  waiting_.enter(uid);
  loop_.after(delay, [this, uid, call = std::move(again)] {
    waiting_.leave(uid);
    call();
  });
}

bool Retries::may_wait_for_place(std::uint32_t uid) {
  return table_.place_is_coming(uid) && has_room(uid);
}

void Retries::wait_for_place(Applicant applicant) {
  waiting_.enter(applicant.uid);
  applicants_.push_back({std::move(applicant), clock_.now() + kPlaceTime});
  watch_first();
}

// The first applicant in the queue has waited longest.
void Retries::watch_first() {
  if (timer_ != 0 || applicants_.empty()) return;
  const Nanos left = applicants_.front().until - clock_.now();
  timer_ = loop_.after(std::max(left, Nanos(0)), [this] {
    timer_ = 0;
    fill_places();
    watch_first();
  });
}

void Retries::fill_places() {
  for (Waiting& next : std::exchange(applicants_, {})) {
    const Applicant& applicant = next.applicant;
    const bool waits = table_.place_is_coming(applicant.uid) && table_.find(applicant.job) == nullptr &&
                       clock_.now() < next.until;
    if (waits) {
      applicants_.push_back(std::move(next));
      continue;
    }
    waiting_.leave(applicant.uid);
    applicant.apply();
  }
}

}  // namespace muster::supervisor
