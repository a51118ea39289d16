// MessageSums: checksums of long messages from one node. They come separately from their messages, before or
// after these.
#pragma once

#include "transport/endpoint/endpoint.hpp"
#include "transport/span/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory_resource>
#include <optional>
#include <utility>

namespace muster::transport::span {

// Messages of one piece of work that have not ended, and their first failure.
struct Flow {
  std::uint32_t pending = 0;
  std::size_t sending = 0;  // bytes of those that are sent
  bool urgent = false;      // no bulk: urgent operations do not count it as ahead of them
  bool abandoned = false;   // an empty message came: its sender will not carry the operation out
  Status failure;
};

// Owns    sums without their messages, and which flows have messages without their sums.
// Thread  that of the network.
// Bound   kMax sums; the oldest go first. They are of messages that this node does not want any more.
// Fails   never.
class MessageSums {
 public:
  static constexpr std::size_t kMax = std::size_t{1} << 14;

  explicit MessageSums(std::pmr::memory_resource* memory) : said_(memory), order_(memory), waiting_(memory) {}

  // A message has come. Whether it is as it was sent; nothing: its sum has not come, and the flow waits. It
  // is not if another of that tag waits: a peer that says one tag twice would keep one of the two for ever.
  std::optional<bool> came(MessageTag tag, WireSum sum, Flow& flow);
  // A sum has come: the flow that has waited for it, and whether its message is as it was sent.
  std::optional<std::pair<Flow*, bool>> said(MessageTag tag, WireSum sum);
  bool any_waits() const { return !waiting_.empty(); }
  // One that waits no more from now on; nullptr: there is none.
  Flow* give_up_one();

 private:
  struct Waiting {
    WireSum sum = 0;
    Flow* flow = nullptr;
  };
  std::pmr::map<MessageTag, WireSum> said_;
  std::pmr::deque<MessageTag> order_;  // of what was said
  std::pmr::map<MessageTag, Waiting> waiting_;
};

}  // namespace muster::transport::span
