#include "daemon/engine/nodes/agreement_wire.hpp"

#include "daemon/control/job.hpp"
#include "daemon/engine/nodes/node_messages.hpp"

#include <cstring>

namespace muster::engine {
namespace {

// Beyond these no count comes.
constexpr std::uint64_t kRoundMax = std::uint64_t{1} << 62;
constexpr std::uint32_t kBallotMax = std::uint32_t{1} << 31;

constexpr std::size_t bytes_for(std::size_t bits) {
  return (bits + 7) / 8;
}

void put_bits(const MemberBits& bits, std::byte* at) {
  for (std::size_t i = 0; i < bits.size(); ++i)
    if (bits[i]) at[i / 8] |= std::byte{1} << (i % 8);
}

MemberBits take_bits(std::size_t count, const std::byte* at) {
  MemberBits bits(count);
  for (std::size_t i = 0; i < count; ++i) bits[i] = (at[i / 8] >> (i % 8) & std::byte{1}) != std::byte{0};
  return bits;
}

}  // namespace

std::vector<std::byte> bytes_of_agreement(const SentAgreement& sent) {
  const AgreementMessage& message = sent.message;
  const bool said = message.kind == AgreementMessage::Kind::kSaid;
  const MemberBits& first = said ? message.asked : message.value;
  AgreementHeader head;
  head.group = sent.group;
  head.round = message.round;
  head.step = static_cast<std::uint32_t>(message.kind);
  head.wants_answer = message.wants_answer ? 1 : 0;
  head.votes = message.votes ? 1 : 0;
  head.ballot = message.ballot.count;
  head.ballot_node = message.ballot.node;
  head.accepted = message.accepted.count;
  head.accepted_node = message.accepted.node;
  head.first = static_cast<std::uint32_t>(first.size());
  head.second = static_cast<std::uint32_t>(message.waited.size());
  std::vector<std::byte> bytes(sizeof head + bytes_for(head.first) + bytes_for(head.second));
  std::memcpy(bytes.data(), &head, sizeof head);
  put_bits(first, bytes.data() + sizeof head);
  put_bits(message.waited, bytes.data() + sizeof head + bytes_for(head.first));
  return bytes;
}

std::optional<SentAgreement> read_agreement(std::span<const std::byte> bytes) {
  using Kind = AgreementMessage::Kind;
  const auto read = read_head<AgreementHeader>(bytes);
  if (!read) return std::nullopt;
  const AgreementHeader& head = *read;
  const bool known = head.step >= static_cast<std::uint32_t>(Kind::kSaid) &&
                     head.step <= static_cast<std::uint32_t>(Kind::kLeft);
  if (!known || head.round >= kRoundMax || head.ballot >= kBallotMax || head.accepted >= kBallotMax)
    return std::nullopt;
  if (head.first > control::kWorldMax || head.second > control::kWorldMax) return std::nullopt;
  if (bytes.size() != sizeof head + bytes_for(head.first) + bytes_for(head.second)) return std::nullopt;
  SentAgreement sent;
  sent.group = head.group;
  AgreementMessage& message = sent.message;
  message.kind = static_cast<Kind>(head.step);
  message.round = head.round;
  message.ballot = {head.ballot, head.ballot_node};
  message.accepted = {head.accepted, head.accepted_node};
  message.wants_answer = head.wants_answer != 0;
  message.votes = head.votes != 0;
  MemberBits first = take_bits(head.first, bytes.data() + sizeof head);
  (message.kind == Kind::kSaid ? message.asked : message.value) = std::move(first);
  message.waited = take_bits(head.second, bytes.data() + sizeof head + bytes_for(head.first));
  return sent;
}

}  // namespace muster::engine
