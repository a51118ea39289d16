// What an engine holds for a large job of which few ranks are here.
#include "daemon/engine/engine.hpp"

#include "tests/daemon/engine/engine_fixture.hpp"

#include <array>
#include <cstdio>
#include <fstream>
#include <memory>
#include <string>
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

// What an engine holds once its ranks have attached.
Held held_by_engine(const control::JobSpec& spec) {
  const SteadyClock clock;
  const Held before = held_now();
  auto engine = Engine::create(spec, clock, nullptr, Engine::Pooling::kByHand);
  if (!engine) {
    std::fprintf(stderr, "%s\n", engine.error().text().c_str());
    _exit(1);
  }
  for (const Rank rank : spec.world.locals())
    if (!(*engine)->attach(rank, 1)) _exit(1);
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
//         which four are here holds at most twice the memory of one for a job of four.
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
