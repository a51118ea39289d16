// Urgent operations go before bulk: they are sent after at most one chunk of each operation that is not
// urgent. Over networks in memory, with faults from a seed.
#include "tests/support/property_cases.hpp"
#include "tests/transport/case_shares.hpp"
#include "tests/transport/collective_case.hpp"
#include "tests/transport/launch_once.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/span/span_cluster.hpp"
#include "transport/span/chunk_room.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

constexpr std::uint64_t kBulkGroup = 7, kUrgentGroup = 8;
constexpr MemoryFaults kSlow{.seed = 3, .delay_percent = 30, .reorder_percent = 30, .late_percent = 20};

std::uint32_t each_alone(std::uint32_t member, std::uint32_t) {
  return member;
}

// Goal:   chunks that begin and end in any order never have more than kChunkBytes with the library together,
//         and the first of them is never refused.
// Method: random rounds of four chunks, each up to as long as a chunk may be.
TEST(ChunkRoom, IsKeptForTheFirstChunk) {
  struct Moving {
    std::vector<std::size_t> rounds;  // bytes
    std::size_t round = 0;
    bool is_sent = false;
    span::ChunkToNode to_node() const {
      span::ChunkToNode chunk;
      if (is_sent) chunk.now = rounds[round];
      for (std::size_t i = round + (is_sent ? 1 : 0); i < rounds.size(); ++i)
        chunk.later = std::max(chunk.later, rounds[i]);
      return chunk;
    }
  };
  math::test::Random random(11);
  std::deque<Moving> moving;
  std::size_t two_at_once = 0;
  for (int step = 0; step < 20'000; ++step) {
    while (!moving.empty() && moving.front().round == moving.front().rounds.size()) moving.pop_front();
    while (moving.size() < 4) {
      Moving& made = moving.emplace_back();
      for (std::uint64_t rounds = 1 + random.below(3); rounds > 0; --rounds)
        made.rounds.push_back((1 + random.below(4)) * span::kChunkBytes / 4);
    }
    const std::size_t index = random.below(moving.size());
    Moving& chosen = moving[index];
    if (chosen.round == chosen.rounds.size()) continue;
    if (std::exchange(chosen.is_sent, false)) {
      ++chosen.round;
      continue;
    }
    std::vector<span::ChunkToNode> chunks;
    for (const Moving& each : moving) chunks.push_back(each.to_node());
    chosen.is_sent = span::may_give(chunks, index, chosen.rounds[chosen.round]);
    ASSERT_TRUE(chosen.is_sent || index > 0) << "step " << step;
    std::size_t given = 0, sent = 0;
    for (const Moving& each : moving) {
      given += each.to_node().now;
      sent += each.is_sent ? 1 : 0;
    }
    ASSERT_LE(given, span::kChunkBytes) << "step " << step;
    two_at_once += sent > 1 ? 1 : 0;
  }
  EXPECT_GT(two_at_once, 500u);
  const std::vector<span::ChunkToNode> longer{{.later = span::kChunkBytes + 64}, {.later = 1}};
  EXPECT_TRUE(span::may_give(longer, 0, span::kChunkBytes + 64)) << "cut at whole lines";
}

// One member on each node, and operations of groups that all of them are in.
class UrgentAndBulk : public ::testing::Test {
 protected:
  // An operation, with the memory of its members.
  struct Operation : SpanLaunch {
    Shape shape;
    Case made;
    std::vector<std::byte> arena;
    MatchKey key;
    device::Priority priority = device::Priority::kNormal;
  };

  void open(std::uint32_t nodes, std::uint32_t groups) {
    nodes_ = nodes;
    const auto networks = [](std::uint32_t count) { return memory_networks(count, kSlow); };
    cluster_ = std::make_unique<SpanCluster>(nodes, networks, false);
    for (std::uint32_t i = 0; i < groups; ++i)
      groups_.push_back(cluster_->open(cluster_->span_of(kBulkGroup + i, nodes, each_alone)));
  }

  // `count`: elements of f32 of each block, face or vector.
  Operation& make(std::uint64_t group, muster_op op, std::uint64_t count,
                  device::Priority priority = device::Priority::kNormal) {
    Operation& made = operations_.emplace_back();
    made.priority = priority;
    const auto ranks = static_cast<std::int32_t>(nodes_);
    made.shape = shape_of(op, MUSTER_F32, has_reduction(op) ? MUSTER_MAX : 0, ranks, count, Place::kApart);
    made.made = make_case(made.shape);
    made.arena = made.made.before;
    const auto shares = *shares_of(made.shape.collective, ranks, made.made.members, made.arena.data());
    for (const Share& share : shares) {
      made.shares.push_back(share);
      made.signatures.push_back(signature_of(made.shape.collective, share, ranks));
    }
    made.key = {{group, 3, -1, -1}, 1, ++number_};
    for (std::uint32_t node = 0; node < nodes_; ++node)
      made.outcomes.push_back(std::make_unique<StepOutcome>());
    return made;
  }
  void launch(Operation& operation, std::uint32_t node) {
    const Share& share = operation.shares[node];
    const LocalMember member{&share, nullptr, bases_of(share), &operation.signatures[node]};
    Communicator& group = *groups_[operation.key.place.group - kBulkGroup][node];
    ASSERT_TRUE(launch_once(group, operation.shape.collective, std::span(&member, 1), operation.key,
                            *operation.outcomes[node], operation.priority)
                    .ok());
  }
  void launch_all(Operation& operation) {
    for (std::uint32_t node = 0; node < nodes_; ++node) launch(operation, node);
  }
  void turns(int count) {
    ASSERT_TRUE(cluster_->until([&, done = 0]() mutable { return ++done > count; }));
  }
  void finish() {
    ASSERT_TRUE(cluster_->until([&] {
      return std::ranges::all_of(operations_, [](const Operation& each) { return each.over(); });
    })) << "an operation does not end";
    turns(40);  // until nothing of them is under way
    for (const Operation& each : operations_) {
      ASSERT_TRUE(each.first_failure().ok()) << each.first_failure().text();
      ASSERT_TRUE(each.arena == each.made.after) << each.shape.text();
    }
    operations_.clear();
  }
  std::uint64_t bulk_ahead() const {
    std::uint64_t most = 0;
    for (const auto& communicator : groups_[kUrgentGroup - kBulkGroup])
      most = std::max(most, communicator->traffic().bulk_ahead);
    return most;
  }

  std::uint32_t nodes_ = 0;
  std::unique_ptr<SpanCluster> cluster_;
  std::vector<std::vector<std::unique_ptr<Communicator>>> groups_;  // from kBulkGroup on, by node
  std::deque<Operation> operations_;
  std::uint64_t number_ = 0;
};

// Goal:   a halo, a barrier and a short sum wait for at most one chunk of a bulk transfer, which is what the
//         library has of it; and it has some.
// Method: long operations of every kind, and in each turn of one an urgent operation: bytes that go with its
//         request, and a face that has a message of its own.
TEST_F(UrgentAndBulk, AnUrgentMessageGoesAfterOneChunkAtMost) {
  constexpr muster_op kBulk[] = {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER,
                                 MUSTER_BROADCAST,  MUSTER_ALL_TO_ALL, MUSTER_GATHER};
  constexpr std::pair<muster_op, std::uint64_t> kUrgent[] = {
      {MUSTER_EXCHANGE, 1'024}, {MUSTER_BARRIER, 0}, {MUSTER_EXCHANGE, 8'192}, {MUSTER_ALL_REDUCE, 16}};
  const std::uint64_t cases = muster::test::property_cases(std::size(kBulk));
  for (std::uint64_t i = 0; i < cases; ++i) {
    const muster_op op = kBulk[i % std::size(kBulk)];
    groups_.clear();
    open(2, 2);
    const bool is_block = has_agreed_blocks(op) || is_pairwise(op);
    Operation& bulk = make(kBulkGroup, op, is_block ? 500'000 : 1'000'000);
    launch_all(bulk);
    for (std::size_t turn = 0; !bulk.over(); ++turn) {
      const auto& [urgent, count] = kUrgent[turn % std::size(kUrgent)];
      launch_all(make(kUrgentGroup, urgent, count, device::Priority::kUrgent));
      turns(1);
    }
    finish();
    EXPECT_LE(bulk_ahead(), span::kChunkBytes) << op_name(op);
    EXPECT_GT(bulk_ahead(), span::kChunkBytes / 4) << op_name(op) << ": it has met no bulk";
  }
}

// Goal:   what is urgent between nodes is what the lane says, whatever the operation and its size.
// Method: halos of 4 MB on an urgent lane are no bulk to a barrier behind them. Short sums on a lane for
//         copies are.
TEST_F(UrgentAndBulk, TheLaneSaysWhatIsUrgent) {
  open(2, 2);
  launch_all(make(kBulkGroup, MUSTER_EXCHANGE, 1'000'000, device::Priority::kUrgent));
  for (int turn = 0; turn < 20; ++turn) {
    launch_all(make(kUrgentGroup, MUSTER_BARRIER, 0, device::Priority::kUrgent));
    turns(1);
  }
  finish();
  EXPECT_EQ(bulk_ahead(), 0u);
  for (int turn = 0; turn < 20; ++turn) {
    launch_all(make(kBulkGroup, MUSTER_ALL_REDUCE, 15'000, device::Priority::kLow));
    turns(2);
    launch_all(make(kUrgentGroup, MUSTER_BARRIER, 0, device::Priority::kUrgent));
    turns(1);
  }
  finish();
  EXPECT_GE(bulk_ahead(), 15'000u);
}

// Goal:   nodes that give the library no more than a chunk at once do not wait for each other in a circle.
// Method: long operations of several groups at once, each node coming to them in another order and at other
//         times, on three and five nodes, where rounds have several partners.
TEST_F(UrgentAndBulk, ManyLongOperationsAtOnceAllEnd) {
  constexpr muster_op kBulk[] = {MUSTER_ALL_REDUCE, MUSTER_ALL_TO_ALL, MUSTER_BROADCAST};
  const std::uint64_t cases = muster::test::property_cases(10);
  for (std::uint64_t i = 0; i < cases; ++i) {
    groups_.clear();
    open(i % 2 == 0 ? 3 : 5, std::size(kBulk));
    math::test::Random random(i);
    for (std::size_t group = 0; group < std::size(kBulk); ++group)
      make(kBulkGroup + group, kBulk[group], is_pairwise(kBulk[group]) ? 140'000 : 700'000);
    std::vector<std::pair<std::size_t, std::uint32_t>> order;
    for (std::size_t group = 0; group < std::size(kBulk); ++group)
      for (std::uint32_t node = 0; node < nodes_; ++node) order.emplace_back(group, node);
    for (std::size_t left = order.size(); left > 1; --left)
      std::swap(order[left - 1], order[random.below(left)]);
    for (const auto& [group, node] : order) {
      launch(operations_[group], node);
      turns(static_cast<int>(random.below(6)));
    }
    finish();
  }
}

}  // namespace
}  // namespace muster::transport::test
