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

// Goal:   what an earlier connection of two nodes has sent is received by no later one.
// Method: a short message is on its way when both ends close, and comes once they have connected anew.
TEST(NodeConnection, TakesNothingOfAnEarlierOne) {
  const SteadyClock clock;
  test::MemoryHub hub;
  std::vector<std::unique_ptr<NodeConnection>> connections;  // they outlive their networks
  std::array<std::byte, 1> sent{std::byte{1}}, received{};
  Flow sends, receives;
  std::array networks{hub.open(NodeIndex(0)), hub.open(NodeIndex(1))};
  const auto connect = [&](std::uint32_t here, std::uint32_t generation) -> NodeConnection& {
    auto& made = connections.emplace_back(std::make_unique<NodeConnection>(
        NodeIndex(1 - here), "other", clock, 1, [](NodeConnection&, Bytes) {}));
    EXPECT_EQ(made->status().code(), Code::kPeerLost) << "not yet";
    EXPECT_TRUE(made->connect(*networks[here], networks[1 - here]->address(), generation).ok());
    return *made;
  };
  const auto until = [&](const std::function<bool()>& done) {
    for (int turn = 0; turn < 1000 && !done(); ++turn) {
      for (const auto& each : connections) each->go_on();
      for (const auto& network : networks) network->progress();
    }
    return done();
  };
  NodeConnection& before = connect(0, 7);
  NodeConnection& other_end = connect(1, 7);
  hub.hold(NodeIndex(0), NodeIndex(1));
  before.send(before.take_tags(1), sent, sends, false);
  ASSERT_TRUE(until([&] { return sends.pending == 0; }));
  for (NodeConnection* each : {&before, &other_end}) {
    each->fail(Status(Code::kPeerLost, "it was given up"));
    each->close();
    EXPECT_EQ(each->status().message(), "node other: it was given up");
    EXPECT_TRUE(until([&] { return each->quiet(); }));
  }
  NodeConnection& after = connect(0, 8);
  sent[0] = std::byte{2};
  const MessageTag tag = after.take_tags(1);
  connect(1, 8).receive(tag, received, receives, false);
  after.send(tag, sent, sends, false);
  hub.restore(NodeIndex(0), NodeIndex(1));
  ASSERT_TRUE(until([&] { return receives.pending == 0 && sends.pending == 0; }));
  EXPECT_TRUE(receives.failure.ok()) << receives.failure.text();
  EXPECT_EQ(received[0], std::byte{2});
  for (const auto& each : connections) each->close();
}

}  // namespace
}  // namespace muster::transport::span
