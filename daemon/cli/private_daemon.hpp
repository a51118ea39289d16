// PrivateDaemon: a musterd for one run, in a directory of its own.
#pragma once

#include "daemon/cli/child.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace muster::cli {

// Owns    the process and its directory (mode 0700), which the process makes, and which is removed at the
//         end.
// Thread  one.
// Bound   one daemon; as many sessions and jobs as is said or by default, but where nobody has said so
//         fewer, if the hard limit of open files demands it, down to what the ranks need.
// Fails   start: kNotFound (no musterd), kNoResource (no directory, no process, too few open files). A
//         daemon that does not come up is seen by its pidfd.
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

}  // namespace muster::cli
