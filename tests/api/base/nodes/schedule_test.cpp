// Every schedule, carried out on sets of contributions: each node's contributions to each slice.
#include "api/base/nodes/choice.hpp"

#include <algorithm>
#include <bitset>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::span {
namespace {

constexpr std::size_t kNodesMax = 40;
using Set = std::bitset<kNodesMax>;  // nodes whose contributions are in a value

// The state of a node: for each slice, the contributions in the node's value.
struct Node {
  std::vector<Set> slices;
};

// Runs the schedules of all nodes in step. A message without its receive, two contributions of one node in a
// value, or more than one message between two nodes in a round fails the test.
class Simulation {
 public:
  using Make = std::function<Schedule(std::uint32_t here)>;
  Simulation(std::uint32_t nodes, const Make& make) : nodes_(nodes) {
    for (std::uint32_t here = 0; here < nodes_.size(); ++here) schedules_.push_back(make(here));
  }
  std::vector<Node>& nodes() { return nodes_; }
  // Slices that were sent, over all nodes.
  std::size_t sent() const { return sent_; }
  std::size_t rounds() const { return schedules_.front().size(); }

  void run() {
    for (std::size_t r = 0; r < rounds(); ++r) round(r);
  }

 private:
  void round(std::size_t r) {
    const std::vector<Node> before = nodes_;
    for (std::uint32_t here = 0; here < nodes_.size(); ++here) {
      ASSERT_EQ(schedules_[here].size(), rounds());
      const Round& mine = schedules_[here][r];
      std::size_t matched = 0;
      for (const Round::Move& receive : mine.receives) {
        ASSERT_NE(receive.peer, here);
        const auto& sends = schedules_[receive.peer][r].sends;
        ASSERT_EQ(
            std::count_if(sends.begin(), sends.end(), [&](const Round::Move& m) { return m.peer == here; }),
            1);
        const auto send =
            std::find_if(sends.begin(), sends.end(), [&](const Round::Move& m) { return m.peer == here; });
        ASSERT_EQ(send->first, receive.first);
        ASSERT_EQ(send->last, receive.last);
        ASSERT_EQ(send->result, receive.result);
        ++matched;
        for (std::uint32_t slice = receive.first; slice < receive.last; ++slice) {
          const Set& came = before[receive.peer].slices[slice];
          Set& own = nodes_[here].slices[slice];
          if (receive.result) {
            own = came;
          } else {
            ASSERT_TRUE((own & came).none()) << "a contribution is folded twice";
            own |= came;
          }
        }
        sent_ += receive.last - receive.first;
      }
      std::size_t towards = 0;
      for (const Schedule& other : schedules_)
        towards +=
            static_cast<std::size_t>(std::count_if(other[r].sends.begin(), other[r].sends.end(),
                                                   [&](const Round::Move& m) { return m.peer == here; }));
      ASSERT_EQ(towards, matched) << "a message that nobody receives";
    }
  }

  std::vector<Node> nodes_;
  std::vector<Schedule> schedules_;
  std::size_t sent_ = 0;
};

Set all_of(std::uint32_t nodes) {
  Set set;
  for (std::uint32_t i = 0; i < nodes; ++i) set.set(i);
  return set;
}
Set one(std::uint32_t node) {
  return Set().set(node);
}

constexpr NodeAlgorithm kAll[] = {NodeAlgorithm::kDirect,       NodeAlgorithm::kGatherAndFold,
                                  NodeAlgorithm::kRing,         NodeAlgorithm::kRecursiveDoubling,
                                  NodeAlgorithm::kRabenseifner, NodeAlgorithm::kBinomial};

// Runs the algorithm for every number of nodes and root. `begin(node, slice)`: what it holds at first.
void each(muster_op op, NodeAlgorithm algorithm,
          const std::function<Set(std::uint32_t nodes, std::uint32_t root, std::uint32_t node,
                                  std::uint32_t slice)>& begin,
          const std::function<void(Simulation&, std::uint32_t nodes, std::uint32_t root)>& check) {
  for (std::uint32_t nodes = 2; nodes <= 33; ++nodes)
    for (const std::uint32_t root : {0u, nodes / 2, nodes - 1}) {
      Simulation simulation(
          nodes, [&](std::uint32_t here) { return schedule_of(op, algorithm, nodes, here, root); });
      for (std::uint32_t node = 0; node < nodes; ++node)
        for (std::uint32_t slice = 0; slice < nodes; ++slice)
          simulation.nodes()[node].slices.push_back(begin(nodes, root, node, slice));
      SCOPED_TRACE(std::string(name_of(algorithm)) + ", " + std::to_string(nodes) + " nodes, root " +
                   std::to_string(root));
      simulation.run();
      if (testing::Test::HasFatalFailure()) return;
      check(simulation, nodes, root);
    }
}

Set own_contribution(std::uint32_t, std::uint32_t, std::uint32_t node, std::uint32_t) {
  return one(node);
}

TEST(Schedules, ReduceEverythingEverywhere) {
  for (const NodeAlgorithm algorithm : kAll)
    each(MUSTER_ALL_REDUCE, algorithm, own_contribution,
         [](Simulation& s, std::uint32_t nodes, std::uint32_t) {
           for (const Node& node : s.nodes())
             for (const Set& slice : node.slices) ASSERT_EQ(slice, all_of(nodes));
         });
}

TEST(Schedules, ReduceEachSliceWhereItBelongs) {
  for (const NodeAlgorithm algorithm : {NodeAlgorithm::kDirect, NodeAlgorithm::kRing})
    each(MUSTER_REDUCE_SCATTER, algorithm, own_contribution,
         [](Simulation& s, std::uint32_t nodes, std::uint32_t) {
           for (std::uint32_t node = 0; node < nodes; ++node)
             ASSERT_EQ(s.nodes()[node].slices[node], all_of(nodes));
           ASSERT_EQ(s.sent(), nodes * (nodes - 1)) << "the lower bound";
         });
}

TEST(Schedules, GatherEachSliceEverywhere) {
  const auto own_slice = [](std::uint32_t, std::uint32_t, std::uint32_t node, std::uint32_t slice) {
    return node == slice ? one(node) : Set();
  };
  for (const NodeAlgorithm algorithm : {NodeAlgorithm::kDirect, NodeAlgorithm::kRing})
    each(MUSTER_ALL_GATHER, algorithm, own_slice, [](Simulation& s, std::uint32_t nodes, std::uint32_t) {
      for (const Node& node : s.nodes())
        for (std::uint32_t slice = 0; slice < nodes; ++slice) ASSERT_EQ(node.slices[slice], one(slice));
      ASSERT_EQ(s.sent(), nodes * (nodes - 1)) << "the lower bound";
    });
}

TEST(Schedules, ReduceAtTheRootAndBroadcastFromIt) {
  const auto at_root = [](std::uint32_t, std::uint32_t root, std::uint32_t node, std::uint32_t) {
    return node == root ? one(root) : Set();
  };
  for (const NodeAlgorithm algorithm : {NodeAlgorithm::kDirect, NodeAlgorithm::kBinomial}) {
    each(MUSTER_REDUCE, algorithm, own_contribution,
         [](Simulation& s, std::uint32_t nodes, std::uint32_t root) {
           for (const Set& slice : s.nodes()[root].slices) ASSERT_EQ(slice, all_of(nodes));
         });
    each(MUSTER_BROADCAST, algorithm, at_root, [](Simulation& s, std::uint32_t nodes, std::uint32_t root) {
      for (const Node& node : s.nodes())
        for (const Set& slice : node.slices) ASSERT_EQ(slice, one(root));
      ASSERT_EQ(s.sent(), nodes * (nodes - 1)) << "the lower bound";
    });
  }
}

// Goal:   Rabenseifner and the ring move no more than 2 (n - 1) rows in all where n is a power of two, and
//         need as many rounds as they promise.
TEST(Schedules, MoveNoMoreThanTheyMust) {
  for (const std::uint32_t nodes : {2u, 4u, 8u, 16u, 32u})
    for (const NodeAlgorithm algorithm :
         {NodeAlgorithm::kDirect, NodeAlgorithm::kRing, NodeAlgorithm::kRabenseifner}) {
      Simulation s(nodes, [&](std::uint32_t here) {
        return schedule_of(MUSTER_ALL_REDUCE, algorithm, nodes, here, 0);
      });
      for (std::uint32_t node = 0; node < nodes; ++node) s.nodes()[node].slices.assign(nodes, one(node));
      s.run();
      EXPECT_EQ(s.sent(), 2 * nodes * (nodes - 1)) << name_of(algorithm);
      const std::size_t rounds = algorithm == NodeAlgorithm::kDirect ? 2
                                 : algorithm == NodeAlgorithm::kRing
                                     ? 2 * (nodes - 1)
                                     : 2 * static_cast<std::size_t>(std::countr_zero(nodes));
      EXPECT_EQ(s.rounds(), rounds) << name_of(algorithm);
    }
}

// Goal:   short rows take few rounds, long ones few bytes, and many nodes few messages.
TEST(Choice, FollowsTheEstimate) {
  const auto chosen = [](std::uint32_t nodes, std::uint64_t elements, std::uint32_t rows) {
    Collective c;
    c.op = MUSTER_ALL_REDUCE;
    c.dtype = MUSTER_F32;
    c.count = elements;
    Span span;
    span.nodes.clear();
    for (std::uint32_t i = 0; i < nodes; ++i) {
      span.nodes.emplace_back(i);
      span.node_of.push_back(i);
    }
    return choose_algorithm(c.op, NodeRow(c, span).chunk(0, 1), rows, 4, 0, {});
  };
  EXPECT_EQ(chosen(2, 2, 0), NodeAlgorithm::kGatherAndFold);
  EXPECT_EQ(chosen(4, 16, 0), NodeAlgorithm::kGatherAndFold);
  EXPECT_EQ(chosen(4, 1 << 20, 0), NodeAlgorithm::kDirect);
  EXPECT_EQ(chosen(32, 2, 0), NodeAlgorithm::kRecursiveDoubling);
  EXPECT_EQ(chosen(32, 1 << 16, 0), NodeAlgorithm::kRabenseifner);
  EXPECT_EQ(chosen(32, 1 << 20, 2), NodeAlgorithm::kDirect) << "contributions that travel apart take no tree";
}

}  // namespace
}  // namespace muster::transport::span
