// How much memory this process may still allocate. Past a cgroup's limit fallocate does not fail: the OOM
// killer ends the process. So the limit is read before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::shm {

// The tightest limit, and what to change to move it.
struct Headroom {
  // The kernel's files; a test gives other ones.
  struct Files {
    std::string cgroup_of_self = "/proc/self/cgroup";
    std::string cgroup_root = "/sys/fs/cgroup";
    std::string meminfo = "/proc/meminfo";
  };

  std::uint64_t bytes = UINT64_MAX;
  std::string limit = "no limit";  // "cgroup memory limit of /sys/fs/cgroup/…"
  std::string remedy;
};

// The smallest of all limits of this process: each ancestor's cgroup limit (version 1 or 2) less what is used
// and cannot be reclaimed, the machine's available memory, and RLIMIT_FSIZE (which bounds a memory file). An
// absent file is no limit.
Headroom memory_headroom(const Headroom::Files& files = {});

// Memory that a process alone here could use: the machine's, or a cgroup's limit if smaller. 0: unknown.
std::uint64_t memory_capacity(const Headroom::Files& files = {});

// Pure parsers. "max", or a number beyond any machine's memory, is no limit.
std::optional<std::uint64_t> parse_cgroup_limit(std::string_view text);
// The value of `key` in lines of "key value" or "key: value kB"; 0 if absent.
std::uint64_t parse_stat_value(std::string_view text, std::string_view key);
// The path of this process in the hierarchy of `controller` ("memory"; "" for version 2) in
// /proc/self/cgroup.
std::optional<std::string> parse_cgroup_path(std::string_view text, std::string_view controller);

}  // namespace muster::shm
