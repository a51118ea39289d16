// Operations between nodes, beyond the suite of communicators: contributions are combined within each node
// first; nodes disagree, epochs end, nodes are lost. Over networks in memory, with faults from a seed.
#include "transport/span/spanning_transport.hpp"

#include "tests/support/property_cases.hpp"
#include "tests/transport/case_shares.hpp"
#include "tests/transport/conformance_rows.hpp"
#include "tests/transport/launch_once.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/oracle.hpp"
#include "tests/transport/same_bytes.hpp"
#include "tests/transport/span/span_cluster.hpp"

#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

constexpr std::size_t kAllStaged = SIZE_MAX;
constexpr MemoryFaults kLate{
    .seed = 5, .delay_percent = 30, .reorder_percent = 30, .late_percent = 20, .refuse_percent = 5};

std::uint32_t by_turns(std::uint32_t member, std::uint32_t) {
  return member % 3;
}

// Writes a small whole number.
void put(muster_dtype dtype, std::byte* vector, std::uint64_t index, int value) {
  const auto real = static_cast<float>(value);
  const double wide = value;
  const std::int64_t whole = value;
  const std::byte* from = reinterpret_cast<const std::byte*>(&whole);
  if (dtype == MUSTER_F32) from = reinterpret_cast<const std::byte*>(&real);
  if (dtype == MUSTER_F64) from = reinterpret_cast<const std::byte*>(&wide);
  if (dtype == MUSTER_BF16) from = reinterpret_cast<const std::byte*>(&real) + 2;
  std::memcpy(vector + index * dtype_bytes(dtype), from, dtype_bytes(dtype));
}

// ---- beyond the suite --------------------------------------------------------------------------

// A group of members on the nodes of a cluster, and the launches of its operations.
class SpanningGroup : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kNodes = 3;
  static constexpr std::uint32_t kRanks = 5;  // two on each of the first two nodes, one on the third
  static constexpr std::uint64_t kGroup = 7;

  static NetworkOpener networks_of(MemoryHub& hub) {
    return [&hub](std::uint32_t count) {
      std::vector<std::unique_ptr<Network>> all;
      for (std::uint32_t i = 0; i < count; ++i) all.push_back(hub.open(NodeIndex(i)));
      return all;
    };
  }

  void open(bool is_reproducible, std::size_t direct_from_bytes = SpanningOptions().direct_from_bytes) {
    cluster_ = std::make_unique<SpanCluster>(kNodes, networks_of(hub_), is_reproducible, direct_from_bytes);
    communicators_ = cluster_->open(cluster_->span_of(kGroup, kRanks, by_turns));
  }

  // `collective_at(node)`: what that node's members mean. The shares follow from it.
  SpanLaunch& launch(const std::function<const Collective&(std::uint32_t node)>& collective_at,
                     const std::vector<Share>& shares, MatchKey key) {
    SpanLaunch& launched = launches_.emplace_back();
    launched.outcomes.resize(kNodes);
    for (std::uint32_t node = 0; node < kNodes; ++node) {
      const Collective& c = launched.collectives.emplace_back(collective_at(node));
      std::vector<LocalMember> members;
      for (const Share& share : shares) {
        if (by_turns(static_cast<std::uint32_t>(share.index), kRanks) != node) continue;
        const Share& own = launched.shares.emplace_back(share);
        launched.signatures.push_back(signature_of(c, own, kRanks));
        members.push_back({&own, nullptr, bases_of(own), &launched.signatures.back()});
      }
      if (members.empty()) continue;
      launched.outcomes[node] = std::make_unique<StepOutcome>();
      EXPECT_TRUE(launch_once(*communicators_[node], c, members, key, *launched.outcomes[node]).ok());
    }
    return launched;
  }
  MatchKey next() { return {{kGroup, 3, -1, -1}, epoch_, ++number_}; }

  MemoryHub hub_{kLate};
  std::unique_ptr<SpanCluster> cluster_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::deque<SpanLaunch> launches_;
  std::uint64_t epoch_ = 1;
  std::uint64_t number_ = 0;
};

// Goal:   members are combined on their node before nodes are, and the result is still right.
// Method: small whole numbers, whose sums, products and halves are exact in any order; rows for which each
//         algorithm is chosen. Members on a node alone and others, in place and not; through staging, and
//         from and to the memory of members.
class CombiningGroup : public SpanningGroup,
                       public ::testing::WithParamInterface<std::pair<Place, std::size_t>> {};
INSTANTIATE_TEST_SUITE_P(Combining, CombiningGroup,
                         ::testing::Values(std::pair(Place::kApart, kAllStaged),
                                           std::pair(Place::kApart, std::size_t{1}),
                                           std::pair(Place::kInPlace, std::size_t{1})),
                         [](const auto& of) {
                           return std::string(of.param.first == Place::kApart ? "Apart" : "InPlace") +
                                  (of.param.second == 1 ? "Direct" : "Staged");
                         });
TEST_P(CombiningGroup, CombinesMembersBeforeNodes) {
  const auto [place, direct_from_bytes] = GetParam();
  open(false, direct_from_bytes);
  const bool is_staged = direct_from_bytes > 1;
  for (const muster_op op : {MUSTER_ALL_REDUCE, MUSTER_REDUCE, MUSTER_REDUCE_SCATTER})
    for (const muster_dtype dtype : {MUSTER_F32, MUSTER_F64, MUSTER_I32, MUSTER_I64, MUSTER_U8, MUSTER_BF16})
      for (const muster_redop redop : redops_of(op))
        // Types make no difference to where bytes lie.
        if (is_staged || dtype == MUSTER_F32 || dtype == MUSTER_BF16)
          for (const std::uint64_t count : {1u, 37u, 5'000u, 700'000u}) {
            if (count > 5'000 && (dtype != MUSTER_F32 || redop != MUSTER_AVG)) continue;
            Shape shape = shape_of(op, dtype, redop, kRanks, count, place);
            if (!is_integer(dtype)) shape.collective.scale = 0.5;
            Case made = make_case(shape);
            for (const Placement& member : made.members)
              for (std::uint64_t i = 0; i < detail::source_length(shape, member); ++i) {
                const int own = static_cast<int>(i % 1000) + 3 * member.index;
                const int value = redop == MUSTER_PROD || dtype == MUSTER_BF16 ? 1 + own % 2 : own % 11;
                put(dtype, made.before.data() + member.source, i, value);
              }
            made.after = oracle(shape.collective, kRanks, made.members, made.before, dtype_bytes(dtype));
            std::vector<std::byte> arena = made.before;
            const auto shares = *shares_of(shape.collective, kRanks, made.members, arena.data());
            const SpanLaunch& launched =
                launch([&](std::uint32_t) -> const Collective& { return shape.collective; }, shares, next());
            ASSERT_TRUE(cluster_->until([&] { return launched.over(); })) << shape.text();
            ASSERT_TRUE(launched.first_failure().ok()) << launched.first_failure().text();
            ASSERT_TRUE(same_bytes(arena, made.after)) << shape.text();
            launches_.clear();
          }
}

// Goal:   nodes that describe different operations all get MISMATCH, and nothing is written.
// Method: one node's members change a random operation: another operation, type, operator, root or target, or
//         other blocks for one pair.
TEST_F(SpanningGroup, HearsOfADifferenceOnAllNodes) {
  open(false);
  const std::uint64_t cases = muster::test::property_cases(400);
  for (std::uint64_t seed = 1, tried = 0; tried < cases; ++seed) {
    Random random(seed);
    const muster_op op = kOps[random.below(kOps.size())];
    if (is_transfer(op) || has_faces(op) || !has_data(op)) continue;
    const muster_redop redop = has_reduction(op) ? MUSTER_SUM : 0;
    const std::uint64_t count = 1 + random.below(3) * random.below(30'000);
    const Shape shape = shape_of(op, MUSTER_F32, redop, kRanks, count, Place::kApart);
    Case made = make_case(shape);
    std::vector<std::byte> arena = made.before;
    const auto shares = *shares_of(shape.collective, kRanks, made.members, arena.data());
    Collective other = shape.collective;
    std::vector<Share> others = shares;
    const auto odd = static_cast<std::uint32_t>(random.below(kNodes));
    switch (random.below(5)) {
      case 0:
        other.dtype = MUSTER_I32;
        break;
      case 1:
        if (!has_reduction(op)) continue;
        other.redop = MUSTER_MAX;
        break;
      case 2:
        if (!has_root(op) || is_pairwise(op)) continue;
        other.root = 1;
        break;
      case 3:
        if (!may_share_target(op)) continue;
        other.shared_memory = 9;
        break;
      default:
        if (op != MUSTER_ALL_TO_ALL) continue;
        // A block that one member expects is shorter than what the other sends.
        for (Share& share : others)
          if (by_turns(static_cast<std::uint32_t>(share.index), kRanks) == odd)
            share.target_blocks[(odd + 1) % kRanks].count -= 1;
    }
    ++tried;
    const SpanLaunch& launched = launch(
        [&](std::uint32_t node) -> const Collective& { return node == odd ? other : shape.collective; },
        others, next());
    ASSERT_TRUE(cluster_->until([&] { return launched.over(); })) << "seed " << seed << ": " << shape.text();
    for (const auto& outcome : launched.outcomes) {
      ASSERT_NE(outcome->failure(), nullptr) << "seed " << seed << ": " << shape.text();
      ASSERT_EQ(outcome->failure()->code(), Code::kMismatch) << outcome->failure()->text();
    }
    ASSERT_TRUE(arena == made.before) << "seed " << seed << " has written: " << shape.text();
    launches_.clear();
  }
}

// Goal:   a node gives up in the middle of a large operation: all nodes hear of it, and get their members'
//         memory back without the connection's end. Nothing is written there any more. The next operation
//         works.
// Method: operations from and to the memory of members, given up on each node at another moment each time.
//         Memory, collective and shares are destroyed as soon as the step is over.
TEST_F(SpanningGroup, GivesMemoryBackWhenANodeGivesUp) {
  static constexpr muster_op kLarge[] = {MUSTER_ALL_GATHER, MUSTER_ALL_TO_ALL, MUSTER_BROADCAST,
                                         MUSTER_ALL_REDUCE, MUSTER_GATHER};
  open(false, 1);
  const auto moments = static_cast<int>(muster::test::property_cases(60));
  int gave_up = 0;
  for (int moment = 0; moment < moments; ++moment) {
    const muster_op op = kLarge[moment % std::size(kLarge)];
    const auto node = static_cast<std::uint32_t>(moment / 5 % 3);
    auto shape = std::make_unique<Shape>(shape_of(op, MUSTER_I32, has_reduction(op) ? MUSTER_SUM : 0, kRanks,
                                                  op == MUSTER_ALL_TO_ALL ? 20'000 : 150'000, Place::kApart));
    const Case made = make_case(*shape);
    const auto run = [&] {
      auto arena = std::make_unique<std::vector<std::byte>>(made.before);
      const auto shares = *shares_of(shape->collective, kRanks, made.members, arena->data());
      launch([&](std::uint32_t) -> const Collective& { return shape->collective; }, shares, next());
      return arena;
    };
    auto arena = run();
    ASSERT_TRUE(cluster_->until([&, turns = 0]() mutable { return ++turns > moment / 3; }));
    communicators_[node]->cancel(*launches_.back().outcomes[node]);
    (*cluster_)[node].end({kGroup, epoch_++, Code::kTimeout, 0, false, "given up"});
    number_ = 0;
    ASSERT_TRUE(cluster_->until([&] { return launches_.back().over(); })) << "moment " << moment;
    for (const auto& outcome : launches_.back().outcomes) {
      if (outcome->failure() == nullptr) continue;  // it had all that it needed
      ++gave_up;
      ASSERT_EQ(outcome->failure()->code(), Code::kTimeout) << outcome->failure()->text();
    }
    launches_.clear();
    const auto left = *arena;
    ASSERT_TRUE(cluster_->until([&, turns = 0]() mutable { return ++turns > 40; }));
    ASSERT_TRUE(left == *arena) << "moment " << moment;
    arena = run();
    ASSERT_TRUE(cluster_->until([&] { return launches_.back().over(); })) << "moment " << moment;
    ASSERT_TRUE(launches_.back().first_failure().ok()) << launches_.back().first_failure().text();
    ASSERT_TRUE(*arena == made.after) << "moment " << moment;
    launches_.clear();
  }
  EXPECT_GT(gave_up, moments);
}

// Goal:   the deadline of a long transfer can be told from that of one that stands still.
// Method: an all-reduce for which node 2 does not come at first: soon nothing moves, for many turns. Then it
//         moves chunk by chunk.
TEST_F(SpanningGroup, SaysWhenSomethingLastMoved) {
  open(true);
  const Shape shape = shape_of(MUSTER_ALL_REDUCE, MUSTER_F32, MUSTER_SUM, kRanks, 700'000, Place::kApart);
  Case made = make_case(shape);
  std::vector<std::byte> arena = made.before;
  const auto shares = *shares_of(shape.collective, kRanks, made.members, arena.data());
  std::vector<Share> late, early;
  for (const Share& share : shares)
    (by_turns(static_cast<std::uint32_t>(share.index), kRanks) == 2 ? late : early).push_back(share);
  const auto same = [&](std::uint32_t) -> const Collective& { return shape.collective; };
  const MatchKey key = next();
  const SpanLaunch& first = launch(same, early, key);
  std::optional<Instant> waits;
  int still = 0;  // turns
  ASSERT_TRUE(cluster_->until([&] {
    const auto moved = std::exchange(waits, communicators_[0]->moved_at(*first.outcomes[0]));
    return (still = waits && waits == moved ? still + 1 : 0) == 10'000;
  })) << "it has told the others, and they do not come";
  const SpanLaunch& last = launch(same, late, key);
  std::set<std::optional<Instant>> moments;
  ASSERT_TRUE(cluster_->until([&] {
    if (!first.outcomes[0]->over()) moments.insert(communicators_[0]->moved_at(*first.outcomes[0]));
    return first.over() && last.over();
  }));
  EXPECT_GT(moments.size(), 3u);
  EXPECT_TRUE(same_bytes(arena, made.after));
}

// Goal:   an epoch that ends on one node ends on all: who has come to an operation of it hears the cause, and
//         who comes later too. The next epoch works.
TEST_F(SpanningGroup, EndsAnEpochEverywhere) {
  open(false);
  Collective barrier;
  barrier.op = MUSTER_BARRIER;
  std::vector<Share> shares;
  for (std::int32_t i = 0; i < static_cast<std::int32_t>(kRanks); ++i)
    shares.push_back(*make_share(barrier, i, kRanks, {}));
  std::vector<Share> without_last;  // node 2 has member 2 alone: it does not come
  for (const Share& share : shares)
    if (by_turns(static_cast<std::uint32_t>(share.index), kRanks) != 2) without_last.push_back(share);
  const auto same = [&](std::uint32_t) -> const Collective& { return barrier; };
  const MatchKey key = next();
  const SpanLaunch& waits = launch(same, without_last, key);
  ASSERT_TRUE(cluster_->until([&, turns = 0]() mutable { return ++turns > 200; }));
  EXPECT_FALSE(waits.over());
  EXPECT_THAT(communicators_[0]->awaited(*waits.outcomes[0]), ::testing::ElementsAre(2u));
  EXPECT_EQ(communicators_[0]->traffic().kept, 1u);
  EXPECT_EQ(communicators_[2]->traffic().kept, 0u) << "it has not come";

  (*cluster_)[2].end({kGroup, 1, Code::kTimeout, 2, false, "rank 2 sleeps"});
  ASSERT_TRUE(cluster_->until([&] { return waits.over(); }));
  EXPECT_EQ(waits.first_failure().code(), Code::kTimeout);
  EXPECT_EQ(waits.first_failure().message(), "rank 2 sleeps");
  for (const std::uint32_t node : {0u, 1u}) {
    std::vector<EpochEnd> heard;
    ASSERT_TRUE(cluster_->until([&] {
      (*cluster_)[node].take_ended([&](const EpochEnd& end) { heard.push_back(end); });
      return !heard.empty();
    }));
    EXPECT_EQ(heard.front().epoch, 1u);
    EXPECT_EQ(heard.front().culprit, 2);
  }
  EXPECT_TRUE(cluster_->until([&] { return communicators_[2]->traffic().late_messages == 2; }))
      << "the refusals of the other nodes";
  const SpanLaunch& late = launch(same, shares, next());  // still of epoch 1
  ASSERT_TRUE(cluster_->until([&] { return late.over(); }));
  EXPECT_EQ(late.first_failure().message(), "rank 2 sleeps");
  epoch_ = 2;
  number_ = 0;
  const SpanLaunch& again = launch(same, shares, next());
  ASSERT_TRUE(cluster_->until([&] { return again.over(); }));
  EXPECT_TRUE(again.first_failure().ok()) << again.first_failure().text();
  EXPECT_TRUE(cluster_->until([&] {
    return std::ranges::all_of(communicators_, [](const auto& each) { return each->traffic().kept == 0; });
  }));
}

// Goal:   members that meet and then leave do not break the operation in which they met, however late the
//         others learn that all have come. Later operations fail because they have left.
// Method: the link between nodes 1 and 2 stands still while node 0 completes an operation and ends the epoch.
TEST_F(SpanningGroup, LeavesAnOperationAloneToWhichTheNodeThatEndsItHasCome) {
  open(false);
  for (const muster_op op : {MUSTER_BARRIER, MUSTER_ALL_REDUCE}) {
    const bool sums = has_reduction(op);
    const Shape shape =
        shape_of(op, sums ? MUSTER_I32 : 0, sums ? MUSTER_SUM : 0, kRanks, sums ? 40 : 0, Place::kApart);
    const Case made = make_case(shape);
    std::vector<std::byte> arena = made.before;
    const auto shares = *shares_of(shape.collective, kRanks, made.members, arena.data());
    const auto same = [&](std::uint32_t) -> const Collective& { return shape.collective; };
    hub_.hold(NodeIndex(1), NodeIndex(2));
    const SpanLaunch& met = launch(same, shares, next());
    ASSERT_TRUE(cluster_->until([&] { return met.outcomes[0]->over(); })) << op_name(op);
    (*cluster_)[0].end({kGroup, epoch_, Code::kPeerLost, 0, true, "rank 0 detached"});
    for (const std::uint32_t node : {1u, 2u}) {
      bool heard = false;
      ASSERT_TRUE(cluster_->until([&] {
        (*cluster_)[node].take_ended([&](const EpochEnd&) { heard = true; });
        return heard;
      }));
      EXPECT_FALSE(met.outcomes[node]->over()) << op_name(op) << " on node " << node;
    }
    hub_.restore(NodeIndex(1), NodeIndex(2));
    ASSERT_TRUE(cluster_->until([&] { return met.over(); })) << op_name(op);
    EXPECT_TRUE(met.first_failure().ok()) << op_name(op) << ": " << met.first_failure().text();
    EXPECT_TRUE(same_bytes(arena, made.after));
    const SpanLaunch& late = launch(same, shares, next());
    ASSERT_TRUE(cluster_->until([&] { return late.over(); }));
    EXPECT_EQ(late.first_failure().message(), "rank 0 detached");
    ++epoch_;
    number_ = 0;
  }
}

// Goal:   an operation for which a node is missing ends, though the node that ends its epoch had come to it.
// Method: node 2 does not come. Node 0 ends the epoch when nodes 0 and 1 wait for that node alone.
TEST_F(SpanningGroup, EndsAnOperationToWhichTheNodeThatEndsItHasComeInVain) {
  open(false);
  Collective barrier;
  barrier.op = MUSTER_BARRIER;
  std::vector<Share> without_last;
  for (const std::int32_t member : {0, 1, 3, 4})
    without_last.push_back(*make_share(barrier, member, kRanks, {}));
  const auto same = [&](std::uint32_t) -> const Collective& { return barrier; };
  const SpanLaunch& waits = launch(same, without_last, next());
  for (const std::uint32_t node : {0u, 1u})
    ASSERT_TRUE(cluster_->until([&] {
      return communicators_[node]->awaited(*waits.outcomes[node]) == std::vector<std::uint32_t>{2};
    }));
  (*cluster_)[0].end({kGroup, 1, Code::kPeerLost, 0, true, "rank 0 detached"});
  ASSERT_TRUE(cluster_->until([&] { return waits.over(); }));
  for (const std::uint32_t node : {0u, 1u}) {
    ASSERT_NE(waits.outcomes[node]->failure(), nullptr) << "node " << node;
    EXPECT_EQ(waits.outcomes[node]->failure()->message(), "rank 0 detached") << "node " << node;
  }
}

// Goal:   an end reaches the other nodes although the group is closed before the network has sent it. A group
//         that is opened again begins in the same epoch on all nodes.
// Method: node 2 ends an epoch of a group that the others have closed, and closes it at once. Then once more,
//         when node 0 knows more ends than a node stores for groups that it never had.
TEST_F(SpanningGroup, TellsOfAnEndThoughTheGroupIsClosedAtOnce) {
  constexpr std::uint64_t kMany = 5000;
  open(false);
  for (const std::uint64_t epoch : {1u, 2u}) {
    for (const std::uint32_t node : {0u, 1u}) communicators_[node] = nullptr;
    (*cluster_)[2].end({kGroup, epoch, Code::kPeerLost, 2, true, "rank 2 detached"});
    communicators_[2] = nullptr;
    for (const std::uint32_t node : {0u, 1u}) {
      std::vector<std::uint64_t> heard;
      const auto hear = [&](const EpochEnd& end) { heard.push_back(end.epoch); };
      ASSERT_TRUE(cluster_->until([&, turns = 0]() mutable {
        (*cluster_)[node].take_ended(hear);
        return !heard.empty() || ++turns > 10'000;
      }));
      EXPECT_THAT(heard, ::testing::ElementsAre(epoch)) << "node " << node;
    }
    communicators_ = cluster_->open(cluster_->span_of(kGroup, kRanks, by_turns));
    for (const auto& communicator : communicators_) EXPECT_EQ(communicator->first_epoch(), epoch + 1);
    for (std::uint64_t group = 1; group <= kMany; ++group)
      (*cluster_)[0].end({kGroup + group, 1, Code::kPeerLost, 0, true, "rank 0 detached"});
  }
}

// Goal:   a node that is lost ends what it takes part in, with its name, whether all had come or not; the
//         others go on with each other.
// Method: long sums, with the loss at another moment each time.
TEST_F(SpanningGroup, NamesANodeThatIsLost) {
  const auto moments = static_cast<int>(muster::test::property_cases(40));
  for (int moment = 0; moment < moments; ++moment) {
    MemoryHub hub(kLate);
    SpanCluster cluster(kNodes, networks_of(hub), true);
    const auto pair_of = [](std::uint32_t member, std::uint32_t) { return member; };  // nodes 0 and 1
    communicators_ = cluster.open(cluster.span_of(kGroup, kRanks, by_turns));
    auto others = cluster.open(cluster.span_of(kGroup + 1, 2, pair_of));
    const Shape shape = shape_of(MUSTER_ALL_REDUCE, MUSTER_F32, MUSTER_SUM, kRanks, 600'000, Place::kApart);
    const Case made = make_case(shape);
    std::vector<std::byte> arena = made.before;
    const auto shares = *shares_of(shape.collective, kRanks, made.members, arena.data());
    epoch_ = 1;
    number_ = 0;
    const SpanLaunch& launched =
        launch([&](std::uint32_t) -> const Collective& { return shape.collective; }, shares, next());
    ASSERT_TRUE(cluster.until([&, turns = 0]() mutable { return ++turns > moment; }));
    hub.lose(NodeIndex(2));
    ASSERT_TRUE(cluster.until([&] { return launched.over(); })) << "moment " << moment;
    for (const std::uint32_t node : {0u, 1u}) {
      const Status* const failure = launched.outcomes[node]->failure();
      if (failure == nullptr) continue;  // it had all that it needed
      EXPECT_EQ(failure->code(), Code::kPeerLost);
      EXPECT_THAT(failure->message(), ::testing::HasSubstr("n2"));
    }
    Collective barrier;
    barrier.op = MUSTER_BARRIER;
    const Share two[] = {*make_share(barrier, 0, 2, {}), *make_share(barrier, 1, 2, {})};
    const Signature signature = signature_of(barrier, two[0], 2);
    StepOutcome outcomes[2];
    for (std::uint32_t node = 0; node < 2; ++node) {
      const LocalMember member{&two[node], nullptr, {}, &signature};
      const MatchKey key{{kGroup + 1, 3, -1, -1}, 1, 1};
      ASSERT_TRUE(launch_once(*others[node], barrier, std::span(&member, 1), key, outcomes[node]).ok());
    }
    ASSERT_TRUE(cluster.until([&] { return outcomes[0].over() && outcomes[1].over(); }));
    EXPECT_EQ(outcomes[0].failure(), nullptr);
    EXPECT_EQ(outcomes[1].failure(), nullptr);
    communicators_.clear();
    launches_.clear();
  }
}

// Goal:   a node that was given up, and comes back, takes part again: started anew, or itself, when late
//         bytes of its former connection are still on their way. It learns which epochs have ended meanwhile.
// Method: a long sum that a loss breaks off, at another moment each time. Bytes of the former connection are
//         held back until the nodes have connected anew.
TEST_F(SpanningGroup, TakesBackANodeThatWasLost) {
  const auto moments = static_cast<int>(muster::test::property_cases(60));
  for (int moment = 0; moment < moments; ++moment) {
    const bool is_restarted = moment % 2 == 0;
    MemoryHub hub(kLate);
    cluster_ = std::make_unique<SpanCluster>(kNodes, networks_of(hub), true);
    SpanCluster& cluster = *cluster_;
    const Span span = cluster.span_of(kGroup, kRanks, by_turns);
    communicators_ = cluster.open(span);
    // Short messages stay on their way when their connection ends.
    const std::uint64_t count = moment % 4 < 2 ? 5'000 : 600'000;
    const Shape shape = shape_of(MUSTER_ALL_REDUCE, MUSTER_F32, MUSTER_SUM, kRanks, count, Place::kApart);
    const Case made = make_case(shape);
    const auto same = [&](std::uint32_t) -> const Collective& { return shape.collective; };
    std::vector<std::byte> arena = made.before;
    const auto shares = *shares_of(shape.collective, kRanks, made.members, arena.data());
    epoch_ = 1;
    number_ = 0;
    launch(same, shares, next());
    ASSERT_TRUE(cluster.until([&, turns = 0]() mutable { return ++turns > moment; }));
    const Status why(Code::kPeerLost, "nothing was heard of it");
    const auto lose = [&](std::uint32_t one, std::uint32_t other) {
      std::vector<std::uint32_t> lost;
      cluster[one].lose(NodeIndex(other), why);
      cluster[one].take_lost([&](const JobLinks::Lost& link) { lost.push_back(link.node.value); });
      ASSERT_THAT(lost, ::testing::ElementsAre(other));
      cluster[one].end({kGroup, 1, Code::kPeerLost, 2, true, "node n2 is lost"});
    };
    for (const std::uint32_t node : {0u, 1u}) hub.hold(NodeIndex(node), NodeIndex(2));
    for (const std::uint32_t node : {0u, 1u}) lose(node, 2);
    EXPECT_EQ(cluster[0].link(NodeIndex(2)).status.code(), Code::kPeerLost);
    for (const std::uint32_t node : {0u, 1u}) lose(2, node);
    ASSERT_TRUE(cluster.until([&] { return launches_.back().over(); }));
    if (is_restarted) {
      communicators_[2] = nullptr;
      cluster.restart(2, hub.open(NodeIndex(2)));
    }
    for (const std::uint32_t node : {0u, 1u}) cluster.connect(node, 2, 1);
    for (const std::uint32_t node : {0u, 1u}) hub.restore(NodeIndex(node), NodeIndex(2));
    for (const std::uint32_t node : {0u, 1u})
      ASSERT_TRUE(cluster.until([&] { return cluster.are_connected(node, 2); })) << moment;
    EXPECT_EQ(cluster[0].link(NodeIndex(2)).generation, 1u);
    if (is_restarted) {
      std::vector<std::uint64_t> ended;
      cluster[2].take_ended([&](const EpochEnd& end) { ended.push_back(end.epoch); });
      EXPECT_THAT(ended, ::testing::ElementsAre(1));
      Span there = span;
      there.here = 2;
      communicators_[2] = cluster.open_on(2, there);
      EXPECT_EQ(communicators_[2]->first_epoch(), 2u);
    }
    // Other numbers, so that late bytes of the first operation would show.
    const Shape next_shape =
        shape_of(MUSTER_ALL_REDUCE, MUSTER_I32, MUSTER_SUM, kRanks, count, Place::kApart);
    const Case other = make_case(next_shape);
    std::vector<std::byte> later = other.before;
    const auto later_shares = *shares_of(next_shape.collective, kRanks, other.members, later.data());
    epoch_ = 2;
    number_ = 0;
    const SpanLaunch& again = launch(
        [&](std::uint32_t) -> const Collective& { return next_shape.collective; }, later_shares, next());
    ASSERT_TRUE(cluster.until([&] { return again.over(); })) << moment;
    ASSERT_TRUE(again.first_failure().ok()) << moment << ": " << again.first_failure().text();
    ASSERT_TRUE(later == other.after) << moment;
    communicators_.clear();
    cluster_ = nullptr;
    launches_.clear();
  }
}

// Goal:   a node of which nothing is wanted is heard of all the same; and a call that fails says so.
TEST_F(SpanningGroup, HearsThatANodeLives) {
  open(true);
  SpanCluster& cluster = *cluster_;
  const Instant before = cluster[0].link(NodeIndex(1)).heard_at;
  ASSERT_TRUE(cluster.until([&] {
    cluster[1].stay_alive();
    return cluster[0].link(NodeIndex(1)).heard_at > before;
  }));
  EXPECT_EQ(cluster[0].connect(NodeIndex(0), {}, 1).code(), Code::kBadArgument) << "itself";
  EXPECT_EQ(cluster[0].connect(NodeIndex(9), {}, 1).code(), Code::kBadArgument);
  const std::uint32_t former = cluster[0].link(NodeIndex(1)).generation;
  EXPECT_FALSE(cluster[0].connect(NodeIndex(1), {}, former + 1).ok()) << "no address";
  std::vector<std::uint32_t> lost;
  cluster[0].take_lost([&](const JobLinks::Lost& link) { lost.push_back(link.generation); });
  EXPECT_EQ(lost, std::vector{former}) << "of the connection that was, not of the one that could not be";
}

}  // namespace
}  // namespace muster::transport::test
