// TraceRecording: the recording of a job's trace during a run, from its begin to the file.
#pragma once

#include "daemon/cli/daemon_link.hpp"
#include "daemon/cli/run/job_joiner.hpp"

#include <functional>
#include <optional>
#include <string>

namespace muster::cli {

// Owns    whether the daemon records for this run, or may.
// Thread  the link's. It stays until the loop has stopped.
// Bound   one recording, of write_trace()'s size; without a path there is none, and all is done at once.
// Fails   with the trouble that `next` gets.
class TraceRecording {
 public:
  using Next = std::function<void(const std::optional<Trouble>&)>;

  TraceRecording(DaemonLink& link, const JobJoiner::Job& job, std::string path);

  void begin(const Next& next);
  // Ends the recording and writes the file.
  void write(const Next& next);
  // The run has failed: no recording stays on in a job that stays.
  void abandon(const std::function<void()>& next);

 private:
  Json command(const char* name) const;

  DaemonLink& link_;
  const std::string job_;
  const bool job_stays_;
  const std::string path_;
  bool on_ = false;  // this run began a recording, or may have
};

}  // namespace muster::cli
