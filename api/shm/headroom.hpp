// How much memory may still be allocated here. Past a cgroup's limit fallocate is answered by the OOM killer,
// not by an error, so the question has to be asked before.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace muster::shm {

// The tightest limit, and what to change to move it.
struct Headroom {
  std::uint64_t bytes = UINT64_MAX;
  std::string limit = "no limit";  // "cgroup memory limit of /sys/fs/cgroup/…"
  std::string remedy;
};

// Where the kernel reports; a test plants other files.
struct MemoryFiles {
  std::string cgroup_of_self = "/proc/self/cgroup";
  std::string cgroup_root = "/sys/fs/cgroup";
  std::string meminfo = "/proc/meminfo";
};

// Reads all limits that bind this process: every ancestor's cgroup limit (version 1 or 2) less what is used
// and cannot be reclaimed, the machine's available memory, RLIMIT_FSIZE (which bounds a memory file). A file
// that is absent is no limit.
Headroom memory_headroom(const MemoryFiles& files = {});

// The machine's memory, or less by a cgroup's limit: what a process alone here could use. 0 if nothing tells.
std::uint64_t memory_capacity(const MemoryFiles& files = {});

// The parsers, pure: "max" or a number past any machine is no limit.
std::optional<std::uint64_t> parse_cgroup_limit(std::string_view text);
// The value of `key` in lines of "key value" or "key: value kB"; 0 if absent.
std::uint64_t parse_stat_value(std::string_view text, std::string_view key);
// The path of this process in the hierarchy of `controller` ("memory"; "" for version 2) in
// /proc/self/cgroup.
std::optional<std::string> parse_cgroup_path(std::string_view text, std::string_view controller);

}  // namespace muster::shm
