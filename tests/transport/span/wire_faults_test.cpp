// A message between engines that was damaged, repeated or delayed on the way reaches no member.
//
// Heads, and short contributions in them, have a checksum. So have chunks of longer contributions, except
// chunks that move from and to the memory of members: the library and the link must find damage to these.
#include "transport/span/wire.hpp"

#include "tests/support/property_cases.hpp"
#include "tests/transport/conformance_rows.hpp"
#include "tests/transport/memory_network.hpp"
#include "tests/transport/oracle.hpp"
#include "tests/transport/span/meddling_network.hpp"
#include "tests/transport/span/span_cluster.hpp"
#include "tests/transport/span/span_flight.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::transport::test {
namespace {

constexpr std::uint32_t kNodesOfWire = 3;
constexpr std::uint32_t kRanksOfWire = 5;
constexpr std::uint64_t kGroupOfWire = 7;

std::uint32_t wire_turns(std::uint32_t member, std::uint32_t) {
  return member % kNodesOfWire;
}

// Three nodes whose messages a test may meddle with, and a group of five members on them.
class WireFaults : public ::testing::Test {
 protected:
  void begin(std::uint64_t seed) {
    end();
    hub_ = std::make_unique<MemoryHub>(MemoryFaults{.seed = seed, .delay_percent = 30, .late_percent = 20});
    networks_.clear();
    const NetworkOpener networks = [this](std::uint32_t count) {
      std::vector<std::unique_ptr<Network>> all;
      for (std::uint32_t n = 0; n < count; ++n) {
        const auto meddle = [this](MessageOnItsWay& head) {
          if (meddler_) meddler_(head);
        };
        auto made = std::make_unique<MeddlingNetwork>(hub_->open(NodeIndex(n)), NodeIndex(n), meddle);
        networks_.push_back(made.get());
        all.push_back(std::move(made));
      }
      return all;
    };
    cluster_ = std::make_unique<SpanCluster>(kNodesOfWire, networks, true);
    communicators_ = cluster_->open(cluster_->span_of(kGroupOfWire, kRanksOfWire, wire_turns));
  }
  void end() {
    meddler_ = nullptr;
    communicators_.clear();
    cluster_ = nullptr;
    launches_.clear();
  }
  void TearDown() override { end(); }

  static Shape drawn(Random& random) {
    const bool is_long = random.below(4) == 0;
    const std::uint64_t count = is_long ? 3'000 + random.below(10'000) : 1 + random.below(300);
    const muster_op ops[] = {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_ALL_TO_ALL, MUSTER_BROADCAST};
    const muster_op op = ops[random.below(4)];
    return shape_of(op, MUSTER_I32, has_reduction(op) ? MUSTER_SUM : 0, kRanksOfWire, count, Place::kApart);
  }
  SpanFlight& launch(const Shape& shape, std::uint64_t epoch, std::uint64_t number) {
    SpanFlight& flight = launches_.emplace_back();
    launch_on_all(flight, shape, wire_turns, communicators_, {{kGroupOfWire, 3, -1, -1}, epoch, number});
    return flight;
  }
  // The part of engines and supervisors: a node that loses another one ends the group's epoch, and the other
  // node is told.
  void end_what_is_lost(std::uint64_t epoch) {
    for (std::uint32_t node = 0; node < kNodesOfWire; ++node)
      (*cluster_)[node].take_lost([&](const JobLinks::Lost& link) {
        damaged_ += link.why.message().find("damaged") != std::string::npos ? 1 : 0;
        (*cluster_)[node].end({kGroupOfWire, epoch, Code::kPeerLost, -1, true, link.why.message()});
        (*cluster_)[link.node.value].lose(NodeIndex(node), Status(Code::kPeerLost, "it has given up"));
      });
  }
  std::unique_ptr<MemoryHub> hub_;
  std::vector<MeddlingNetwork*> networks_;
  Meddler meddler_;
  std::unique_ptr<SpanCluster> cluster_;
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::deque<SpanFlight> launches_;
  int damaged_ = 0;  // connections that ended because of it
};

// Goal:   a message of which one byte was changed on its way is never delivered: its connection ends, and
//         says why. No node takes the operation for done with wrong bytes.
// Method: a byte of one message of an operation, drawn from a seed, in a cluster of its own each time: of a
//         head, with a contribution or without, and of a chunk.
TEST_F(WireFaults, EndAConnectionWhereAByteWasChanged) {
  const std::uint64_t last = muster::test::property_cases(80);
  std::uint64_t chunks = 0;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    begin(seed);
    Random random(seed);
    const bool is_of_head = random.below(2) == 0;
    Shape shape = drawn(random);
    while (!is_of_head && shape.collective.count * sizeof(std::int32_t) <= span::kInlineBytes * 2)
      shape = drawn(random);
    int left = static_cast<int>(random.below(is_of_head ? 6 : 2));  // as many are sent
    meddler_ = [&](MessageOnItsWay& message) {
      if (message.is_head != is_of_head || left-- != 0) return;
      message.bytes[random.below(message.bytes.size())] ^= std::byte(1 + random.below(255));
      chunks += is_of_head ? 0 : 1;
    };
    damaged_ = 0;
    const SpanFlight& flight = launch(shape, 1, 1);
    ASSERT_TRUE(cluster_->until([&] {
      end_what_is_lost(1);
      return flight.over() && damaged_ > 0;
    })) << seed
        << ": it was not found, or somebody hangs: " << flight.shape.text();
    ASSERT_TRUE(flight.is_right_where_ok(wire_turns)) << seed << ": " << flight.shape.text();
  }
  EXPECT_GT(chunks, last / 4);
}

// Goal:   a message of an ended epoch changes nothing when it comes again, however often.
// Method: all heads of earlier epochs come again from their senders, in any order, before and while an
//         operation of the present epoch runs; each operation has other numbers than all others.
TEST_F(WireFaults, TakeNothingThatComesAgain) {
  const std::uint64_t replays = muster::test::property_cases(20'000);
  constexpr std::size_t kKept = 400;
  begin(1);
  Random random(1);
  std::vector<MessageOnItsWay> old, present;
  std::uint64_t epoch = 1;
  for (std::uint64_t done = 0; done < replays; ++epoch) {
    meddler_ = [&](MessageOnItsWay& message) {
      if (message.is_head) present.push_back(message);
    };
    SpanFlight& flight = launch(drawn(random), epoch, 1);
    ASSERT_TRUE(cluster_->until([&] {
      for (int i = 0; i < 20 && !old.empty() && done < replays; ++i) {
        const MessageOnItsWay& head = old[random.below(old.size())];
        done += networks_[head.from.value]->again(head) ? 1 : 0;
      }
      return flight.over();
    })) << "epoch "
        << epoch << ": " << flight.shape.text();
    ASSERT_TRUE(flight.launched.first_failure().ok()) << epoch << flight.launched.first_failure().text();
    ASSERT_TRUE(flight.arena == flight.made.after) << "epoch " << epoch << ": " << flight.shape.text();
    (*cluster_)[0].end({kGroupOfWire, epoch, Code::kAborted, 0, false, "the next one"});
    ASSERT_TRUE(cluster_->until([&] {
      std::size_t there = 0;
      for (const auto& communicator : communicators_) there += communicator->first_epoch() > epoch ? 1 : 0;
      return there == kNodesOfWire;
    }));
    // Not the answers to what came again: there would be no end of them.
    if (present.size() > kKept) present.resize(kKept);
    old.insert(old.end(), present.begin(), present.end());
    if (old.size() > kKept) old.erase(old.begin(), old.end() - kKept);
    present.clear();
    launches_.clear();
  }
  for (std::uint32_t node = 1; node < kNodesOfWire; ++node)
    EXPECT_TRUE(cluster_->are_connected(0, node)) << "a stranger's words are no reason to part";
}

// Goal:   bytes that come late, of an operation that an end of its epoch has broken off, go nowhere: neither
//         into the memory of its members, once it is over, nor into the next operation.
// Method: a long operation, broken off by a node that has not heard of all others, at another moment each
//         time. A third node has heard of all, and sends its bytes.
TEST_F(WireFaults, WriteNothingLate) {
  const std::uint64_t last = muster::test::property_cases(30);
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    begin(seed);
    Random random(seed);
    const muster_op op = random.below(2) == 0 ? MUSTER_ALL_REDUCE : MUSTER_ALL_TO_ALL;
    const std::uint64_t count = 10'000 + random.below(20'000);
    const Shape shape =
        shape_of(op, MUSTER_I32, has_reduction(op) ? MUSTER_SUM : 0, kRanksOfWire, count, Place::kApart);
    const auto by = static_cast<std::uint32_t>(random.below(kNodesOfWire));
    const NodeIndex here(by), silent((by + 1) % kNodesOfWire);
    hub_->hold(here, silent);
    const SpanFlight& broken = launch(shape, 1, 1);
    const std::uint64_t moment = 10 + random.below(40);
    ASSERT_TRUE(cluster_->until([&, turns = std::uint64_t{0}]() mutable { return ++turns > moment; }));
    (*cluster_)[by].end({kGroupOfWire, 1, Code::kAborted, 0, false, "it was broken off"});
    hub_->restore(here, silent);
    hub_->restore(silent, here);
    ASSERT_TRUE(cluster_->until([&] { return broken.over(); })) << seed;
    const std::vector<std::byte> then = broken.arena;
    SpanFlight& again = launch(drawn(random), 2, 1);
    ASSERT_TRUE(cluster_->until([&] { return again.over(); })) << seed;
    ASSERT_TRUE(again.launched.first_failure().ok()) << seed << again.launched.first_failure().text();
    ASSERT_TRUE(again.arena == again.made.after) << seed << ": " << again.shape.text();
    ASSERT_TRUE(cluster_->until([turns = 0]() mutable { return ++turns > 100; }));
    ASSERT_TRUE(broken.arena == then) << seed << ": something was written when the operation was over";
  }
}

}  // namespace
}  // namespace muster::transport::test
