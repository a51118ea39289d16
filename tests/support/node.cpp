#include "tests/support/node.hpp"

#include "daemon/supervisor/program/supervisor.hpp"
#include "daemon/supervisor/takeover/replacement.hpp"

#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <latch>
#include <random>
#include <vector>

#include <unistd.h>

namespace muster::test {

Node::Node() {
  options.runtime_directory = folder_.path() + "/run";
  options.engine_program = MUSTER_ENGINE_PROGRAM;
  options.drain_timeout = std::chrono::milliseconds(100);
  options.job_defaults.arena_bytes_max = std::uint64_t{512} << 20;
  options.job_defaults.segment_bytes = std::uint64_t{4} << 20;
  options.job_defaults.owner = geteuid();
  options.job_defaults.deadline = std::chrono::seconds(20);
  const auto random = std::make_shared<std::mt19937_64>(4711);
  options.random_word = [random] { return (*random)(); };
  options.random_hex = [random] {
    return fmt::format("{:016x}{:016x}{:016x}{:016x}", (*random)(), (*random)(), (*random)(), (*random)());
  };
}

void Node::start() {
  auto supervisor = supervisor::Supervisor::open(options, clock_);
  if (!supervisor) {
    std::fprintf(stderr, "the node does not start: %s\n", supervisor.error().text().c_str());
    std::abort();
  }
  supervisor_ = *std::move(supervisor);
  // Its thread holds the signals that a daemon is told by; the test's own do not.
  sigset_t own;
  pthread_sigmask(SIG_SETMASK, nullptr, &own);
  supervisor::hold_signals();
  thread_ = std::thread([this] { supervisor_->run(); });
  pthread_sigmask(SIG_SETMASK, &own, nullptr);
}

pid_t Node::fork() const {
  const Node* const self[] = {this};
  return fork(self);
}

pid_t Node::fork(std::span<const Node* const> nodes) {
  struct Hold {
    std::latch held{1};
    std::latch over{1};
  };
  std::vector<std::shared_ptr<Hold>> holds;
  for (const Node* node : nodes) {
    if (!node->supervisor_) continue;
    holds.push_back(std::make_shared<Hold>());
    node->supervisor_->post([hold = holds.back()] {
      hold->held.count_down();
      hold->over.wait();
    });
    holds.back()->held.wait();
  }
  const pid_t child = ::fork();
  if (child != 0)
    for (const auto& hold : holds) hold->over.count_down();
  return child;
}

Node::~Node() {
  if (supervisor_) pthread_kill(thread_.native_handle(), SIGTERM);
  if (thread_.joinable()) thread_.join();
  supervisor_.reset();
}

muster_open_options Node::rank(const char* job, int rank, int world, const char* mesh) const {
  muster_open_options options_of_rank = MUSTER_OPEN_OPTIONS_INIT;
  options_of_rank.endpoint = endpoint_.c_str();
  options_of_rank.job = job;
  options_of_rank.rank = rank;
  options_of_rank.world_size = world;
  options_of_rank.mesh = mesh;
  options_of_rank.timeout_ns = 20'000'000'000;
  return options_of_rank;
}

}  // namespace muster::test
