// The memory of an engine for a large job of which few ranks are here.
#include "daemon/engine/job/engine.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/span/sealed.hpp"
#include "transport/span/spanning_transport.hpp"
#include "transport/span/wire.hpp"

#include <chrono>
#include <cstdio>
#include <deque>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::engine {
namespace {

constexpr std::uint32_t kHere = 4;

struct Held {
  std::int64_t heap_bytes = 0;      // what it has asked the allocator for
  std::int64_t resident_bytes = 0;  // of the process: its shared memory too
};

Held held_now() {
  const struct mallinfo2 heap = mallinfo2();
  std::ifstream statm("/proc/self/statm");
  std::int64_t size = 0, resident = 0;
  statm >> size >> resident;
  return {static_cast<std::int64_t>(heap.uordblks + heap.hblkhd), resident * sysconf(_SC_PAGESIZE)};
}

struct Ended final : transport::Transfer {
  void done(const Status&, std::size_t) override { ++count; }
  std::size_t count = 0;
};

// The engines of the job's other nodes, as far as this one hears of them: each says hello.
//
// Owns    their ends of the connections, and the network of this node until it is taken.
// Thread  one.
// Bound   -
// Fails   ends the process.
class OtherEngines {
 public:
  static constexpr int kHellos = 4;  // as many heads as small jobs receive at once

  explicit OtherEngines(const World& world) : here_(world.here()), own_(hub_.open(world.here())) {
    hello_ = transport::test::sealed(transport::span::message_of(transport::span::HeaderKind::kHello, {}));
    for (std::uint32_t node = 0; node < world.nodes().size(); ++node)
      if (NodeIndex(node) != here_) open(NodeIndex(node));
  }

  std::unique_ptr<transport::Network> take_own() { return std::move(own_); }
  template<class Connect>
  void connect(Connect connect) {
    for (const auto& other : others_)
      if (!connect(other.node, other.network->address())) _exit(1);
  }
  // Once from each; it has come when this returns.
  template<class Progress>
  void say_hello(Progress progress) {
    sent_.count = 0;
    for (auto& other : others_)
      if (!other.endpoint->send(0, hello_, sent_).ok()) _exit(1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (sent_.count < others_.size()) {
      if (std::chrono::steady_clock::now() > end) _exit(1);
      progress();
      for (auto& other : others_) other.network->progress();
    }
  }

 private:
  struct Other {
    NodeIndex node;
    std::unique_ptr<transport::Network> network;
    std::unique_ptr<transport::Endpoint> endpoint;
  };
  void open(NodeIndex node) {
    Other& other = others_.emplace_back();
    other.node = node;
    other.network = hub_.open(node);
    other.endpoint = *other.network->connect(here_, own_->address());
  }

  const NodeIndex here_;
  std::vector<std::byte> hello_;
  Ended sent_;
  transport::test::MemoryHub hub_;
  std::unique_ptr<transport::Network> own_;
  std::deque<Other> others_;
};

// The memory of the test's network itself, for connections that receive into the same memory.
Held held_by_network(const control::JobSpec& spec) {
  OtherEngines others(spec.world);
  std::vector<std::byte> memory(transport::span::kMessageBytesMax);
  std::vector<std::unique_ptr<transport::Endpoint>> endpoints;
  endpoints.reserve(spec.world.nodes().size());
  Ended received;
  const auto network = others.take_own();
  const Held before = held_now();
  others.connect([&](NodeIndex node, transport::Bytes address) {
    endpoints.push_back(*network->connect(node, address));
    return true;
  });
  for (int i = 0; i < OtherEngines::kHellos; ++i) {
    for (auto& endpoint : endpoints)
      if (!endpoint->receive(0, memory, received).ok()) _exit(1);
    others.say_hello([&] { network->progress(); });
  }
  const Held after = held_now();
  return {after.heap_bytes - before.heap_bytes, after.resident_bytes - before.resident_bytes};
}

// The memory of an engine once its ranks have attached, and other nodes have connected.
Held held_by_engine(const control::JobSpec& spec) {
  const SteadyClock clock;
  OtherEngines others(spec.world);
  const Held before = held_now();
  transport::JobTransport transport;
  if (const auto names = spec.world.nodes(); names.size() > 1)
    transport = transport::spanning_transport(others.take_own(),
                                              {{names.begin(), names.end()}, spec.world.here()}, clock);
  const transport::JobTransport network = transport;
  auto engine = Engine::create(spec, clock, nullptr, Engine::Pooling::kByHand, nullptr, std::move(transport));
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().text().c_str());
    _exit(1);
  }
  for (const Rank rank : spec.world.locals())
    if (!(*engine)->attach(rank, 1)) _exit(1);
  if (network.links != nullptr) {
    others.connect([&](NodeIndex node, transport::Bytes address) {
      return network.links->connect(node, address, 0).ok();
    });
    for (int i = 0; i < OtherEngines::kHellos; ++i)
      others.say_hello([&] { network.factories.front()->progress(); });
    others.connect([&](NodeIndex node, transport::Bytes) { return network.links->link(node).status.ok(); });
  }
  const Held after = held_now();
  return {after.heap_bytes - before.heap_bytes, after.resident_bytes - before.resident_bytes};
}

// In a process of its own: what an earlier engine has given back would count for the next one.
Held held_by(Held (*of)(const control::JobSpec&), const control::JobSpec& spec) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Held held = of(spec);
    _exit(write(pipe_ends[1], &held, sizeof held) == sizeof held ? 0 : 1);
  }
  Held held;
  int status = 1;
  close(pipe_ends[1]);
  EXPECT_EQ(read(pipe_ends[0], &held, sizeof held), static_cast<ssize_t>(sizeof held));
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  close(pipe_ends[0]);
  return held;
}

// A job of nodes with four ranks each; this one is in the middle.
control::JobSpec job_of(std::uint32_t ranks, const char* mesh) {
  control::JobSpec spec = test::small_job(kHere);
  std::vector<std::string> names;
  std::vector<std::uint32_t> node_of;
  for (std::uint32_t node = 0; node < ranks / kHere; ++node) {
    names.push_back(fmt::format("node{:03}", node));
    node_of.insert(node_of.end(), kHere, node);
  }
  spec.world = *World::build(names, node_of, NodeIndex(ranks / kHere / 2));
  spec.mesh = mesh;
  return spec;
}

// Goal:   nothing in an engine is sized by the world but lists of members: one for a job of 1,024 ranks of
//         which four are here, connected with the 255 other nodes, holds at most twice the memory of one for
//         a job of four.
TEST(WorldMemory, IsThatOfTheRanksOnThisNode) {
#if defined(MUSTER_SANITIZED)
  GTEST_SKIP() << "a sanitizer's allocator holds more than it is asked for";
#endif
  const control::JobSpec large = job_of(1024, "pp=4,dp_replicate=8,dp_shard=8,tp=4");
  const Held alone = held_by(held_by_engine, job_of(kHere, "dp_replicate=2,tp=2"));
  const Held network = held_by(held_by_network, large);
  Held among = held_by(held_by_engine, large);
  among.heap_bytes -= network.heap_bytes;
  among.resident_bytes -= network.resident_bytes;
  std::printf(
      "an engine of 4 ranks: heap %ld KiB, resident %ld KiB; of 4 among 1,024: %ld KiB, %ld KiB; and "
      "the network of this test: %ld KiB, %ld KiB\n",
      alone.heap_bytes >> 10, alone.resident_bytes >> 10, among.heap_bytes >> 10, among.resident_bytes >> 10,
      network.heap_bytes >> 10, network.resident_bytes >> 10);
  EXPECT_GT(alone.heap_bytes, 0);
  EXPECT_LE(among.heap_bytes, 2 * alone.heap_bytes);
  EXPECT_LE(among.resident_bytes, 2 * alone.resident_bytes);
}

}  // namespace
}  // namespace muster::engine
