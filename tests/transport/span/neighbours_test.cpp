// An exchange between nodes asks neighbours alone: the nodes with which a node's members share a face. Each
// pair of nodes agrees by itself.
#include "tests/transport/conformance_rows.hpp"
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

constexpr std::uint64_t kRingGroup = 7;
constexpr std::uint32_t kRing = 4;  // nodes, with a member each
// Elements of f32 of a face: it goes with the request, through staging, and from and to members.
constexpr std::uint64_t kFaces[] = {2, 10'000, 200'000};

std::uint32_t alone(std::uint32_t member, std::uint32_t) {
  return member;
}

class Neighbours : public ::testing::TestWithParam<std::uint64_t> {
 protected:
  Neighbours() {
    const NetworkOpener networks = [this](std::uint32_t count) {
      std::vector<std::unique_ptr<Network>> all;
      for (std::uint32_t i = 0; i < count; ++i) all.push_back(hub_.open(NodeIndex(i)));
      return all;
    };
    cluster_ = std::make_unique<SpanCluster>(kRing, networks, false);
    communicators_ = cluster_->open(cluster_->span_of(kRingGroup, kRing, alone));
  }
  // Each node sends a face to the next one, and one to the one before it.
  static Shape ring() {
    Shape shape = shape_of(MUSTER_EXCHANGE, MUSTER_F32, 0, kRing, GetParam(), Place::kApart);
    shape.edges.clear();
    for (std::int32_t from = 0; from < static_cast<std::int32_t>(kRing); ++from)
      for (const std::int32_t step : {1, 3})
        shape.edges.push_back({from, (from + step) % static_cast<std::int32_t>(kRing),
                               static_cast<std::uint32_t>(step), GetParam()});
    return shape;
  }
  SpanFlight& launch(const Shape& shape) {
    SpanFlight& flight = flights_.emplace_back();
    launch_on_all(flight, shape, alone, communicators_, {{kRingGroup, 3, -1, -1}, 1, ++number_});
    return flight;
  }
  // The nodes come to one operation, but node `other` means something else by it.
  SpanFlight& launch(const Shape& shape, const Shape& others, std::uint32_t other) {
    SpanFlight& flight = flights_.emplace_back();
    SpanFlight& theirs = flights_.emplace_back();
    const MatchKey key{{kRingGroup, 3, -1, -1}, 1, ++number_};
    const Spread all_but = [other](std::uint32_t member, std::uint32_t) {
      return member == other ? kRing : member;
    };
    const Spread only = [other](std::uint32_t member, std::uint32_t) {
      return member == other ? member : kRing;
    };
    launch_on_all(flight, shape, all_but, communicators_, key);
    launch_on_all(theirs, others, only, communicators_, key);
    flight.launched.outcomes[other] = std::move(theirs.launched.outcomes[other]);
    return flight;
  }
  const Status* failure_at(const SpanFlight& flight, std::uint32_t node) const {
    return flight.launched.outcomes[node]->failure();
  }
  // Ends the epoch on that node; the others are told.
  void end_epoch_at(std::uint32_t node) {
    (*cluster_)[node].end({kRingGroup, 1, Code::kAborted, -1, false, "it is over"});
  }
  bool nothing_is_kept() const {
    return std::ranges::all_of(communicators_, [](const auto& each) { return each->traffic().kept == 0; });
  }

  bool nothing_is_left() {
    for (std::uint32_t one = 0; one < kRing; ++one)
      for (std::uint32_t other = 0; other < kRing; ++other)
        if (one != other && hub_.unmatched(NodeIndex(one), NodeIndex(other)).messages > 0) return false;
    return true;
  }

  MemoryHub hub_{{.seed = 5, .delay_percent = 30, .late_percent = 20}};
  std::unique_ptr<SpanCluster> cluster_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::deque<SpanFlight> flights_;
  std::uint64_t number_ = 0;
};
INSTANTIATE_TEST_SUITE_P(Faces, Neighbours, ::testing::ValuesIn(kFaces));

// Goal:   a halo of four nodes in a ring sends nothing to the node opposite.
// Method: nothing passes between nodes opposite to each other.
TEST_P(Neighbours, AreAskedAlone) {
  hub_.hold(NodeIndex(0), NodeIndex(2));
  hub_.hold(NodeIndex(1), NodeIndex(3));
  for (int i = 0; i < 3; ++i) {
    SpanFlight& flight = launch(ring());
    ASSERT_TRUE(cluster_->until([&] { return flight.over(); }));
    EXPECT_TRUE(flight.launched.first_failure().ok()) << flight.launched.first_failure().text();
    EXPECT_TRUE(flight.is_right_where_ok(alone));
  }
  EXPECT_TRUE(cluster_->until([&] { return nothing_is_kept(); }));
  for (const auto& each : communicators_)
    EXPECT_EQ(each->traffic().sent_bytes, 3 * 2 * GetParam() * sizeof(float)) << "once to each neighbour";
}

// Goal:   two nodes that disagree on a face both hear of it, and nothing of it stays behind at the others,
//         which may have agreed with them already.
// Method: node 1 expects a longer face of node 0 than that sends. Then the epoch ends.
TEST_P(Neighbours, HearThatTheyDisagree) {
  Shape other = ring();
  for (Edge& edge : other.edges)
    if (edge.from == 0 && edge.to == 1) ++edge.count;
  SpanFlight& flight = launch(ring(), other, 1);
  ASSERT_TRUE(cluster_->until(
      [&] { return flight.launched.outcomes[0]->over() && flight.launched.outcomes[1]->over(); }));
  for (const std::uint32_t node : {0u, 1u}) {
    ASSERT_NE(failure_at(flight, node), nullptr) << "node " << node;
    EXPECT_EQ(failure_at(flight, node)->code(), Code::kMismatch);
    EXPECT_THAT(failure_at(flight, node)->message(), ::testing::HasSubstr("exchange"));
  }
  end_epoch_at(0);
  EXPECT_TRUE(cluster_->until([&] { return flight.over() && nothing_is_kept() && nothing_is_left(); }));
}

// Goal:   a node that another expects, and that expects nobody, goes on. The others are told so, whether it
//         comes to the exchange before them or after them, and nothing is left behind.
// Method: node 2 is in no edge as it sees it; its neighbours expect it. Then node 3 has one with node 2 that
//         node 2, which waits for node 1 meanwhile, does not have.
TEST_P(Neighbours, HearThatANodeDoesNotExpectThem) {
  Shape none = ring();
  std::erase_if(none.edges, [](const Edge& edge) { return edge.from == 2 || edge.to == 2; });
  SpanFlight& flight = launch(ring(), none, 2);
  ASSERT_TRUE(cluster_->until([&] { return flight.over(); }));
  EXPECT_EQ(failure_at(flight, 2), nullptr);
  for (const std::uint32_t node : {1u, 3u}) {
    ASSERT_NE(failure_at(flight, node), nullptr);
    EXPECT_EQ(failure_at(flight, node)->code(), Code::kMismatch);
    EXPECT_THAT(failure_at(flight, node)->message(), ::testing::HasSubstr("faces"));
  }
  end_epoch_at(1);
  EXPECT_TRUE(cluster_->until([&] { return nothing_is_kept() && nothing_is_left(); }));
}
TEST_P(Neighbours, HearFromANodeThatWaitsForOthers) {
  Shape fewer = ring();
  std::erase_if(fewer.edges, [](const Edge& edge) { return edge.from + edge.to == 5; });
  hub_.hold(NodeIndex(1), NodeIndex(2));
  SpanFlight& flight = launch(ring(), fewer, 2);
  ASSERT_TRUE(cluster_->until([&] { return flight.launched.outcomes[3]->over(); }));
  ASSERT_NE(failure_at(flight, 3), nullptr);
  EXPECT_EQ(failure_at(flight, 3)->code(), Code::kMismatch);
  EXPECT_FALSE(flight.launched.outcomes[2]->over());
  hub_.restore(NodeIndex(1), NodeIndex(2));
  end_epoch_at(3);
  EXPECT_TRUE(cluster_->until([&] { return flight.over() && nothing_is_kept() && nothing_is_left(); }));
}

// Goal:   faces between members of one node are compared too, and the node without a face goes on.
// Method: members 0 and 1 are on node 0, and mean another length.
TEST_P(Neighbours, CompareWhatStaysOnTheNode) {
  const Spread two_on_one = [](std::uint32_t member, std::uint32_t) { return member / 2; };
  const auto communicators = cluster_->open(cluster_->span_of(kRingGroup + 1, kRing, two_on_one));
  const auto edge_of = [](std::uint64_t count) {
    Shape shape = shape_of(MUSTER_EXCHANGE, MUSTER_F32, 0, kRing, count, Place::kApart);
    shape.edges = {{0, 1, 0, count}};
    return shape;
  };
  const Shape sent = edge_of(GetParam()), expected = edge_of(GetParam() + 1);
  const Case sends = make_case(sent), expects = make_case(expected);
  std::vector<std::byte> arena = sends.before, other = expects.before;
  std::vector<Share> shares = *shares_of(sent.collective, kRing, sends.members, arena.data());
  shares[1] = (*shares_of(expected.collective, kRing, expects.members, other.data()))[1];
  std::vector<Signature> signatures;
  for (const Share& share : shares) signatures.push_back(signature_of(sent.collective, share, kRing));
  StepOutcome outcomes[2];
  for (const std::uint32_t node : {0u, 1u}) {
    std::vector<LocalMember> members;
    for (const std::uint32_t member : {2 * node, 2 * node + 1})
      members.push_back({&shares[member], nullptr, bases_of(shares[member]), &signatures[member]});
    ASSERT_TRUE(launch_once(*communicators[node], sent.collective, members,
                            {{kRingGroup + 1, 3, -1, -1}, 1, 1}, outcomes[node])
                    .ok());
  }
  ASSERT_TRUE(cluster_->until([&] { return outcomes[0].over() && outcomes[1].over(); }));
  ASSERT_NE(outcomes[0].failure(), nullptr);
  EXPECT_EQ(outcomes[0].failure()->code(), Code::kMismatch);
  EXPECT_EQ(outcomes[1].failure(), nullptr);
}

}  // namespace
}  // namespace muster::transport::test
