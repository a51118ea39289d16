// EngineMessages: messages of the engines' own that travel beside those of operations.
#pragma once

#include "transport/collective/job_links.hpp"
#include "transport/span/node_connection.hpp"
#include "transport/span/untaken_reports.hpp"

#include <cstddef>
#include <cstdint>
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
  using Told = std::vector<std::pair<NodeIndex, std::vector<std::byte>>>;

  void tell(NodeIndex node, Bytes message);
  bool all_told() const { return told_.empty(); }
  // Takes the messages since the last call. Take them before the ends of epochs, and send them after these:
  // so no message overtakes an end.
  Told take_told() { return told_.take(); }
  // `message`: with its head. take() gets it after arrive(), when the messages before it have been handled.
  void hear(NodeConnection& from, Bytes message);
  void arrive();
  void take(const JobLinks::Messages& visit);

 private:
  struct Message {
    NodeIndex from;
    std::uint32_t generation = 0;
    std::vector<std::byte> bytes;
  };
  UntakenReports<Told::value_type> told_;
  std::mutex mutex_;
  std::vector<Message> heard_;   // that have arrived
  std::vector<Message> coming_;  // of the network's thread alone
};

}  // namespace muster::transport::span
