#include "transport/span/node_connection.hpp"

#include "api/base/clock.hpp"
#include "tests/transport/memory_network.hpp"

#include <array>
#include <functional>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::span {
namespace {

// Two nodes by hand.
class NodeConnectionTest : public ::testing::Test {
 protected:
  NodeConnection& connect(std::uint32_t here, std::uint32_t generation) {
    auto& made = connections_.emplace_back(std::make_unique<NodeConnection>(
        NodeIndex(1 - here), "other", now_, 1, [](NodeConnection&, Bytes) {},
        std::pmr::get_default_resource(), failures_));
    EXPECT_EQ(made->status().code(), Code::kPeerLost) << "not yet";
    EXPECT_TRUE(made->connect(*networks_[here], networks_[1 - here]->address(), generation).ok());
    return *made;
  }
  bool until(const std::function<bool()>& done) {
    for (int turn = 0; turn < 1000 && !done(); ++turn) {
      for (const auto& each : connections_) each->go_on();
      for (const auto& network : networks_) network->progress();
    }
    return done();
  }
  void TearDown() override {
    for (const auto& each : connections_) each->close();
  }

  const Instant now_{0};
  test::MemoryHub hub_;
  std::size_t failures_ = 0;
  std::vector<std::unique_ptr<NodeConnection>> connections_;  // they outlive their networks
  std::array<std::byte, 1> sent_{std::byte{1}}, received_{};
  Flow sends_, receives_;
  std::array<std::unique_ptr<Network>, 2> networks_{hub_.open(NodeIndex(0)), hub_.open(NodeIndex(1))};
};

// Goal:   no later connection of two nodes receives data that an earlier one has sent.
// Method: a short message is on its way when both ends close, and comes once they have connected anew.
TEST_F(NodeConnectionTest, TakesNothingOfAnEarlierOne) {
  NodeConnection& before = connect(0, 7);
  NodeConnection& other_end = connect(1, 7);
  hub_.hold(NodeIndex(0), NodeIndex(1));
  before.send(before.take_tags(1), sent_, sends_, false);
  ASSERT_TRUE(until([&] { return sends_.pending == 0; }));
  for (NodeConnection* each : {&before, &other_end}) {
    each->fail(Status(Code::kPeerLost, "it was given up"));
    each->close();
    EXPECT_EQ(each->status().message(), "node other: it was given up");
    EXPECT_TRUE(until([&] { return each->quiet(); }));
  }
  NodeConnection& after = connect(0, 8);
  sent_[0] = std::byte{2};
  const MessageTag tag = after.take_tags(1);
  connect(1, 8).receive(tag, received_, receives_, false);
  after.send(tag, sent_, sends_, false);
  hub_.restore(NodeIndex(0), NodeIndex(1));
  ASSERT_TRUE(until([&] { return receives_.pending == 0 && sends_.pending == 0; }));
  EXPECT_TRUE(receives_.failure.ok()) << receives_.failure.text();
  EXPECT_EQ(received_[0], std::byte{2});
}

// Goal:   a transfer that the library fails ends the connection: the other end might wait for it for ever.
// Method: a message is longer than the memory for it.
TEST_F(NodeConnectionTest, EndsWithATransferThatFails) {
  NodeConnection& sender = connect(0, 7);
  NodeConnection& receiver = connect(1, 7);
  const std::array<std::byte, 2> too_long{};
  const MessageTag tag = sender.take_tags(1);
  receiver.receive(tag, received_, receives_, false);
  sender.send(tag, too_long, sends_, false);
  ASSERT_TRUE(until([&] { return receives_.pending == 0; }));
  EXPECT_FALSE(receives_.failure.ok());
  EXPECT_EQ(receiver.status().code(), Code::kPeerLost) << receiver.status().text();
}

}  // namespace
}  // namespace muster::transport::span
