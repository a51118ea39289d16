// The state of a process, as the kernel reports it: the interface for reports, and the reader behind it.
#pragma once

#include "api/base/blame/snapshot.hpp"
#include "api/shm/descriptor.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace muster::engine {

// The kernel uses a pid again; a pid with its start time is unique.
struct ProcessId {
  std::int32_t pid = 0;
  std::uint64_t started = 0;  // clock ticks since boot; 0: not known
};

struct ProcessSight {
  blame::RankState::Process state = blame::RankState::Process::kUnknown;
  std::string where;  // kFrozen: the cgroup
};

// Owns    nothing. Thread  one at a time. Bound  a few small files of the kernel's. Fails  kUnknown.
class ProcessProbe {
 public:
  virtual ~ProcessProbe() = default;
  virtual ProcessId identify(std::int32_t pid) const = 0;
  virtual ProcessSight look(const ProcessId& process) const = 0;
};

// Reads /proc/PID/stat, and the freezer of the process's cgroup, version 2 or 1.
//
// Owns    nothing. Thread  any. Bound  five small files a look. Fails  kUnknown where a file cannot be read.
class SystemProcesses final : public ProcessProbe {
 public:
  struct Files {  // where the kernel reports; a test plants other files
    std::string proc = "/proc";
    std::string cgroups = "/sys/fs/cgroup";
  };
  explicit SystemProcesses(Files files) : files_(std::move(files)) {}
  SystemProcesses() : SystemProcesses(Files{}) {}

  ProcessId identify(std::int32_t pid) const override;
  ProcessSight look(const ProcessId& process) const override;

 private:
  std::optional<std::string> frozen_cgroup(std::int32_t pid) const;

  Files files_;
};

// The line of /proc/PID/stat: proc_pid_stat(5). nullopt: the line is malformed.
struct ProcessStat {
  char state = '?';
  std::uint64_t started = 0;
};
std::optional<ProcessStat> parse_process_stat(std::string_view line);

// Whether the process behind the pidfd has ended.
bool has_ended(const shm::Descriptor& pidfd);

}  // namespace muster::engine
