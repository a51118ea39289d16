// Envelope: a library's own bytes, an address or a key, as they travel to a peer. They come back from a peer,
// and libraries trust such bytes: kind and checksum keep out what no peer's library has made by accident.
#pragma once

#include "transport/endpoint/endpoint.hpp"

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace muster::transport {

struct Envelope {
  std::uint64_t kind = 0;
  std::uint64_t sum = 0;         // FNV-1a, 64 bits, of all that follows
  std::uint64_t generation = 0;  // of a key: no two of a network are the same
  std::uint64_t address = 0;     // of a key: where the memory begins, in the words of its library
  std::uint64_t bytes = 0;       // of a key: of the memory
};

// Head and body as bytes, with the sum filled in.
std::vector<std::byte> seal_envelope(Envelope head, Bytes body);
// kBadArgument: not an envelope of that kind; `what` names it: "key of UCX".
Result<Envelope> open_envelope(Bytes bytes, std::uint64_t kind, std::string_view what);
inline Bytes body_of_envelope(Bytes bytes) {
  return bytes.subspan(sizeof(Envelope));
}
// A message's tag as libraries match it: the sender's index stands in its highest bits.
constexpr std::uint64_t whole_tag(NodeIndex sender, MessageTag tag) {
  return std::uint64_t{sender.value} << 48 | tag;
}
// kBadArgument: the index does not fit into a tag; the tag leaves no room for one.
Status check_index(NodeIndex node);
Status check_tag(MessageTag tag);
// kBadArgument: `bytes` at `offset` are not all in the memory of that key.
Status check_within(const Envelope& key, std::uint64_t offset, std::size_t bytes);

}  // namespace muster::transport
