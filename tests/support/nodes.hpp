// Nodes: on what the ranks of a test run. That is one node, or two to four over which they are spread, if
// MUSTER_TEST_NODES says so in the environment. So one body of tests shows both.
#pragma once

#include "api/shm/job_counters.hpp"
#include "daemon/supervisor/base/options.hpp"
#include "tests/support/node.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>
#include <unistd.h>

#include <muster/muster.h>

namespace muster::test {

// Owns    the nodes, and the connections on which jobs over several depend.
// Thread  start() and fork() the test's; rank() any.
// Bound   -
// Fails   start() and rank() abort the test program with the reason.
class Nodes : private Node {
 public:
  using Node::endpoint;  // of the first node
  using Node::options;   // of the first node; start() gives them to the others too

  Nodes();
  ~Nodes();
  Nodes(const Nodes&) = delete;
  Nodes& operator=(const Nodes&) = delete;

  // The nodes know each other when it returns.
  void start();
  bool several() const { return !others_.empty(); }
  std::uint32_t count() const { return static_cast<std::uint32_t>(others_.size()) + 1; }
  pid_t fork() const;
  // Options for one rank. On one node its job is made by the first rank that attaches. On several it is made
  // now, if it has two ranks or more: a row of ranks on each node, the first ones with one more if need be. A
  // child that was forked waits until its parent has made it.
  muster_open_options rank(const char* job, int rank, int world, const char* mesh = nullptr);
  // On which node that rank is.
  std::uint32_t node_of(int rank, int world) const;
  // A count of the job's group at each node; 0 where no group of that name is.
  std::vector<std::uint64_t> counted(const std::string& job, std::string_view group, shm::GroupCount count);

 private:
  // Does nothing if the daemon refuses what the test asks for: muster_open() hears the same.
  void make_over_all(const std::string& job, int world, const char* mesh);
  int ranks_of(std::uint32_t node, int world) const;
  const Node& node(std::uint32_t index) const {
    return index == 0 ? static_cast<const Node&>(*this) : *others_[index - 1];
  }

  std::vector<std::unique_ptr<Node>> others_;
  const pid_t process_ = getpid();
  SteadyClock clock_;
  std::mutex mutex_;                               // of what follows
  std::map<std::string, shm::Descriptor> makers_;  // by job
};

}  // namespace muster::test
