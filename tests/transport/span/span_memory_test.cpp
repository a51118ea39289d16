// Operations between nodes take their memory from the job, and give it back.
#include "tests/transport/memory_network.hpp"
#include "tests/transport/span/span_flight.hpp"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

constexpr std::uint64_t kGroupWithBudget = 11;

class LimitedMemory final : public MemoryBudget {
 public:
  explicit LimitedMemory(std::uint64_t most) : limit(most) {}
  Status take(std::uint64_t bytes) override {
    if (used + bytes > limit) return failure(Code::kNoResource, "the job has {} bytes", limit);
    used += bytes;
    highest = std::max(highest, used);
    return {};
  }
  void give_back(std::uint64_t bytes) override { used -= bytes; }

  std::uint64_t limit;
  std::uint64_t used = 0, highest = 0;
};

// Two nodes with a rank each; the memory of node 1 is limited.
class SpanMemory : public ::testing::Test {
 protected:
  void open() {
    cluster_ = std::make_unique<SpanCluster>(
        2,
        [this](const SpanningOptions& options) {
          SpanningOptions with = options;
          if (options.here == NodeIndex(1)) with.memory = &memory_;
          return spanning_transport(hub_.open(options.here), with, clock_);
        },
        [] {});
    communicators_ = cluster_->open(cluster_->span_of(kGroupWithBudget, 2, alone));
  }
  static std::uint32_t alone(std::uint32_t member, std::uint32_t) { return member; }
  // Node 0 comes to `count` sums, to which node 1 does not come.
  void run_ahead(std::uint64_t count) {
    static const Shape shape = shape_of(MUSTER_ALL_REDUCE, MUSTER_I32, MUSTER_SUM, 2, 1'000, Place::kApart);
    for (std::uint64_t i = 0; i < count; ++i) {
      Ahead& ahead = aheads_.emplace_back();
      ahead.share = *make_share(shape.collective, 0, 2, {});
      ahead.share.source = ahead.share.target = memory_of_ranks_.data();
      ahead.signature = signature_of(shape.collective, ahead.share, 2);
      const LocalMember member{&ahead.share, nullptr, bases_of(ahead.share), &ahead.signature};
      const MatchKey key{{kGroupWithBudget, 0, -1, -1}, epoch_, ++number_};
      ASSERT_TRUE(
          launch_once(*communicators_[0], shape.collective, std::span(&member, 1), key, ahead.outcome).ok());
      if (i % 16 == 0) turn();
    }
  }
  void turn() {
    ASSERT_TRUE(cluster_->until([turns = 0]() mutable { return ++turns > 3; }));
  }
  Status link() { return (*cluster_)[1].link(NodeIndex(0)).status; }

  struct Ahead {
    Share share;
    Signature signature;
    StepOutcome outcome;
  };
  SteadyClock clock_;
  MemoryHub hub_;
  LimitedMemory memory_{512 << 10};
  std::vector<std::byte> memory_of_ranks_ = std::vector<std::byte>(8'000);
  std::deque<Ahead> aheads_;
  std::unique_ptr<SpanCluster> cluster_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::uint64_t epoch_ = 1, number_ = 0;
};

// Goal:   a node that runs ahead without end costs another one no more than the memory of its job: then the
//         connection ends, with the reason.
TEST_F(SpanMemory, StopsEarlyRequestsWithoutEnd) {
  open();
  for (int round = 0; round < 100 && link().ok(); ++round) run_ahead(16);
  EXPECT_EQ(link().code(), Code::kPeerLost);
  EXPECT_THAT(link().message(), ::testing::HasSubstr("operations ahead, and there is no memory for more"));
  EXPECT_LE(memory_.highest, memory_.limit);
  EXPECT_GT(memory_.highest, memory_.limit / 2);
  ASSERT_TRUE(cluster_->until([&, turns = 0]() mutable { return ++turns > 10; }));
  (*cluster_)[0].lose(NodeIndex(1), Status(Code::kPeerLost, "it is gone"));
  ASSERT_TRUE(cluster_->until(
      [&] { return std::ranges::all_of(aheads_, [](const Ahead& each) { return each.outcome.over(); }); }));
  cluster_->connect(0, 1, 1);
  ASSERT_TRUE(cluster_->until([&] { return cluster_->are_connected(0, 1); }));
  EXPECT_LE(memory_.used, 2 * MemoryBudget::Pieces::kStep) << "a new connection begins without them";
  communicators_.clear();
  cluster_ = nullptr;
  EXPECT_EQ(memory_.used, 0u);
}

// Goal:   what an epoch's end drops is given back: any number of requests may come early, if not at once.
TEST_F(SpanMemory, GivesBackWhatHasEnded) {
  open();
  for (epoch_ = 1; epoch_ <= 20; ++epoch_) {
    run_ahead(64);
    turn();
    ASSERT_TRUE(link().ok()) << link().text();
    (*cluster_)[1].end({kGroupWithBudget, epoch_, Code::kTimeout, 1, false, "rank 1 sleeps"});
    ASSERT_TRUE(cluster_->until(
        [&] { return std::ranges::all_of(aheads_, [](const Ahead& each) { return each.outcome.over(); }); }));
    aheads_.clear();
    number_ = 0;
  }
  EXPECT_GT(memory_.highest, 2 * MemoryBudget::Pieces::kStep);
  EXPECT_LE(memory_.used, 2 * MemoryBudget::Pieces::kStep);
}

// Goal:   a plan for which there is no memory is refused, and takes none.
TEST_F(SpanMemory, RefusesWhatCannotBePrepared) {
  memory_.limit = 128;
  open();
  const Shape shape = shape_of(MUSTER_ALL_REDUCE, MUSTER_I32, MUSTER_SUM, 2, 1'000, Place::kApart);
  const Share share = *make_share(shape.collective, 1, 2, {});
  const Signature signature = signature_of(shape.collective, share, 2);
  const LocalMember member{&share, nullptr, {}, &signature};
  const auto refused = communicators_[1]->prepare(shape.collective, std::span(&member, 1));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kNoResource);
  EXPECT_EQ(memory_.used, 0u);
  memory_.limit = 512 << 10;
  {
    const auto prepared = communicators_[1]->prepare(shape.collective, std::span(&member, 1));
    ASSERT_TRUE(prepared) << prepared.error().text();
    EXPECT_GT(memory_.used, 0u);
  }
  EXPECT_EQ(memory_.used, 0u);
}

}  // namespace
}  // namespace muster::transport::test
