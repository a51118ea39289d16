// The duties of every Network, whatever its library: two nodes in one process.
//
// A program that runs it defines how the networks are opened:
//   INSTANTIATE_TEST_SUITE_P(Ucx, NetworkConformance, ::testing::Values(NetworkMaker{…}))
#pragma once

#include "transport/endpoint/endpoint.hpp"

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::transport::test {

// One operation, and its outcome.
struct Told final : Transfer {
  void done(const Status& said, std::size_t length) override {
    status = said;
    bytes = length;
    ++times;
    if (then) then();
  }
  bool over() const { return times > 0; }
  Status status;
  std::size_t bytes = 0;
  int times = 0;
  std::function<void()> then;
};

struct NetworkMaker {
  std::string name;
  // Networks of the nodes 0 … count - 1, which can reach each other.
  std::function<std::vector<std::unique_ptr<Network>>(std::uint32_t count)> open;
  bool notices_loss = true;  // of a peer, by itself
  // The receive of a longer message, without room for it, ends with its endpoint.
  std::size_t measures_messages_to = SIZE_MAX;
};

class NetworkConformance : public ::testing::TestWithParam<NetworkMaker> {
 protected:
  struct Pair {
    std::unique_ptr<Endpoint> here;   // at node 0, to the other
    std::unique_ptr<Endpoint> there;  // at the other, to node 0
  };
  void SetUp() override { networks_ = GetParam().open(2); }
  // Ends endpoints before networks, whatever a test has left.
  Pair connect(std::uint32_t other = 1);
  // Progress of all nodes until `done`, at most 20 s.
  bool until(const std::function<bool()>& done);
  // Progress of all nodes for 20 ms: what can come has come.
  void until_later();
  // The first operations: both ends find each other.
  void touch(Pair& pair);

  std::deque<Told> unended_;  // what a library may keep until its network ends
  std::vector<std::unique_ptr<Network>> networks_;
};

}  // namespace muster::transport::test
