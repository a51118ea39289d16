// A node in a test: a supervisor on a thread of this process, engines as their own processes, a socket in a
// temporary folder.
#pragma once

#include "api/shm/endpoint.hpp"
#include "daemon/supervisor/base/options.hpp"
#include "tests/support/folder.hpp"

#include <memory>
#include <span>
#include <string>
#include <thread>

#include <sys/types.h>
#include <unistd.h>

#include <muster/muster.h>

namespace muster::supervisor {
class Supervisor;
}

namespace muster::test {

// Owns    the supervisor's thread and the folder; engines end with it.
// Thread  the test's.
// Bound   -
// Fails   the constructor aborts the test program with the reason.
class Node {
 public:
  // `program` is the muster-engine to run; change `options` before start() for anything else.
  Node();
  ~Node();
  Node(const Node&) = delete;
  Node& operator=(const Node&) = delete;

  void start();
  // fork(2), for a child that goes on without exec: it has the locks of the allocator as they are at that
  // moment, and of gcc 12's sanitizers nobody would open one that the supervisor's thread holds.
  pid_t fork() const;
  // The same, where several nodes have such a thread.
  static pid_t fork(std::span<const Node* const> nodes);
  const std::string& endpoint() const { return endpoint_; }
  // Where a command line asks: at the control socket, if this user may.
  std::string door() const {
    const std::string control = shm::control_socket(options.runtime_directory);
    return access(control.c_str(), W_OK) == 0 ? control : endpoint_;
  }
  // Options for one rank of a job that its first rank creates.
  muster_open_options rank(const char* job, int rank, int world, const char* mesh = nullptr) const;

  supervisor::Options options;

 private:
  const Folder folder_;
  const std::string endpoint_ = shm::ranks_socket(folder_.path() + "/run");
  SteadyClock clock_;
  std::unique_ptr<supervisor::Supervisor> supervisor_;
  std::thread thread_;
};

}  // namespace muster::test
