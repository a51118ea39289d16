#include "transport/endpoint/envelope.hpp"

#include "api/base/message_head.hpp"

#include <cstring>

namespace muster::transport {
namespace {

constexpr std::size_t kSummed = sizeof(Envelope::kind) + sizeof(Envelope::sum);

std::uint64_t sum_of(Bytes bytes) {
  std::uint64_t sum = 0xcbf29ce484222325ULL;
  for (const std::byte byte : bytes) sum = (sum ^ std::to_integer<std::uint64_t>(byte)) * 0x100000001b3ULL;
  return sum;
}

}  // namespace

std::vector<std::byte> seal_envelope(Envelope head, Bytes body) {
  std::vector<std::byte> all(sizeof head + body.size());
  std::memcpy(all.data(), &head, sizeof head);
  if (!body.empty()) std::memcpy(all.data() + sizeof head, body.data(), body.size());
  head.sum = sum_of(Bytes(all).subspan(kSummed));
  std::memcpy(all.data(), &head, sizeof head);
  return all;
}

Result<Envelope> open_envelope(Bytes bytes, std::uint64_t kind, std::string_view what) {
  const auto head = read_head<Envelope>(bytes);
  if (!head || head->kind != kind || head->sum != sum_of(bytes.subspan(kSummed)))
    return fail(Code::kBadArgument, "{} bytes are no {}", bytes.size(), what);
  return *head;
}

Status check_index(NodeIndex node) {
  if (node.value >> 16 == 0) return {};
  return failure(Code::kBadArgument, "node {} has no index", node.value);
}

Status check_tag(MessageTag tag) {
  if (tag <= kMessageTagMax) return {};
  return failure(Code::kBadArgument, "tag {:#x} has more than 48 bits", tag);
}

Status check_within(const Envelope& key, std::uint64_t offset, std::size_t bytes) {
  if (offset <= key.bytes && bytes <= key.bytes - offset) return {};
  return failure(Code::kBadArgument, "{} bytes at {} are beyond the peer's memory of {}", bytes, offset,
                 key.bytes);
}

}  // namespace muster::transport
