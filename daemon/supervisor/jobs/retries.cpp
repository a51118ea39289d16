#include "daemon/supervisor/jobs/retries.hpp"

#include <algorithm>
#include <utility>

#include <unistd.h>

namespace muster::supervisor {
namespace {

// An engine usually reports within a millisecond that a process is gone, and within a second if the machine
// is busy.
constexpr int kQuickAttempts = 40;
constexpr Nanos kQuickRetry = std::chrono::microseconds(250);
constexpr Nanos kRetry = std::chrono::milliseconds(20);
static_assert(Retries::kAttempts > kQuickAttempts);

}  // namespace

Retries::Retries(control::Loop& loop, const Clock& clock, const JobTable& table)
    : loop_(loop), clock_(clock), table_(table), waiting_(kLimits, geteuid()) {}

bool Retries::has_room(const Account& account) {
  std::erase_if(applicants_, [this](const Waiting& waiting) {
    const bool left = waiting.applicant.has_left();
    if (left) waiting_.leave(waiting.applicant.account);
    return left;
  });
  return waiting_.has_room(account);
}

bool Retries::may_try_again(int attempts, const Account& account) {
  return has_room(account) && attempts < kAttempts;
}

void Retries::try_again(int attempts, const Account& account, std::function<void()> again) {
  waiting_.enter(account);
  loop_.after(attempts < kQuickAttempts ? kQuickRetry : kRetry, [this, account, call = std::move(again)] {
    waiting_.leave(account);
    call();
  });
}

bool Retries::may_wait_for_place(const Account& account) {
  return table_.place_is_coming(account) && has_room(account);
}

void Retries::wait_for_place(Applicant applicant) {
  waiting_.enter(applicant.account);
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
    const bool waits =
        table_.find(applicant.job) == nullptr && clock_.now() < next.until &&
        (applicant.may_wait ? applicant.may_wait() : table_.place_is_coming(applicant.account));
    if (waits) {
      applicants_.push_back(std::move(next));
      continue;
    }
    waiting_.leave(applicant.account);
    applicant.apply();
  }
}

}  // namespace muster::supervisor
