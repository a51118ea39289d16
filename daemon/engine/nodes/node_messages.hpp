// The messages between the engines of a job, over JobLinks, and who gets them. Each begins with its kind.
// Bytes of a peer are untrusted: read_message() checks the length, and the reader of a field its value.
#pragma once

#include "api/base/message_head.hpp"
#include "transport/collective/job_links.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

namespace muster::engine {

enum class NodeMessageKind : std::uint32_t { kPresence, kQuestion, kAnswer, kMissing, kAgreement };
constexpr std::size_t kNodeMessageKinds = 5;

// "Ranks are attached on my node", or no longer (ranks_elsewhere.hpp).
struct PresenceMessage {
  NodeMessageKind kind = NodeMessageKind::kPresence;
  std::uint32_t attached = 0;
};

// A question or its answer (control_fence.hpp).
struct FenceMessage {
  NodeMessageKind kind = NodeMessageKind::kQuestion;
  std::uint32_t reserved = 0;
  std::uint64_t question = 0;
};

// The members of a node that an operation misses (missing_members.hpp). A bit for each member of the group
// follows, in whole bytes.
struct MissingMessage {
  NodeMessageKind kind = NodeMessageKind::kMissing;
  std::uint32_t members = 0;
  std::uint64_t group = 0, lane = 0, epoch = 0, number = 0;
};

// A step of the agreement on survivors (agreement_wire.hpp). The bits of `first` and `second` follow, each
// list in whole bytes.
struct AgreementHeader {
  NodeMessageKind kind = NodeMessageKind::kAgreement;
  std::uint32_t step = 0;  // AgreementMessage::Kind
  std::uint64_t group = 0, round = 0;
  std::uint8_t wants_answer = 0, votes = 0;
  std::uint16_t reserved = 0;
  std::uint32_t ballot = 0, ballot_node = 0, accepted = 0, accepted_node = 0;
  std::uint32_t first = 0, second = 0;  // bits
  std::uint32_t reserved_last = 0;
};
static_assert(sizeof(PresenceMessage) == 8 && sizeof(FenceMessage) == 16);
static_assert(sizeof(MissingMessage) == 40 && sizeof(AgreementHeader) == 56);

// A message that is nothing but its head; nothing: it has another length.
template<class Head>
std::optional<Head> read_message(std::span<const std::byte> message) {
  return message.size() == sizeof(Head) ? read_head<Head>(message) : std::nullopt;
}

// Owns    who reads which kind. Thread  under the engine's lock. Bound  a reader for each kind.
// Fails   never: a message of an unknown kind is dropped.
class NodeMessages {
 public:
  using Reader = transport::JobLinks::Messages;

  explicit NodeMessages(transport::JobLinks& links) : links_(links) {}
  void set_reader(NodeMessageKind kind, Reader reader);
  // Hands each message that has come to the reader of its kind. Returns how many of each kind came.
  std::array<std::size_t, kNodeMessageKinds> take();

 private:
  transport::JobLinks& links_;
  std::array<Reader, kNodeMessageKinds> readers_;
};

}  // namespace muster::engine
