// The cost of a launch between nodes, whose plan was prepared. It is counted, not timed; what the network
// does is not counted. counted_launches counts instructions.
#include "tests/transport/counted_new.hpp"
#include "tests/transport/span/launch_bench.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

constexpr int kWarm = 50;  // launches before one is counted: what grows has grown

// Calls of operator new outside the network.
class OwnHeap {
 public:
  LibraryCalls calls() {
    return {[this] { of_library_ -= allocations(); }, [this] { of_library_ += allocations(); }};
  }
  std::uint64_t now() const { return allocations() - of_library_; }

 private:
  std::uint64_t of_library_ = 0;  // modulo 2^64
};

class LaunchHeap : public ::testing::TestWithParam<muster_op> {};

// Goal:   a launch takes no heap, and so makes no schedule: with data that goes with the request, through
//         staging, and from and to the memory of members.
TEST_P(LaunchHeap, IsNotUsed) {
  for (const std::uint64_t count : {2u, 5'000u, 400'000u}) {
    OwnHeap heap;
    LaunchBench bench(3, 6, heap.calls());
    bench.make(GetParam(), count);
    for (int i = 0; i < kWarm; ++i) bench.launch();
    const std::uint64_t before = heap.now();
    for (int i = 0; i < 10; ++i) bench.launch();
    EXPECT_EQ(heap.now() - before, 0u) << op_name(GetParam()) << " of " << count;
  }
}
INSTANTIATE_TEST_SUITE_P(Operations, LaunchHeap,
                         ::testing::Values(MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER,
                                           MUSTER_BROADCAST, MUSTER_BARRIER, MUSTER_SEND, MUSTER_REDUCE,
                                           MUSTER_GATHER, MUSTER_SCATTER, MUSTER_ALL_TO_ALL, MUSTER_EXCHANGE),
                         [](const auto& each) { return std::string(op_name(each.param)); });

// Goal:   the counter sees what is there: to prepare takes heap.
TEST(OwnHeap, CountsWhatThereIs) {
  OwnHeap heap;
  LaunchBench bench(2, 2, heap.calls());
  const std::uint64_t before = heap.now();
  bench.make(MUSTER_BARRIER);
  EXPECT_GT(heap.now(), before);
}

#if !defined(MUSTER_SANITIZED)
// Instructions of a launch, of all its nodes.
std::uint64_t instructions_of(muster_op op, std::uint32_t nodes, std::uint32_t members) {
  const std::string out = ::testing::TempDir() + fmt::format("launches.{}.{}", ::getpid(), members);
  const std::string command =
      fmt::format("{} {} {} {} {} > {}.said", MUSTER_LAUNCH_PROGRAM, op, nodes, members, out, out);
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  std::uint64_t counted = 0, launches = 0;
  std::ifstream lines(out);
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("totals: ")) counted = std::stoull(line.substr(line.find(' ')));
  std::ifstream(out + ".said") >> launches;
  std::filesystem::remove(out);
  std::filesystem::remove(out + ".said");
  EXPECT_GT(launches, 0u);
  return launches == 0 ? 0 : counted / launches;
}

// Goal:   a message to one member, and a halo with four faces, cost the same in a group of any size.
TEST(LaunchInstructions, DoNotGrowWithTheGroup) {
  for (const muster_op op : {MUSTER_SEND, MUSTER_EXCHANGE}) {
    const std::uint32_t sizes[] = {op == MUSTER_SEND ? 2u : 4u, 64, 1024};
    std::uint64_t least = UINT64_MAX, most = 0;
    for (const std::uint32_t members : sizes) {
      const std::uint64_t now = instructions_of(op, 2, members);
      std::printf("%s in a group of %u: %lu instructions on two nodes\n", op_name(op), members,
                  static_cast<unsigned long>(now));
      least = std::min(least, now);
      most = std::max(most, now);
    }
    EXPECT_GT(least, 500u) << "nothing was counted";
    EXPECT_LE(most, least + least / 10) << op_name(op);
  }
}
#endif

}  // namespace
}  // namespace muster::transport::test
