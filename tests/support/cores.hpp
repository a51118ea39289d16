// Which cores a thread or process may run on, so that what is measured has one of its own.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/types.h>

namespace muster::test {

// Those of the calling thread, in their order.
inline std::vector<int> own_cores() {
  cpu_set_t set;
  std::vector<int> cores;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// `thread`: 0 is the calling one. Its threads and processes to come are kept there too.
inline void keep_to(const std::vector<int>& cores, pid_t thread = 0) {
  cpu_set_t set;
  CPU_ZERO(&set);
  for (const int core : cores) CPU_SET(core, &set);
  EXPECT_TRUE(sched_setaffinity(thread, sizeof set, &set) == 0 || errno == ESRCH) << thread;
}

// All threads that the process has; those that end meanwhile are none.
inline void keep_process_to(const std::vector<int>& cores, pid_t process) {
  std::error_code gone;
  for (const auto& task : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", process), gone))
    keep_to(cores, std::atoi(task.path().filename().c_str()));
}

// Keeps a test, with the supervisor, the engines and the programs that it starts, off the first of its cores,
// which is left to whomever it is given. Where there is one core only, everybody shares it.
//
// Owns    the mask of the thread that made it, which comes back with its end.
// Thread  that one.
// Bound   -
// Fails   a mask that cannot be set fails the test.
class FirstCoreLeft {
 public:
  FirstCoreLeft() : cores_(own_cores()) {
    if (cores_.size() > 1) keep_to({cores_.begin() + 1, cores_.end()});
  }
  ~FirstCoreLeft() { keep_to(cores_); }
  FirstCoreLeft(const FirstCoreLeft&) = delete;
  FirstCoreLeft& operator=(const FirstCoreLeft&) = delete;

  // The core that is left; -1: none.
  int left() const { return cores_.size() > 1 ? cores_.front() : -1; }

 private:
  std::vector<int> cores_;
};

}  // namespace muster::test
