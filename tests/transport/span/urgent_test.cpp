// Urgent operations go before bulk: they are sent after at most one chunk of all operations that are not
// urgent. Over networks in memory, with faults from a seed.
#include "tests/support/manual_clock.hpp"
#include "tests/support/property_cases.hpp"
#include "tests/transport/case_shares.hpp"
#include "tests/transport/collective_case.hpp"
#include "tests/transport/launch_once.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/span/span_cluster.hpp"
#include "transport/span/chunk_room.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <deque>
#include <map>
#include <memory>
#include <memory_resource>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

constexpr std::uint64_t kBulkGroup = 7, kUrgentGroup = 12;
constexpr MemoryFaults kSlow{.seed = 3, .delay_percent = 30, .reorder_percent = 30, .late_percent = 20};

std::uint32_t each_alone(std::uint32_t member, std::uint32_t) {
  return member;
}

// Goal:   chunks that begin and end in any order never have more than kChunkBytes with the library together,
//         and the first of them is never refused.
// Method: random rounds of four chunks, each up to as long as a chunk may be.
TEST(ChunkRoom, IsKeptForTheFirstChunkOfAnOperation) {
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

// The room of a connection, and operations that have only their address.
struct Room {
  Instant now{0};
  span::ChunkRoom room{now, std::pmr::get_default_resource()};
  std::array<char, 3> operations{};
  bool gives(std::size_t operation, std::size_t bytes) {
    const bool gives = room.may_give(&operations[operation], bytes);
    if (gives) room.began(bytes);
    return gives;
  }
};
constexpr std::size_t kHalf = span::kChunkBytes / 2;

// Goal:   operations share the room in turn: one that has filled it waits behind those that came after.
TEST(ChunkRoom, IsGivenInTurn) {
  Room room;
  EXPECT_TRUE(room.gives(0, kHalf) && room.gives(0, kHalf));
  EXPECT_FALSE(room.gives(1, kHalf));
  EXPECT_FALSE(room.gives(0, kHalf));
  EXPECT_FALSE(room.gives(2, kHalf / 2));
  room.room.ended(kHalf);
  EXPECT_FALSE(room.gives(0, kHalf));
  EXPECT_FALSE(room.gives(2, kHalf / 2));
  EXPECT_TRUE(room.gives(1, kHalf));
  room.room.ended(kHalf);
  EXPECT_FALSE(room.gives(2, kHalf / 2)) << "although there is room";
  EXPECT_TRUE(room.gives(0, kHalf));
  room.room.ended(kHalf);
  EXPECT_TRUE(room.gives(2, kHalf / 2));
  EXPECT_EQ(room.room.given(), kHalf + kHalf / 2);
}

// Goal:   an operation that has failed keeps no one waiting; a message longer than the room goes alone.
TEST(ChunkRoom, IsLeft) {
  Room room;
  EXPECT_TRUE(room.gives(0, span::kChunkBytes + 64));
  EXPECT_FALSE(room.gives(1, 1));
  EXPECT_FALSE(room.gives(2, 1));
  room.room.leave(&room.operations[1]);
  EXPECT_FALSE(room.gives(2, 1));
  room.room.ended(span::kChunkBytes + 64);
  EXPECT_TRUE(room.gives(2, 1));
}

// Goal:   where nothing moves the first in the queue goes on, then waits as long for the next.
TEST(ChunkRoom, IsNotWaitedForWhereNothingMoves) {
  Room room;
  EXPECT_TRUE(room.gives(0, span::kChunkBytes));
  EXPECT_FALSE(room.gives(1, kHalf));
  EXPECT_FALSE(room.gives(2, kHalf));
  room.now += span::ChunkRoom::kPatience - Nanos(1);
  EXPECT_FALSE(room.gives(1, kHalf));
  room.now += Nanos(1);
  EXPECT_FALSE(room.gives(2, kHalf));
  EXPECT_TRUE(room.gives(1, kHalf));
  EXPECT_FALSE(room.gives(2, kHalf));
  room.now += span::ChunkRoom::kPatience;
  EXPECT_TRUE(room.gives(2, kHalf));
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

  // Groups from kBulkGroup on, and the urgent one.
  void open(std::uint32_t nodes, std::uint32_t bulk_groups) {
    nodes_ = nodes;
    groups_.clear();
    auto networks = memory_networks(nodes, kSlow);
    cluster_ = std::make_unique<SpanCluster>(
        nodes,
        [&](const SpanningOptions& options) {
          return spanning_transport(std::move(networks[options.here.value]), options, clock_);
        },
        [this] { clock_.advance(idle_for_); });
    const auto group = [&](std::uint64_t number) {
      groups_[number] = cluster_->open(cluster_->span_of(number, nodes, each_alone));
    };
    for (std::uint32_t i = 0; i < bulk_groups; ++i) group(kBulkGroup + i);
    group(kUrgentGroup);
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
    Communicator& group = *groups_[operation.key.place.group][node];
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
    for (const auto& communicator : groups_.at(kUrgentGroup))
      most = std::max(most, communicator->traffic().bulk_ahead);
    return most;
  }

  std::uint32_t nodes_ = 0;
  muster::test::ManualClock clock_;
  Nanos idle_for_{0};  // what a turn takes in which nothing moves
  std::unique_ptr<SpanCluster> cluster_;
  std::map<std::uint64_t, std::vector<std::unique_ptr<Communicator>>> groups_;  // by node
  std::deque<Operation> operations_;
  std::uint64_t number_ = 0;
};

// Goal:   a halo, a barrier and a short sum wait for at most one chunk of bulk transfers, which is what the
//         library has of them together; and it has some.
// Method: long operations of every kind, alone, two and three at once, and in each turn an urgent operation:
//         bytes that go with its request, and a face that has a message of its own.
TEST_F(UrgentAndBulk, AnUrgentMessageGoesAfterOneChunkAtMost) {
  constexpr muster_op kBulk[] = {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER,
                                 MUSTER_BROADCAST,  MUSTER_ALL_TO_ALL, MUSTER_GATHER};
  constexpr std::pair<muster_op, std::uint64_t> kUrgent[] = {
      {MUSTER_EXCHANGE, 1'024}, {MUSTER_BARRIER, 0}, {MUSTER_EXCHANGE, 8'192}, {MUSTER_ALL_REDUCE, 16}};
  const std::uint64_t cases = muster::test::property_cases(3 * std::size(kBulk));
  for (std::uint64_t i = 0; i < cases; ++i) {
    open(2, 3);
    const auto op_of = [&](std::uint64_t bulk) { return kBulk[(i + bulk) % std::size(kBulk)]; };
    std::vector<Operation*> all;
    for (std::uint64_t bulk = 0; bulk <= i / std::size(kBulk) % 3; ++bulk) {
      const muster_op op = op_of(bulk);
      const bool is_block = has_agreed_blocks(op) || is_pairwise(op);
      all.push_back(&make(kBulkGroup + bulk, op, is_block ? 500'000 : 1'000'000));
    }
    for (Operation* each : all) launch_all(*each);
    const auto over = [](const Operation* each) { return each->over(); };
    for (std::size_t turn = 0; !std::ranges::all_of(all, over); ++turn) {
      const auto& [urgent, count] = kUrgent[turn % std::size(kUrgent)];
      launch_all(make(kUrgentGroup, urgent, count, device::Priority::kUrgent));
      turns(1);
    }
    finish();
    EXPECT_LE(bulk_ahead(), span::kChunkBytes) << op_name(op_of(0)) << " and " << all.size() - 1 << " more";
    EXPECT_GT(bulk_ahead(), span::kChunkBytes / 4) << op_name(op_of(0)) << ": it has met no bulk";
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

// Goal:   nodes that give the library no more than a chunk at once do not wait for each other for ever.
// Method: long operations of several groups at once, each node coming to them in another order and at other
//         times, on three and five nodes, where rounds have several partners.
TEST_F(UrgentAndBulk, ManyLongOperationsAtOnceAllEnd) {
  constexpr muster_op kBulk[] = {MUSTER_ALL_REDUCE, MUSTER_ALL_TO_ALL, MUSTER_BROADCAST};
  idle_for_ = std::chrono::milliseconds(1);
  const std::uint64_t cases = muster::test::property_cases(10);
  for (std::uint64_t i = 0; i < cases; ++i) {
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

// Goal:   an operation that fails leaves its place in the queues of rooms, so the others go on.
// Method: of three long operations one is cancelled at some turn. The clock stands, so nobody goes on without
//         room.
TEST_F(UrgentAndBulk, AFailedOperationKeepsNobodyWaiting) {
  for (int turn = 0; turn < 30; turn += 3) {
    open(3, 3);
    Operation& failed = make(kBulkGroup, MUSTER_ALL_REDUCE, 1'000'000);
    Operation& one = make(kBulkGroup + 1, MUSTER_ALL_GATHER, 500'000);
    Operation& other = make(kBulkGroup + 2, MUSTER_REDUCE_SCATTER, 500'000);
    for (Operation* const each : {&failed, &one, &other}) launch_all(*each);
    turns(turn);
    if (!failed.over()) groups_[kBulkGroup][0]->cancel(*failed.outcomes[0]);
    (*cluster_)[0].end(
        {kBulkGroup, 1, Code::kTimeout, -1, false, "it has given up"});  // as an engine does it
    ASSERT_TRUE(cluster_->until([&] { return failed.over() && one.over() && other.over(); })) << turn;
    turns(40);
    for (const Operation* const each : {&one, &other}) {
      EXPECT_TRUE(each->first_failure().ok()) << turn << each->first_failure().text();
      EXPECT_TRUE(each->arena == each->made.after) << turn;
    }
    operations_.clear();
  }
}

}  // namespace
}  // namespace muster::transport::test
