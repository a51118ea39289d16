// Promises of a launch itself: bounded records, no allocation, many streams at once.
#include "transport/loopback/loopback.hpp"

#include "kernels/device/registry.hpp"
#include "tests/transport/case_shares.hpp"
#include "tests/transport/collective_case.hpp"
#include "tests/transport/counted_new.hpp"
#include "tests/transport/launch_once.hpp"

#include <array>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport {
namespace {

// All members on one stream. Loopback leaves the outcome as it is.
Status launch_on(device::Stream& stream, Communicator& communicator, const Collective& collective,
                 std::span<const Share* const> shares) {
  static StepOutcome outcome;
  std::array<LocalMember, 128> members;
  for (std::size_t i = 0; i < shares.size(); ++i) members[i] = {shares[i], &stream, bases_of(*shares[i])};
  return test::launch_once(communicator, collective, std::span(members).first(shares.size()), {}, outcome);
}

Collective sum_of(std::uint64_t count) {
  Collective c;
  c.op = MUSTER_ALL_REDUCE;
  c.dtype = MUSTER_I32;
  c.redop = MUSTER_SUM;
  c.count = count;
  return c;
}

// The shares of an all-reduce with its memory.
struct Memory {
  std::vector<std::vector<std::int32_t>> source, target;
  std::vector<Share> shares;
  std::vector<const Share*> members;

  Memory(std::int32_t ranks, std::size_t count) {
    for (std::int32_t k = 0; k < ranks; ++k) {
      source.emplace_back(count, k + 1);
      target.emplace_back(count, 0);
    }
    for (std::int32_t k = 0; k < ranks; ++k) {
      const auto i = static_cast<std::size_t>(k);
      shares.push_back(*make_share(sum_of(count), k, ranks, {}));
      shares.back().source = reinterpret_cast<const std::byte*>(source[i].data());
      shares.back().target = reinterpret_cast<std::byte*>(target[i].data());
    }
    for (const Share& share : shares) members.push_back(&share);
  }
};

// Goal:   the 65th collective in flight is refused, not queued without bound, and room comes back.
// Method: a pool without threads, so nothing runs until told to.
TEST(LoopbackLaunch, IsBusyWhenItsRecordsAreInFlight) {
  auto pool = device::Pool::open_manual({.depth = 256});
  auto device = *device::open({}, *pool);
  auto stream = *device->open_stream(device::Priority::kNormal);
  auto communicator = *open_loopback(2);
  Memory memory(2, 10);
  const Collective sum = sum_of(10);
  for (int i = 0; i < 64; ++i) ASSERT_TRUE(launch_on(*stream, *communicator, sum, memory.members).ok()) << i;
  EXPECT_EQ(launch_on(*stream, *communicator, sum, memory.members).code(), Code::kBusy);
  while (pool->run_once() > 0) {
  }
  EXPECT_TRUE(launch_on(*stream, *communicator, sum, memory.members).ok());
  while (pool->run_once() > 0) {
  }
  EXPECT_EQ(memory.target[1], std::vector<std::int32_t>(10, 3));
}

// Goal:   every pair of a large group may exchange at once.
// Method: a ring of 100 ranks, each sends to the next on its own stream, nothing runs until all are launched.
TEST(LoopbackLaunch, HoldsATransferForEachRank) {
  constexpr std::int32_t kRanks = 100;
  auto pool = device::Pool::open_manual({.streams_max = kRanks});
  auto device = *device::open({}, *pool);
  auto communicator = *open_loopback(kRanks);
  Memory memory(kRanks, 10);
  std::vector<std::unique_ptr<device::Stream>> streams;
  std::vector<Collective> transfers(kRanks);
  std::vector<std::array<Share, 2>> shares(kRanks);
  for (std::int32_t from = 0; from < kRanks; ++from) {
    const auto i = static_cast<std::size_t>(from);
    const std::int32_t to = (from + 1) % kRanks;
    transfers[i].op = MUSTER_SEND;
    transfers[i].dtype = MUSTER_I32;
    transfers[i].root = from;
    transfers[i].receiver = to;
    transfers[i].count = 10;
    shares[i] = {*make_share(transfers[i], from, kRanks, {}), *make_share(transfers[i], to, kRanks, {})};
    shares[i][0].source = memory.shares[i].source;
    shares[i][1].target = memory.shares[static_cast<std::size_t>(to)].target;
    const std::array<const Share*, 2> pair{&shares[i][0], &shares[i][1]};
    streams.push_back(*device->open_stream(device::Priority::kNormal));
    ASSERT_TRUE(launch_on(*streams.back(), *communicator, transfers[i], pair).ok()) << from;
  }
  while (pool->run_once() > 0) {
  }
  for (std::int32_t to = 0; to < kRanks; ++to)
    ASSERT_EQ(memory.target[static_cast<std::size_t>(to)],
              std::vector<std::int32_t>(10, (to + kRanks - 1) % kRanks + 1));
}

// Goal:   a stream that refuses does not cost a record.
TEST(LoopbackLaunch, KeepsItsRecordsWhenTheStreamIsFull) {
  auto pool = device::Pool::open_manual({.depth = 4});
  auto device = *device::open({}, *pool);
  auto stream = *device->open_stream(device::Priority::kNormal);
  auto communicator = *open_loopback(2);
  Memory memory(2, 10);
  const Collective sum = sum_of(10);
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(launch_on(*stream, *communicator, sum, memory.members).ok());
  for (int i = 0; i < 200; ++i)
    ASSERT_EQ(launch_on(*stream, *communicator, sum, memory.members).code(), Code::kBusy);
  while (pool->run_once() > 0) {
  }
  EXPECT_TRUE(launch_on(*stream, *communicator, sum, memory.members).ok());
  while (pool->run_once() > 0) {
  }
}

// Goal:   launch and run allocate nothing once everything is open, whatever the operation.
TEST(LoopbackLaunch, AllocatesNothingInSteadyState) {
  auto pool = device::Pool::open_manual({});
  auto device = *device::open({}, *pool);
  auto stream = *device->open_stream(device::Priority::kNormal);
  auto communicator = *open_loopback(5);
  for (const muster_op op : test::kOps) {
    const muster_redop redop = has_reduction(op) ? MUSTER_SUM : 0;
    const test::Shape shape = test::shape_of(op, MUSTER_I32, redop, 5, 10'000, test::Place::kApart);
    const test::Case c = test::make_case(shape);
    std::vector<std::byte> arena = c.before;
    const std::vector<Share> shares = *test::shares_of(shape.collective, 5, c.members, arena.data());
    const std::vector<const Share*> pointers = test::pointers_to(shares);
    std::vector<LocalMember> members;
    for (const Share* const share : pointers) members.push_back({share, stream.get(), bases_of(*share)});
    const auto prepared = *communicator->prepare(shape.collective, members);
    StepOutcome outcome;
    const auto once = [&] {
      const bool ok = communicator->launch(prepared, members, {}, device::Priority::kNormal, outcome).ok();
      while (pool->run_once() > 0) {
      }
      return ok;
    };
    ASSERT_TRUE(once()) << op_name(op);  // the first run finds the SIMD target
    const std::uint64_t before = test::allocations();
    bool ok = true;
    for (int i = 0; i < 20; ++i) ok = once() && ok;
    EXPECT_EQ(test::allocations() - before, 0u) << op_name(op);
    EXPECT_TRUE(ok);
  }
}

// Goal:   one communicator serves several streams at once; launches finish in any order and their records
//         return.
TEST(LoopbackLaunch, ServesManyStreamsAtOnce) {
  auto pool = *device::Pool::start({.workers = 3});
  auto device = *device::open({}, *pool);
  auto communicator = *open_loopback(3);
  constexpr std::size_t kStreams = 4;
  std::vector<std::unique_ptr<device::Stream>> streams;
  std::deque<Memory> memories;
  for (std::size_t s = 0; s < kStreams; ++s) {
    streams.push_back(*device->open_stream(s % 2 == 0 ? device::Priority::kHigh : device::Priority::kLow));
    memories.emplace_back(3, 20'000 + s);
  }
  std::vector<Collective> sums;
  for (std::size_t s = 0; s < kStreams; ++s) sums.push_back(sum_of(20'000 + s));
  for (int round = 0; round < 40; ++round)
    for (std::size_t s = 0; s < kStreams; ++s) {
      Status status = launch_on(*streams[s], *communicator, sums[s], memories[s].members);
      if (status.code() == Code::kBusy) {
        ASSERT_TRUE(streams[s]->synchronize().ok());
        status = launch_on(*streams[s], *communicator, sums[s], memories[s].members);
        if (status.code() == Code::kBusy) continue;  // other streams hold every record: their turn comes
      }
      ASSERT_TRUE(status.ok()) << status.text();
    }
  for (auto& stream : streams) ASSERT_TRUE(stream->synchronize().ok());
  for (std::size_t s = 0; s < kStreams; ++s)
    for (const auto& target : memories[s].target) EXPECT_EQ(target, std::vector<std::int32_t>(20'000 + s, 6));
}

// Goal:   shards that already lie in one shared target move no bytes but stay right (a node-shared buffer).
TEST(LoopbackLaunch, GathersInPlaceIntoOneSharedTarget) {
  auto pool = device::Pool::open_manual({});
  auto device = *device::open({}, *pool);
  auto stream = *device->open_stream(device::Priority::kNormal);
  auto communicator = *open_loopback(4);
  std::vector<std::int32_t> shared(40);
  for (std::size_t i = 0; i < shared.size(); ++i) shared[i] = static_cast<std::int32_t>(i);
  const std::vector<std::int32_t> before = shared;
  Collective gather;
  gather.op = MUSTER_ALL_GATHER;
  gather.dtype = MUSTER_I32;
  gather.count = 10;
  std::vector<Share> shares;
  std::vector<const Share*> members;
  for (std::int32_t k = 0; k < 4; ++k) {
    shares.push_back(*make_share(gather, k, 4, {}));
    shares.back().source = reinterpret_cast<const std::byte*>(shared.data() + 10 * k);
    shares.back().target = reinterpret_cast<std::byte*>(shared.data());
  }
  for (const Share& share : shares) members.push_back(&share);
  ASSERT_TRUE(launch_on(*stream, *communicator, gather, members).ok());
  while (pool->run_once() > 0) {
  }
  EXPECT_EQ(shared, before);
}

TEST(LoopbackLaunch, RefusesImpossibleNumbersOfRanks) {
  EXPECT_EQ(open_loopback(0).error().code(), Code::kBadArgument);
  EXPECT_EQ(open_loopback(-3).error().code(), Code::kBadArgument);
  EXPECT_EQ(open_loopback(1025).error().code(), Code::kBadArgument);
  EXPECT_EQ((*open_loopback(7))->ranks(), 7);
}

}  // namespace
}  // namespace muster::transport
