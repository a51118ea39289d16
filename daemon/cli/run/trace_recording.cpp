#include "daemon/cli/run/trace_recording.hpp"

#include "daemon/cli/ask/trace_file.hpp"

#include <unistd.h>

namespace muster::cli {

TraceRecording::TraceRecording(DaemonLink& link, const JobJoiner::Job& job, std::string path)
    : link_(link), job_(job.name), job_stays_(job.stays), path_(std::move(path)) {}

void TraceRecording::begin(const Next& next) {
  if (path_.empty()) return next(std::nullopt);
  on_ = true;  // set now: the run may end before the answer comes
  link_.ask(command("trace_begin"), [this, next](const OrTrouble<DaemonAnswer>& answer) {
    if (answer) return next(std::nullopt);
    // A refused trace_begin has begun nothing: if a recording is on, it belongs to somebody else.
    const int code = answer.error().exit_code;
    on_ = code == kTimedOut || code == kUnreachable;
    next(answer.error());
  });
}

void TraceRecording::write(const Next& next) {
  if (!std::exchange(on_, false)) return next(std::nullopt);
  link_.ask(command("trace_end"), [this, next](const OrTrouble<DaemonAnswer>& answer) {
    const OrTrouble<std::uint64_t> written =
        answer ? write_trace(*answer, path_) : tl::unexpected(answer.error());
    next(written ? std::nullopt : std::optional(written.error()));
  });
}

void TraceRecording::abandon(const std::function<void()>& next) {
  if (!job_stays_ || !on_) return next();
  link_.ask(command("trace_end"), [next](const OrTrouble<DaemonAnswer>&) { next(); });
}

// Names this run, so that another's recording goes on.
Json TraceRecording::command(const char* name) const {
  return {{"command", name}, {"job", job_}, {"by", fmt::format("`muster run` (pid {})", getpid())}};
}

}  // namespace muster::cli
