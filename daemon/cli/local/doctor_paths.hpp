// The paths to the other nodes of the cluster, as `muster doctor` tries them.
#pragma once

#include "daemon/cli/question.hpp"
#include "daemon/control/link/path_echo.hpp"

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::cli {

// A line of `muster doctor`.
struct Check {
  enum class Verdict : std::uint8_t { kGood, kWarning, kFailure };
  std::string name;
  Verdict verdict = Verdict::kGood;
  std::string says;
  std::string fix;  // empty: nothing to do
};

struct ClusterPaths {
  std::string uses;          // the interface for the data of this node; empty: it has no other nodes
  std::string trouble;       // why there is no interface; empty: there is
  std::vector<Check> paths;  // by name of the node; kWarning: not tried
};

// `cluster`: part of the answer to `status`. Each path is tried for kPathTime at most, many at once, and none
// is begun after `limit`. Throws Json::exception if the answer has another form.
inline constexpr Nanos kPathTime = std::chrono::seconds(2);
ClusterPaths try_paths(const Json& cluster, Nanos limit);

// The verdict on a trial. `uses`: the interface of this node, "eth0 (10.66.0.1, MTU 9000)"; `there`: the
// address.
Check path_check(const std::string& node, const std::string& uses, const std::string& there,
                 const control::PathTrial& trial);

}  // namespace muster::cli
