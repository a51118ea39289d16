// Child: a program that this one starts and outlives.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace muster::cli {

// Whether the signal was ignored when this program started, as nohup and a shell's `&` do it; then this
// program and its children go on at it. For SIGHUP, SIGINT, SIGQUIT or SIGTSTP. Async-signal-safe.
bool stays_ignored(int number);

// The child leads its own process group. So a terminal's Ctrl-C does not reach it, and what it starts can be
// ended with it.
//
// Owns    the process until it is reaped; its pipes and pidfd.
// Thread  one.
// Bound   five descriptors.
// Fails   spawn: kNotFound (no such program), kDenied (a folder, not executable, without its interpreter),
//         kNoResource. Destruction kills a child that still runs.
class Child {
 public:
  enum class Streams : std::uint8_t { kInherited, kPiped };
  enum class Input : std::uint8_t { kInherited, kNull, kPiped };
  struct Options {
    std::vector<std::string> arguments;    // the program first; searched in PATH
    std::vector<std::string> environment;  // "NAME=value", all of it
    Streams streams = Streams::kInherited;
    Input input = Input::kNull;
    int death_signal = 0;  // sent to the child when this process ends, for whatever reason
  };
  // How a child ended.
  struct End {
    int code = 0;    // its own, or
    int signal = 0;  // what killed it, or
    int error = 0;   // why the system did not say how (errno): never well
    bool well() const { return code == 0 && signal == 0 && error == 0; }
    int exit_code() const { return signal != 0 ? 128 + signal : error != 0 ? 1 : code; }
    std::string text() const;  // "exited with code 7", "was killed by signal 9 (Killed)"
  };

  static Result<Child> spawn(const Options& options);
  Child(Child&& other) noexcept;
  Child& operator=(Child&&) = delete;
  ~Child();

  pid_t pid() const { return pid_; }
  const shm::Descriptor& pidfd() const { return pidfd_; }  // readable once it has ended
  shm::Descriptor& input() { return input_; }              // Input::kPiped: to be written; does not block
  shm::Descriptor& output() { return output_; }            // Streams::kPiped
  shm::Descriptor& error() { return error_; }
  bool reaped() const { return reaped_; }
  // Sends the signal to the child and its whole group.
  void signal(int number);
  // Call once the pidfd is readable. Kills what is left of the group first.
  End reap();

 private:
  Child(pid_t pid, shm::Descriptor pidfd) : pid_(pid), pidfd_(std::move(pidfd)) {}

  pid_t pid_;
  shm::Descriptor pidfd_;
  shm::Descriptor input_;
  shm::Descriptor output_;
  shm::Descriptor error_;
  bool reaped_ = false;
};

}  // namespace muster::cli
