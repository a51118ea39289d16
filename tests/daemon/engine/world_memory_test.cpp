// What an engine holds for a large job of which few ranks are here.
#include "daemon/engine/engine.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"
#include "tests/transport/memory_network.hpp"
#include "transport/span/spanning_backend.hpp"
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

// The engines of the job's other nodes, as far as this one hears of them: each says hello, in messages so
// long that all memory into which heads come is touched.
//
// Owns    their ends of the connections, and the network of this node until it is taken.
// Thread  one.
// Bound   -
// Fails   ends the process.
class OtherEngines {
 public:
  static constexpr int kHellos = 8;  // more than are received at once

  explicit OtherEngines(const World& world) : here_(world.here()), own_(hub_.open(world.here())) {
    hello_ = transport::span::message_of(
        transport::span::HelloHead(),
        std::vector<std::byte>(transport::span::kMessageBytesMax - sizeof(transport::span::HelloHead) -
                               sizeof(transport::span::WireSum)));
    transport::span::seal(hello_);
    for (std::uint32_t node = 0; node < world.nodes().size(); ++node)
      if (NodeIndex(node) != here_) open(NodeIndex(node));
  }

  std::unique_ptr<transport::Network> take_own() { return std::move(own_); }

  // All are connected when it returns.
  void connect(transport::Backend& backend) {
    for (const auto& other : others_)
      if (!backend.connect(other.node, other.network->address(), 0).ok()) _exit(1);
    for (auto& other : others_)
      for (int i = 0; i < kHellos; ++i)
        if (!other.endpoint->send(0, hello_, ignored_).ok()) _exit(1);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (ignored_.ended < others_.size() * kHellos) {
      if (std::chrono::steady_clock::now() > end) _exit(1);
      backend.progress();
      for (auto& other : others_) other.network->progress();
    }
    for (const auto& other : others_)
      if (!backend.link(other.node).status.ok()) _exit(1);
  }

 private:
  struct Other {
    NodeIndex node;
    std::unique_ptr<transport::Network> network;
    std::unique_ptr<transport::Endpoint> endpoint;
  };
  struct Ignored final : transport::Transfer {
    void done(const Status&, std::size_t) override { ++ended; }
    std::size_t ended = 0;
  };
  void open(NodeIndex node) {
    Other& other = others_.emplace_back();
    other.node = node;
    other.network = hub_.open(node);
    other.endpoint = *other.network->connect(here_, own_->address());
  }

  const NodeIndex here_;
  std::vector<std::byte> hello_;
  Ignored ignored_;
  transport::test::MemoryHub hub_;
  std::unique_ptr<transport::Network> own_;
  std::deque<Other> others_;
};

// What an engine holds once its ranks have attached, and other nodes have connected.
Held held_by_engine(const control::JobSpec& spec) {
  const SteadyClock clock;
  OtherEngines others(spec.world);
  const Held before = held_now();
  std::unique_ptr<transport::Backend> backend;
  if (const auto names = spec.world.nodes(); names.size() > 1)
    backend = transport::spanning_backend(others.take_own(),
                                          {{names.begin(), names.end()}, spec.world.here()}, clock);
  transport::Backend* const network = backend.get();
  auto engine = Engine::create(spec, clock, nullptr, Engine::Pooling::kByHand, nullptr, std::move(backend));
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().text().c_str());
    _exit(1);
  }
  for (const Rank rank : spec.world.locals())
    if (!(*engine)->attach(rank, 1)) _exit(1);
  if (network != nullptr) others.connect(*network);
  const Held after = held_now();
  return {after.heap_bytes - before.heap_bytes, after.resident_bytes - before.resident_bytes};
}

// In a process of its own: what an earlier engine has given back would count for the next one.
Held held_by(const control::JobSpec& spec) {
  int pipe_ends[2];
  EXPECT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Held held = held_by_engine(spec);
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
  const Held alone = held_by(job_of(kHere, "dp_replicate=2,tp=2"));
  const Held among = held_by(job_of(1024, "pp=4,dp_replicate=8,dp_shard=8,tp=4"));
  std::printf("an engine of 4 ranks: heap %ld KiB, resident %ld KiB; of 4 among 1,024: %ld KiB, %ld KiB\n",
              alone.heap_bytes >> 10, alone.resident_bytes >> 10, among.heap_bytes >> 10,
              among.resident_bytes >> 10);
  EXPECT_GT(alone.heap_bytes, 0);
  EXPECT_LE(among.heap_bytes, 2 * alone.heap_bytes);
  EXPECT_LE(among.resident_bytes, 2 * alone.resident_bytes);
}

}  // namespace
}  // namespace muster::engine
