// PrivateDaemon: a musterd for one run, in its own directory.
#pragma once

#include "daemon/cli/child.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace muster::cli {

// Owns    the process and its directory (mode 0700). The process makes the directory; it is removed at the
//         end.
// Thread  one.
// Bound   one daemon, with the configured or default sessions and jobs. Unconfigured numbers shrink to what
//         the ranks need if the hard limit of open files demands it.
// Fails   start: kNotFound (no musterd), kNoResource (no directory, no process, too few open files). The
//         pidfd shows a daemon that does not come up.
class PrivateDaemon {
 public:
  struct Options {
    std::string config;  // may be empty: defaults
    std::vector<std::string> environment;
    std::int64_t ranks = 1;
  };
  static Result<std::unique_ptr<PrivateDaemon>> start(const Options& options);
  ~PrivateDaemon();
  PrivateDaemon(const PrivateDaemon&) = delete;
  PrivateDaemon& operator=(const PrivateDaemon&) = delete;

  const std::string& endpoint() const { return endpoint_; }
  Child& child() { return *child_; }

 private:
  explicit PrivateDaemon(std::string directory) : directory_(std::move(directory)) {}

  std::string directory_;
  std::string endpoint_;
  std::unique_ptr<Child> child_;
};

// A line for the user: by which commands a run on a private daemon can be looked at.
std::string how_to_ask(const std::string& job, const std::string& endpoint);

}  // namespace muster::cli
