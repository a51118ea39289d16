// Which rank of which job a process is, from what its launcher left in the environment.
//
// One list, in order; the first launcher that is complete wins, and MUSTER_BOOTSTRAP=NAME forces one.
// Explicit MUSTER_* comes first; torchrun before Slurm, because `srun torchrun` sets both.
#pragma once

#include "api/base/result.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace muster::bootstrap {

// Reads one variable; nothing if it is not set. Tests pass an environment of their own.
using Lookup = std::function<std::optional<std::string>(std::string_view)>;
Lookup process_environment();

struct Launcher {
  const char* name;  // what MUSTER_BOOTSTRAP takes
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_size;
  const char* job;         // variable with the run's id; may be null
  const char* job_prefix;  // the job's name is this prefix and that id
  const char* apart;       // variable that tells runs with one id apart; may be null
  const char* unsaid;      // `apart` is read only if `job` has this value; null: always
};

// All launchers in the order tried.
std::span<const Launcher> launchers();

struct LaunchedRank {
  Status doubt;  // kBadArgument: the environment's rank and world size may not be meant for this process
  std::string launcher;  // name of the launcher that was taken; empty: none
  std::int32_t rank = -1;
  std::int32_t world_size = -1;
  std::int32_t local_rank = -1;
  std::int32_t local_size = -1;
  std::string job;       // MUSTER_JOB, else made from the launcher's own id; may be empty
  std::string endpoint;  // MUSTER_ENDPOINT, else the default socket
  std::string mesh;      // MUSTER_MESH
  std::string token;     // MUSTER_TOKEN
  std::string key;       // job_key()
  std::string slurm;  // job and step that it is in, "1234.0" or "1234", whatever its launcher; may be empty
};

inline constexpr const char* kEndpointVariable = "MUSTER_ENDPOINT";
inline constexpr const char* kDefaultEndpoint = "/run/muster/ranks/musterd.sock";

// kBadArgument for an empty variable of ours, one that is no number, a rank outside its world, or an unknown
// MUSTER_BOOTSTRAP. A process without a launcher is no error here: its rank is -1.
Result<LaunchedRank> identify(const Lookup& lookup);

// The value of one of our variables; nothing if it is not set. kBadArgument for an empty value: it may mean
// "unset" or "none".
Result<std::optional<std::string>> non_empty(const Lookup& lookup, std::string_view name);

// The key of the job: MUSTER_JOB_KEY, else the text of the file that MUSTER_JOB_KEY_FILE names, without its
// line end. Empty: neither is set. kBadArgument: both are, or the file cannot be read, or is no key.
Result<std::string> job_key(const Lookup& lookup);

// A warning if one of MUSTER_RANK and MUSTER_WORLD_SIZE is set without the other; else nothing.
std::optional<std::string> missing_half(const Lookup& lookup);

}  // namespace muster::bootstrap
