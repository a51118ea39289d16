// Retries: repeats claims and jobs that cannot be granted yet.
//
// A rank whose former process has just died may come back before its engine has reported the death. A job may
// come while another job that is ending still has its place.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/jobs/job_table.hpp"

#include <chrono>
#include <functional>
#include <string>
#include <vector>

namespace muster::supervisor {

// Owns    the queue for places, in the order of arrival, and its timer.
// Thread  the supervisor's loop.
// Bound   kLimits, claims and jobs together; kAttempts for each; kPlaceTime for each job in the queue.
// Fails   never: the caller asks for room first, and refuses if there is none.
class Retries {
 public:
  static constexpr Shares::Limits kLimits = Shares::limits_of(128, 64);
  static constexpr Nanos kPlaceTime = std::chrono::seconds(11);  // an engine has 10 s to end
  static constexpr int kAttempts = 90;                           // in a second

  struct Applicant {
    Account account;
    std::string job;
    std::function<bool()> has_left;
    std::function<void()> apply;  // called once, whether there is a place now or not
    // Whether it waits on. Empty: while a job that is ending has the place.
    std::function<bool()> may_wait = {};
  };

  Retries(control::Loop& loop, const Clock& clock, const JobTable& table);

  // Whether one more of that account may wait. Applicants who have left make room.
  bool has_room(const Account& account);
  // Whether to try again after so many attempts: the obstacle may just be about to leave.
  bool may_try_again(int attempts, const Account& account);
  // Calls `again` soon. Until then it counts as waiting.
  void try_again(int attempts, const Account& account, std::function<void()> again);
  // Whether a job of that account may wait for the place of one that is ending.
  bool may_wait_for_place(const Account& account);
  void wait_for_place(Applicant applicant);
  // A job is gone: applicants get its place in order of arrival. One whose job exists by now needs no place.
  // One that has waited for kPlaceTime, or whose place will not come, applies and is refused.
  void fill_places();

 private:
  struct Waiting {
    Applicant applicant;
    Instant until{0};
  };
  void watch_first();

  control::Loop& loop_;
  const Clock& clock_;
  const JobTable& table_;
  Shares waiting_;
  std::vector<Waiting> applicants_;
  control::Loop::Watch timer_ = 0;
};

}  // namespace muster::supervisor
