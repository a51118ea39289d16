// The conformance suite on the loopback backend, and the same suite on its parts run by hand in a shuffled
// order.
#include "transport/collective/communicator.hpp"

#include "kernels/device/host/pool.hpp"
#include "tests/transport/communicator_conformance.hpp"
#include "transport/loopback/parts.hpp"

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

std::vector<Share> shares_in(const Collective& collective, std::int32_t ranks,
                             std::span<const Placement> placements, std::vector<std::byte>& arena) {
  std::vector<Share> shares;
  for (const Placement& p : placements) {
    Share share = make_share(collective, p.index, ranks, {}).value_or(Share{});
    share.index = p.index;  // also one that the launch will refuse
    share.source = p.source == kNowhere ? nullptr : arena.data() + p.source;
    share.target = p.target == kNowhere ? nullptr : arena.data() + p.target;
    shares.push_back(std::move(share));
  }
  return shares;
}

std::vector<const Share*> pointers_to(const std::vector<Share>& shares) {
  std::vector<const Share*> pointers;
  for (const Share& share : shares) pointers.push_back(&share);
  return pointers;
}

// A pool of threads and one stream.
class PoolBench final : public Bench {
 public:
  PoolBench() {
    pool_ = *device::host::Pool::start(
        {.workers = 3});  // more than this suite's machines may have cores: any mix of threads
    device_ = *device::host::open_device(*pool_);
    stream_ = *device_->open_stream(device::Priority::kNormal);
  }
  Status start(const Collective& collective, std::int32_t ranks, std::span<const Placement> placements,
               std::vector<std::byte>& arena) override {
    auto& communicator = communicators_[ranks];
    if (communicator == nullptr) communicator = *open_loopback(ranks);
    shares_.push_back(shares_in(collective, ranks, placements, arena));
    return communicator->launch(*stream_, collective, pointers_to(shares_.back()));
  }
  Status finish() override {
    const Status status = stream_->synchronize();
    shares_.clear();
    return status;
  }

 private:
  std::unique_ptr<device::host::Pool> pool_;
  std::unique_ptr<device::Device> device_;
  std::map<std::int32_t, std::unique_ptr<Communicator>> communicators_;
  std::unique_ptr<device::Stream> stream_;
  std::deque<std::vector<Share>> shares_;  // of the launches in flight
};

INSTANTIATE_TEST_SUITE_P(Loopback, CommunicatorConformance,
                         ::testing::Values(BenchFactory{"Pool",
                                                        [] { return std::make_unique<PoolBench>(); }}),
                         bench_name);

std::uint32_t parts_of(const Collective& collective, std::int32_t ranks) {
  std::vector<Share> shares;
  for (std::int32_t i = 0; i < ranks; ++i) shares.push_back(*make_share(collective, i, ranks, {}));
  std::vector<std::uint64_t> starts(shares.size() + 1);
  return loopback::cut(collective, pointers_to(shares), starts).parts;
}

// Runs all parts of a case once, in the order that `seed` draws.
std::vector<std::byte> run_shuffled(const Shape& shape, const Case& c, std::uint64_t seed) {
  std::vector<std::byte> arena = c.before;
  const std::vector<Share> shares = shares_in(shape.collective, shape.ranks, c.members, arena);
  const std::vector<const Share*> pointers = pointers_to(shares);
  std::vector<std::uint64_t> starts(shares.size() + 1);
  const loopback::Job job = loopback::cut(shape.collective, pointers, starts);
  std::vector<std::uint32_t> order(job.parts);
  std::iota(order.begin(), order.end(), 0u);
  Random random(seed);
  for (std::size_t i = order.size(); i > 1; --i) std::swap(order[i - 1], order[random.below(i)]);
  for (const std::uint32_t part : order) loopback::execute_part(job, part);
  return arena;
}

// Goal:   parts may run in any order, in place too: no part reads what another has written.
TEST(LoopbackParts, GiveTheSameBitsInAnyOrder) {
  for (const muster_op op :
       {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER, MUSTER_BROADCAST, MUSTER_SEND})
    for (const Place place : {Place::kApart, Place::kInPlace}) {
      const bool reduces = op == MUSTER_ALL_REDUCE || op == MUSTER_REDUCE_SCATTER;
      const Shape shape = shape_of(op, MUSTER_BF16, reduces ? MUSTER_SUM : 0, 4, 300'003, place);
      const Case c = make_case(shape);
      ASSERT_GT(parts_of(shape.collective, shape.ranks), 3u);
      for (std::uint64_t seed = 1; seed <= 4; ++seed)
        ASSERT_TRUE(run_shuffled(shape, c, seed) == c.after) << shape.text() << ", order " << seed;
    }
}

// Goal:   streaming stores, which begin at 16 MiB of targets, change no bit.
TEST(LoopbackParts, StreamLargeTargetsExactly) {
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_BROADCAST}) {
    Shape shape =
        shape_of(op, MUSTER_U8, op == MUSTER_ALL_REDUCE ? MUSTER_MAX : 0, 2, (8 << 20) + 13, Place::kApart);
    shape.misaligned_bytes = 3;
    const Case c = make_case(shape);
    EXPECT_TRUE(run_shuffled(shape, c, 9) == c.after) << shape.text();
  }
}

TEST(LoopbackParts, FollowFromTheArgumentsAlone) {
  Collective c;
  c.op = MUSTER_ALL_REDUCE;
  c.dtype = MUSTER_F32;
  c.redop = MUSTER_SUM;
  EXPECT_EQ(parts_of(c, 4), 0u) << "no elements, no parts";
  c.count = 1;
  EXPECT_EQ(parts_of(c, 4), 1u);
  c.count = loopback::kPartTrafficBytes / (8 * 4);  // four members read and written, four bytes each
  EXPECT_EQ(parts_of(c, 4), 1u);
  ++c.count;
  EXPECT_EQ(parts_of(c, 4), 2u);
  c.count = 1024 * 64;
  EXPECT_EQ(parts_of(c, 1024), 64u) << "a part has at least a page of each vector";
  c.count = std::uint64_t{1} << 60;
  EXPECT_GT(parts_of(c, 64), 1u << 30) << "part numbers fit in 32 bits";
  c.op = MUSTER_BARRIER;
  EXPECT_EQ(parts_of(c, 4), 0u);
}

}  // namespace
}  // namespace muster::transport::test
