// The messages between the engines of a job: heads, on a tag of their own. Bytes of a peer are untrusted.
// unseal() checks that they came as they were sent, read_head() their length (api/base/message_head.hpp), and
// the reader of a field its value.
#pragma once

#include "api/base/checksum.hpp"
#include "api/base/hash.hpp"
#include "api/base/message_head.hpp"
#include "transport/collective/communicator.hpp"
#include "transport/collective/job_links.hpp"
#include "transport/endpoint/endpoint.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::transport::span {

// The most bytes behind the head of a match request. Libraries send a message of this size at once, without
// asking the receiver first.
inline constexpr std::size_t kInlineBytes = 8 << 10;

// Each head begins with its kind. Those of two kinds have nothing else: a hello, by which a node says that
// the connection works, or still does; and that of a message of the engines' own, which follows.
enum class HeaderKind : std::uint32_t { kHello = 1, kRequest, kRefusal, kEnd, kReady, kEngine, kSum };

// An operation as all of its nodes name it.
struct OperationKey {
  PlaceKey place;
  std::uint32_t tag = 0;  // of a SEND or RECV
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;
  friend auto operator<=>(const OperationKey&, const OperationKey&) = default;
};

// "My node has come to this operation, and means this by it" (decision D7). The node's contribution to the
// first round follows, if it is short and the operation has one chunk.
struct RequestHeader {
  HeaderKind kind = HeaderKind::kRequest;
  std::uint32_t reserved = 0;
  std::uint64_t group = 0, lane = 0, epoch = 0, number = 0;
  std::int32_t sender = -1, receiver = -1;
  std::uint32_t tag = 0;
  std::uint8_t op = 0, dtype = 0, redop = 0;
  std::uint8_t direct = 0;  // the node would move it through the memory of members (operation.hpp)
  std::int32_t root = 0;
  std::uint32_t said_tag = 0;  // Collective; `tag` is that of the key, which only messages have
  std::uint64_t count = 0;
  std::uint64_t shared_memory = 0, shared_offset = 0;  // Collective; for the text of a difference
  Hash128 common, balance;                             // Signature; the balance of all members of the node
  std::uint64_t first_tag = 0;                         // of the node's further messages to the receiver
};
static_assert(sizeof(RequestHeader) == 128);

// "My node has all requests, and they are equal."
struct ReadyHeader {
  HeaderKind kind = HeaderKind::kReady;
  std::uint32_t tag = 0;
  std::uint64_t group = 0, lane = 0, epoch = 0, number = 0;
  std::int32_t sender = -1, receiver = -1;
};
static_assert(sizeof(ReadyHeader) == 48);

// How far a node had come with an operation that it refuses.
enum class Standing : std::uint32_t {
  kOpen = 0,    // it had not agreed, and asks whether the receiver has
  kReady = 1,   // it has reported that it is ready; messages from and to members begin when all nodes have
  kMoving = 2,  // it had agreed, and messages through staging begin with that
  kGone = 3,    // an answer to kOpen or to a request: the operation is not there, or is not there any more
};

// "My node will not carry this operation out." The cause's text follows.
struct RefusalHeader {
  HeaderKind kind = HeaderKind::kRefusal;
  std::int32_t code = 0;
  std::uint64_t group = 0, lane = 0, epoch = 0, number = 0;
  std::int32_t sender = -1, receiver = -1;
  std::uint32_t tag = 0;
  std::int32_t culprit = -1;
  Standing standing = Standing::kOpen;
  std::uint32_t reserved = 0;
};
static_assert(sizeof(RefusalHeader) == 64);

// An epoch of a group has ended (decision D18). The cause's text follows.
struct EndHeader {
  HeaderKind kind = HeaderKind::kEnd;
  std::int32_t code = 0;
  std::uint64_t group = 0, epoch = 0;
  std::int32_t culprit = -1;
  std::uint32_t loss = 0;
};
static_assert(sizeof(EndHeader) == 32);

inline constexpr std::size_t kTextBytesMax = 1024;
// Beyond it no epoch comes.
inline constexpr std::uint64_t kEpochMax = std::uint64_t{1} << 62;

// The checksum of a longer message, which comes by its own tag.
struct SumHeader {
  HeaderKind kind = HeaderKind::kSum;
  std::uint32_t reserved = 0;
  std::uint64_t tag = 0, sum = 0;
};
static_assert(sizeof(SumHeader) == 24);

// Each head ends with the checksum of all before it. It finds damage on the way, not malice.
using WireSum = std::uint64_t;
inline constexpr std::size_t kMessageBytesMax = sizeof(RequestHeader) + kInlineBytes + sizeof(WireSum);

inline WireSum sum_of(Bytes message) {
  return checkpoint::checksum64(message);
}
// A message with room for its checksum at the end.
inline void seal(std::span<std::byte> message) {
  const WireSum sum = sum_of(message.first(message.size() - sizeof sum));
  std::memcpy(message.data() + message.size() - sizeof sum, &sum, sizeof sum);
}
// The message without its checksum; nothing, if that is wrong.
inline std::optional<Bytes> unseal(Bytes message) {
  WireSum sum = 0;
  if (message.size() < sizeof sum) return std::nullopt;
  const Bytes said = message.first(message.size() - sizeof sum);
  std::memcpy(&sum, message.data() + said.size(), sizeof sum);
  return sum == sum_of(said) ? std::optional(said) : std::nullopt;
}
static_assert(sizeof(HeaderKind) + JobLinks::kMessageMax + sizeof(WireSum) <= kMessageBytesMax);

// The group in the head of a message that belongs to one.
inline std::optional<std::uint64_t> group_of(Bytes message) {
  static_assert(offsetof(RequestHeader, group) == 8 && offsetof(RefusalHeader, group) == 8);
  static_assert(offsetof(EndHeader, group) == 8 && offsetof(ReadyHeader, group) == 8);
  return message.size() < 8 ? std::nullopt : read_head<std::uint64_t>(message.subspan(8));
}

// A head, followed by `rest`.
template<class Head>
std::vector<std::byte> message_of(const Head& head, Bytes rest) {
  std::vector<std::byte> message(sizeof head + rest.size());
  std::memcpy(message.data(), &head, sizeof head);
  if (!rest.empty()) std::memcpy(message.data() + sizeof head, rest.data(), rest.size());
  return message;
}
// The text of a cause, as it travels.
inline Bytes bytes_of_text(std::string_view text) {
  return std::as_bytes(std::span(text.substr(0, kTextBytesMax)));
}
inline std::string text_of_bytes(Bytes bytes) {
  const Bytes cut = bytes.first(std::min(bytes.size(), kTextBytesMax));
  return {reinterpret_cast<const char*>(cut.data()), cut.size()};
}

// Names the operation in a head.
template<class Head>
void set_key(Head& head, const OperationKey& key) {
  head.group = key.place.group;
  head.lane = key.place.lane;
  head.sender = key.place.sender;
  head.receiver = key.place.receiver;
  head.epoch = key.epoch;
  head.number = key.number;
  head.tag = key.tag;
}
template<class Head>
Head head_of(const OperationKey& key) {
  Head head;
  set_key(head, key);
  return head;
}
inline std::vector<std::byte> refusal_of(const OperationKey& key, const Status& why, Standing standing) {
  auto head = head_of<RefusalHeader>(key);
  head.standing = standing;
  head.code = static_cast<std::int32_t>(why.code());
  head.culprit = why.culprit();
  return message_of(head, bytes_of_text(why.message()));
}
inline std::vector<std::byte> message_of_end(const EpochEnd& end) {
  EndHeader head;
  head.code = static_cast<std::int32_t>(end.code);
  head.group = end.group;
  head.epoch = end.epoch;
  head.culprit = end.culprit;
  head.loss = end.loss ? 1 : 0;
  return message_of(head, bytes_of_text(end.text));
}

inline std::optional<EpochEnd> read_end(Bytes message) {
  const auto head = read_head<EndHeader>(message);
  if (!head || head->code >= 0 || !is_known(head->code)) return std::nullopt;
  if (head->epoch == 0 || head->epoch >= kEpochMax) return std::nullopt;
  return EpochEnd{head->group,   head->epoch,     static_cast<Code>(head->code),
                  head->culprit, head->loss != 0, text_of_bytes(message.subspan(sizeof *head))};
}
inline Status cause_of(const EpochEnd& end) {
  return {end.code, end.text, end.culprit};
}

// The operation of a request, a refusal, or a kReady message.
template<class Head>
OperationKey key_of(const Head& head) {
  return {{head.group, head.lane, head.sender, head.receiver}, head.tag, head.epoch, head.number};
}

}  // namespace muster::transport::span
