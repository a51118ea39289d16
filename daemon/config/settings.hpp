// Settings: the values that musterd reads from musterd.yaml, the environment and its flags.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/config/diagnostic.hpp"
#include "daemon/config/key.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::config {

// Plain data. The meaning, range and default of each member are declared once, in settings.cpp.
struct Settings {
  struct {
    std::string name;
    std::string runtime_directory;
    std::string socket_path;
    std::uint32_t directory_mode = 0;
    std::string group;
    std::string engine_user;
    std::string program_folders;
    std::uint32_t workers = 0;
    std::string cores;  // "ranks" or "daemon"
  } node;
  struct {
    std::string certificates;
    std::string secret_file;
    bool plaintext = false;
  } peers;
  struct {
    std::string level;   // a word of log::parse_level
    std::string format;  // a word of log::parse_format, or "auto"
    std::string reports_directory;
  } log;
  struct {
    std::uint32_t jobs_max = 0;
    std::uint32_t jobs_per_user_max = 0;
    std::uint32_t sessions_max = 0;
    std::uint32_t sessions_per_user_max = 0;
    std::uint32_t ranks_per_job_max = 0;
    std::uint32_t starts_per_lane_max = 0;
    std::uint32_t groups_made_max = 0;
    std::uint32_t buffers_per_rank_max = 0;
    std::uint32_t plans_per_rank_max = 0;
    std::uint64_t memory_max = 0;           // bytes
    std::uint64_t memory_per_user_max = 0;  // bytes
    std::uint64_t arena_per_rank_max = 0;   // bytes
    std::uint64_t arena_segment = 0;        // bytes
    Nanos made_job_linger{0};
  } limits;
  struct {
    Nanos idle_spin{0};
    Nanos drain_timeout{0};
  } liveness;
  struct {  // 0: measured
    Nanos meeting{0};
    Nanos turn{0};
    std::uint64_t cached_rate = 0;  // bytes a second
    std::uint64_t memory_rate = 0;
  } costs;
  struct {
    Nanos deadline{0};
    std::uint32_t digests = 0;
  } defaults;
  std::string jobs_from;
  bool auto_create_jobs = false;
};

std::span<const Key> settings_keys();

// The environment variable that sets the key: "MUSTER_SET_node__workers".
std::string variable_of(std::string_view path);

// All sources of settings. They are passed in; nothing is read from the process.
struct Inputs {
  // One setting from a flag: `key` as declared; `spelled`: the flag as the user wrote it, for messages
  // ("--set node.workers").
  struct Flag {
    std::string key;
    std::string value;
    std::string spelled;
  };
  std::vector<Flag> flags;  // one for each key
  std::vector<std::string>
      environment;  // "NAME=value", all of it; MUSTER_SET_a__b=v sets a.b, other names are left alone
  std::optional<Source> file;
};

struct Resolved {
  struct Origin {
    enum class Kind : std::uint8_t { kDefault, kFile, kEnvironment, kFlag };
    Kind kind = Kind::kDefault;
    std::string text;  // "default", "musterd.yaml:14", "MUSTER_SET_node__workers", "--set node.workers"
  };
  // One line of `muster config show`.
  struct InForce {
    std::string key;
    std::string value;  // as a user would write it
    Origin origin;
  };
  Settings settings;
  std::vector<InForce> in_force;  // one for each key, in the order of their declaration
};

// flag > environment > file > default, key by key. Reports every fault of every source, also where a stronger
// source hides the value: a wrong file must not go unnoticed.
tl::expected<Resolved, Diagnostics> resolve(const Inputs& inputs);

}  // namespace muster::config
