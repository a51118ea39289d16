// EngineWords: messages of the engines' own that travel beside those of operations.
#pragma once

#include "transport/span/node_connection.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace muster::transport::span {

// Owns    words that are not on their way yet, and those that have come.
// Thread  any. hear, send: that of the network.
// Bound   kUntakenMax words that have come; beyond it their connection fails.
// Fails   never.
class EngineWords {
 public:
  static constexpr std::size_t kUntakenMax = std::size_t{1} << 16;
  using Visit = std::function<void(NodeIndex, std::uint32_t generation, Bytes)>;

  void say(NodeIndex node, Bytes word);
  bool all_said() const;
  // To nodes that have greeted; others do not hear it.
  void send(const std::vector<std::unique_ptr<NodeConnection>>& connections,
            const std::vector<bool>& greeted);
  // `message`: with its head.
  void hear(NodeConnection& from, Bytes message);
  void take(const Visit& visit);

 private:
  struct Word {
    NodeIndex from;
    std::uint32_t generation = 0;
    std::vector<std::byte> bytes;
  };
  mutable std::mutex mutex_;
  std::vector<std::pair<NodeIndex, std::vector<std::byte>>> said_;
  std::vector<Word> heard_;
};

}  // namespace muster::transport::span
