// EngineMessages: messages of the engines' own that travel beside those of operations.
#pragma once

#include "transport/span/node_connection.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace muster::transport::span {

// Owns    messages that are not on their way yet, and those that have come.
// Thread  any. hear, arrive: that of the network.
// Bound   kUntakenMax messages that have come; beyond it their connection fails.
// Fails   never.
class EngineMessages {
 public:
  static constexpr std::size_t kUntakenMax = std::size_t{1} << 12;
  using Visit = std::function<void(NodeIndex, std::uint32_t generation, Bytes)>;
  using Said = std::vector<std::pair<NodeIndex, std::vector<std::byte>>>;

  void say(NodeIndex node, Bytes word);
  bool all_said() const;
  // Takes the messages since the last call. Take them before the ends of epochs, and send them after these:
  // so no message overtakes an end.
  Said take_said();
  // `message`: with its head. take() gets it after arrive(), when the messages before it have been handled.
  void hear(NodeConnection& from, Bytes message);
  void arrive();
  void take(const Visit& visit);

 private:
  struct Message {
    NodeIndex from;
    std::uint32_t generation = 0;
    std::vector<std::byte> bytes;
  };
  mutable std::mutex mutex_;
  Said said_;
  std::atomic<bool> any_said_{false};
  std::vector<Message> heard_;   // that have arrived
  std::vector<Message> coming_;  // of the network's thread alone
};

}  // namespace muster::transport::span
