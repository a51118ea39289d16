// Nodes: on what the ranks of a test run. That is one node, or two over which they are spread, if
// MUSTER_TEST_NODES=2 is in the environment. So one body of tests shows both.
#pragma once

#include "daemon/supervisor/base/options.hpp"
#include "tests/support/node.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <string>

#include <sys/types.h>
#include <unistd.h>

#include <muster/muster.h>

namespace muster::test {

// Owns    the nodes, and the connections on which jobs over both depend.
// Thread  start() and fork() the test's; rank() any.
// Bound   -
// Fails   start() and rank() abort the test program with the reason.
class Nodes : private Node {
 public:
  using Node::endpoint;  // of the first node
  using Node::options;   // of the first node; start() gives them to the other one too

  Nodes();
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  // Two nodes know each other when it returns.
  void start();
  bool several() const { return second_ != nullptr; }
  pid_t fork() const;
  // Options for one rank. On one node its job is made by the first rank that attaches. On two it is made now,
  // if it has two ranks or more: the first half of them on the first node. A child that was forked waits
  // until its parent has made it.
  muster_open_options rank(const char* job, int rank, int world, const char* mesh = nullptr);

 private:
  // Does nothing if the daemon refuses what the test asks for: muster_open() hears the same.
  void make_over_both(const std::string& job, int world, const char* mesh);

  std::unique_ptr<Node> second_;
  const pid_t process_ = getpid();
  SteadyClock clock_;
  std::mutex mutex_;                               // of what follows
  std::map<std::string, shm::Descriptor> makers_;  // by job
};

}  // namespace muster::test
