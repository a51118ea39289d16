#include "daemon/cli/run/run_absences.hpp"

namespace muster::cli {
namespace {

constexpr Nanos kTellAgain = std::chrono::milliseconds(100);

}  // namespace

RunAbsences::RunAbsences(control::Loop& loop, DaemonLink& link, const JobJoiner::Job& job)
    : loop_(loop), link_(link), job_(job.name), job_stays_(job.stays) {}

// Repeated until it is heard: a stopped engine refuses once enough questions wait for it. Else ranks that
// wait for this one would learn of it only at their deadline.
void RunAbsences::tell(std::uint32_t rank, const std::string& text) {
  if (over_) return;
  link_.ask({{"command", "absent"}, {"job", job_}, {"rank", rank}, {"text", text}},
            [this, rank, text](const OrTrouble<DaemonAnswer>& told) {
              if (told || told.error().exit_code != kFailed) return;
              loop_.after(kTellAgain, [this, rank, text] { tell(rank, text); });
            });
}

void RunAbsences::end(const std::function<void()>& next) {
  over_ = true;
  if (!job_stays_) return next();
  link_.ask({{"command", "expect_all"}, {"job", job_}}, [next](const OrTrouble<DaemonAnswer>&) { next(); });
}

}  // namespace muster::cli
