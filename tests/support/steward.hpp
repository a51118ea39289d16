// Steward: what systemd is to musterd, as far as restarts go: it starts the program, hears what it
// says at NOTIFY_SOCKET, keeps descriptors for it, and hands them to the next one.
#pragma once

#include "api/shm/descriptor.hpp"

#include <chrono>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace muster::test {

// Owns    the notify socket, the descriptors kept, and the daemon that runs.
// Thread  the test's; one of its own reads what the daemon says.
// Bound   -
// Fails   the test, by an expectation.
class Steward {
 public:
  using Steady = std::chrono::steady_clock;

  // `arguments` behind the program's name, `environment` besides what a manager sets.
  Steward(const std::string& folder, std::vector<std::string> arguments,
          std::vector<std::string> environment);
  ~Steward();
  Steward(const Steward&) = delete;
  Steward& operator=(const Steward&) = delete;

  // With all that is kept. Does not wait.
  void start(const std::string& program);
  // SIGKILL, or `number` and up to 30 s; its exit code, or 128 + signal.
  int end(int number = 9);
  pid_t pid() const { return pid_; }

  // A descriptor that a socket unit would bring, under this name.
  void give(const std::string& name, shm::Descriptor descriptor);
  // Takes what is kept under the name away.
  void lose(const std::string& name);
  std::vector<std::string> kept();
  std::vector<std::string> kept_with(const std::string& prefix);

  // How often the daemon has said this, and when last.
  std::size_t heard(const std::string& line);
  Steady::time_point heard_at(const std::string& line);
  // Standard error of all daemons so far.
  std::string log() const;
  // "NAME=value" from the next start on.
  void set(const std::string& variable);

 private:
  void drain();
  void hear(const std::string& text, std::vector<shm::Descriptor> descriptors);

  std::string folder_;
  std::vector<std::string> arguments_;
  std::vector<std::string> environment_;
  shm::Descriptor socket_;
  shm::Descriptor log_;
  pid_t pid_ = -1;
  std::mutex mutex_;  // of what follows
  std::multimap<std::string, shm::Descriptor> kept_;
  std::map<std::string, std::pair<std::size_t, Steady::time_point>> heard_;
  std::jthread reader_;
};

}  // namespace muster::test
