// The duties of all JobLinks, and of the communicators on them when an epoch ends or a node is lost. A
// transport instantiates the suite with clusters of its own:
//
//   INSTANTIATE_TEST_SUITE_P(Memory, JobLinksConformance, ::testing::Values(ClusterFactory{"job", …}),
//   cluster_name);
#pragma once

#include "tests/transport/span/span_cluster.hpp"
#include "tests/transport/span/span_flight.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::transport::test {

// A cluster of three nodes that are connected in generation 0. `restart(node)` starts the engine of a node
// anew.
struct LinkedNodes {
  std::unique_ptr<SpanCluster> cluster;
  std::function<void(std::uint32_t node)> restart;
};
struct ClusterFactory {
  std::string name;
  std::function<LinkedNodes()> make;
};
inline std::string cluster_name(const ::testing::TestParamInfo<ClusterFactory>& info) {
  return info.param.name;
}

class JobLinksConformance : public ::testing::TestWithParam<ClusterFactory> {
 protected:
  static constexpr std::uint64_t kGroup = 5;
  static constexpr std::int32_t kRanks = 3;
  struct Said {
    std::uint32_t from = 0, generation = 0;
    std::string text;
    friend bool operator==(const Said&, const Said&) = default;
  };

  JobLinksConformance() : nodes_(GetParam().make()) {}
  SpanCluster& cluster() { return *nodes_.cluster; }
  static std::uint32_t own(std::uint32_t member, std::uint32_t) { return member; }
  void open_group() { communicators_ = cluster().open(cluster().span_of(kGroup, kRanks, own)); }

  void tell(std::uint32_t from, std::uint32_t to, const std::string& text) {
    cluster()[from].tell(NodeIndex(to), std::as_bytes(std::span(text)));
  }
  std::vector<Said> take(std::uint32_t node) {
    std::vector<Said> said;
    cluster()[node].take_messages(
        [&](NodeIndex from, std::uint32_t generation, std::span<const std::byte> bytes) {
          said.push_back({from.value, generation,
                          std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size())});
        });
    return said;
  }
  std::vector<Said> await_messages(std::uint32_t node, std::size_t count) {
    std::vector<Said> all;
    EXPECT_TRUE(cluster().until([&] {
      for (Said& each : take(node)) all.push_back(std::move(each));
      return all.size() >= count;
    }));
    return all;
  }
  std::vector<std::uint32_t> take_lost(std::uint32_t node) {
    std::vector<std::uint32_t> lost;
    cluster()[node].take_lost([&](const JobLinks::Lost& link) { lost.push_back(link.node.value); });
    return lost;
  }
  std::vector<std::uint64_t> take_ended(std::uint32_t node) {
    std::vector<std::uint64_t> epochs;
    cluster()[node].take_ended([&](const EpochEnd& end) { epochs.push_back(end.epoch); });
    return epochs;
  }
  static EpochEnd end_of(std::uint64_t epoch) {
    return {kGroup, epoch, Code::kTimeout, 2, false, "rank 2 sleeps"};
  }

  // A sum over all ranks, launched on the nodes that are named.
  SpanLaunch& sum(std::uint64_t epoch, std::uint64_t number, std::vector<std::uint32_t> on = {0, 1, 2}) {
    SpanFlight& flight = flights_.emplace_back();
    const Shape shape = shape_of(MUSTER_ALL_REDUCE, MUSTER_I32, MUSTER_SUM, kRanks, 40, Place::kApart);
    flight.shape = shape;
    flight.made = make_case(shape);
    flight.arena = flight.made.before;
    flight.shares = *shares_of(shape.collective, kRanks, flight.made.members, flight.arena.data());
    flight.launched.outcomes.resize(kRanks);
    for (const std::uint32_t node : on) {
      const Collective& meant = flight.launched.collectives.emplace_back(shape.collective);
      const Share& share = flight.shares[node];
      flight.launched.signatures.push_back(signature_of(meant, share, kRanks));
      const LocalMember member{&share, nullptr, bases_of(share), &flight.launched.signatures.back()};
      flight.launched.outcomes[node] = std::make_unique<StepOutcome>();
      const MatchKey key{{kGroup, 0, -1, -1}, epoch, number};
      EXPECT_TRUE(launch_once(*communicators_[node], meant, std::span(&member, 1), key,
                              *flight.launched.outcomes[node])
                      .ok());
    }
    return flight.launched;
  }
  bool is_right() const { return flights_.back().arena == flights_.back().made.after; }
  bool over(const SpanLaunch& launch) {
    return cluster().until([&] { return launch.over(); });
  }

  LinkedNodes nodes_;
  std::deque<SpanFlight> flights_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
};

TEST_P(JobLinksConformance, BringsMessagesInOrderWithSenderAndGeneration) {
  const std::string longest(JobLinks::kMessageMax, 'x');
  for (const char* text : {"one", "two", ""}) tell(0, 1, text);
  tell(0, 1, longest);
  tell(0, 2, "to another");
  const std::vector<Said> expected{{0, 0, "one"}, {0, 0, "two"}, {0, 0, ""}, {0, 0, longest}};
  EXPECT_EQ(await_messages(1, 4), expected);
  EXPECT_EQ(await_messages(2, 1), (std::vector<Said>{{0, 0, "to another"}}));
  EXPECT_TRUE(take(1).empty()) << "each message comes once";
}

TEST_P(JobLinksConformance, RefusesAConnectionThatCannotBe) {
  EXPECT_EQ(cluster()[0].connect(NodeIndex(0), {}, 1).code(), Code::kBadArgument) << "itself";
  EXPECT_EQ(cluster()[0].connect(NodeIndex(9), {}, 1).code(), Code::kBadArgument);
  EXPECT_FALSE(cluster()[0].connect(NodeIndex(1), {}, 1).ok()) << "no address";
  EXPECT_EQ(take_lost(0), std::vector<std::uint32_t>{1}) << "the connection that was";
}

// Goal:   a connection that both nodes give up is reported once; nothing passes until they connect anew, and
//         nothing of the former connection comes after that.
TEST_P(JobLinksConformance, ReportsALossOnceAndConnectsAnew) {
  cluster()[0].lose(NodeIndex(1), Status(Code::kPeerLost, "nothing was heard of it"));
  EXPECT_THAT(cluster()[0].link(NodeIndex(1)).status.message(),
              ::testing::HasSubstr("nothing was heard of it"));
  EXPECT_EQ(take_lost(0), std::vector<std::uint32_t>{1});
  tell(0, 1, "into nothing");
  cluster()[1].lose(NodeIndex(0), Status(Code::kPeerLost, "it is silent"));
  EXPECT_FALSE(take_lost(1).empty());
  EXPECT_TRUE(take_lost(0).empty());
  EXPECT_EQ(cluster()[1].link(NodeIndex(0)).status.code(), Code::kPeerLost);
  EXPECT_TRUE(cluster().are_connected(0, 2)) << "the others stay";
  EXPECT_TRUE(take(1).empty());
  cluster().connect(0, 1, 1);
  ASSERT_TRUE(cluster().until([&] { return cluster().are_connected(0, 1); }));
  EXPECT_EQ(cluster()[0].link(NodeIndex(1)).generation, 1u);
  tell(0, 1, "again");
  EXPECT_EQ(await_messages(1, 1), (std::vector<Said>{{0, 1, "again"}}));
}

TEST_P(JobLinksConformance, CarriesSumsAndSaysThatTheirEpochIsInUse) {
  open_group();
  for (std::uint32_t node = 0; node < 3; ++node) EXPECT_FALSE(cluster()[node].in_use(kGroup));
  const SpanLaunch& launched = sum(1, 1);
  ASSERT_TRUE(over(launched));
  EXPECT_TRUE(launched.first_failure().ok()) << launched.first_failure().text();
  EXPECT_TRUE(is_right());
  for (std::uint32_t node = 0; node < 3; ++node) {
    ASSERT_TRUE(cluster().until([&] { return cluster()[node].in_use(kGroup); })) << node;
    cluster()[node].end(end_of(1));
    EXPECT_FALSE(cluster()[node].in_use(kGroup)) << "the present epoch is a new one";
  }
}

// Goal:   an epoch ends at all nodes, once, with what had not met all; messages that were sent later come
//         later. The next epoch works.
TEST_P(JobLinksConformance, EndsAnEpochEverywhere) {
  open_group();
  const SpanLaunch& waits = sum(1, 1, {0, 1});
  EXPECT_TRUE(cluster().until([&] {
    return communicators_[0]->awaited(*waits.outcomes[0]) == std::vector<std::uint32_t>{2};
  })) << "it says for whom it waits";
  cluster()[2].end(end_of(1));
  tell(2, 0, "later");
  ASSERT_TRUE(over(waits));
  for (const std::uint32_t node : {0u, 1u}) {
    ASSERT_NE(waits.outcomes[node]->failure(), nullptr) << node;
    EXPECT_EQ(waits.outcomes[node]->failure()->code(), Code::kTimeout);
    EXPECT_EQ(waits.outcomes[node]->failure()->message(), "rank 2 sleeps");
  }
  std::vector<std::uint64_t> ended;
  std::vector<Said> said;
  ASSERT_TRUE(cluster().until([&] {
    said = take(0);
    return !said.empty();
  }));
  EXPECT_EQ(take_ended(0), std::vector<std::uint64_t>{1}) << "no message overtakes an end";
  ASSERT_TRUE(cluster().until([&] { return !(ended = take_ended(1)).empty(); }));
  EXPECT_EQ(ended, std::vector<std::uint64_t>{1});
  EXPECT_TRUE(take_ended(2).empty()) << "it has ended the epoch itself";
  const SpanLaunch& late = sum(1, 2, {1});
  ASSERT_TRUE(over(late));
  EXPECT_NE(late.outcomes[1]->failure(), nullptr) << "of an epoch that is over";
  const SpanLaunch& next = sum(2, 1);
  ASSERT_TRUE(over(next));
  EXPECT_TRUE(next.first_failure().ok()) << next.first_failure().text();
  EXPECT_TRUE(is_right());
}

// Goal:   what a lost node takes part in fails with its name, and the others go on with each other.
TEST_P(JobLinksConformance, FailsWhatALostNodeTakesPartIn) {
  open_group();
  const SpanLaunch& waits = sum(1, 1, {0, 1});
  for (const std::uint32_t node : {0u, 1u})
    cluster()[node].lose(NodeIndex(2), Status(Code::kPeerLost, "node n2 is gone"));
  ASSERT_TRUE(over(waits));
  for (const std::uint32_t node : {0u, 1u}) {
    ASSERT_NE(waits.outcomes[node]->failure(), nullptr) << node;
    EXPECT_EQ(waits.outcomes[node]->failure()->code(), Code::kPeerLost);
  }
  tell(0, 1, "still here");
  EXPECT_EQ(await_messages(1, 1), (std::vector<Said>{{0, 0, "still here"}}));
}

// Goal:   an engine that was started again learns which epochs have ended, before it counts as connected.
TEST_P(JobLinksConformance, TellsANewEngineWhatHasEnded) {
  open_group();
  cluster()[0].end(end_of(1));
  ASSERT_TRUE(cluster().until([&] { return !take_ended(1).empty(); }));
  communicators_[2] = nullptr;
  nodes_.restart(2);
  for (const std::uint32_t node : {0u, 1u}) {
    cluster().connect(node, 2, 1);
    ASSERT_TRUE(cluster().until([&] { return cluster().are_connected(node, 2); }));
  }
  EXPECT_EQ(take_ended(2), std::vector<std::uint64_t>{1});
  Span span = cluster().span_of(kGroup, kRanks, own);
  span.here = 2;
  communicators_[2] = cluster().open_on(2, span);
  EXPECT_EQ(communicators_[2]->first_epoch(), 2u);
  const SpanLaunch& next = sum(2, 1);
  ASSERT_TRUE(over(next));
  EXPECT_TRUE(next.first_failure().ok()) << next.first_failure().text();
  EXPECT_TRUE(is_right());
}

TEST_P(JobLinksConformance, EndsACancelledLaunch) {
  open_group();
  const SpanLaunch& waits = sum(1, 1, {0});
  ASSERT_TRUE(cluster().until([turns = 0]() mutable { return ++turns > 100; })) << "the others hear of it";
  communicators_[0]->cancel(*waits.outcomes[0]);
  ASSERT_TRUE(over(waits));
  EXPECT_NE(waits.outcomes[0]->failure(), nullptr);
  const SpanLaunch& comes_too_late = sum(1, 1, {1, 2});
  ASSERT_TRUE(over(comes_too_late)) << "the others hear that it is refused";
  EXPECT_NE(comes_too_late.outcomes[1]->failure(), nullptr);
}

}  // namespace muster::transport::test
