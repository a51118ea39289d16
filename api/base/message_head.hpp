// The head of a message between two processes or nodes: a plain struct whose bytes come first. Bytes of a
// peer are untrusted: read_head() checks their length, and the reader of a field its value.
#pragma once

#include <cstddef>
#include <cstring>
#include <optional>
#include <span>

namespace muster {

template<class Head>
std::span<const std::byte> bytes_of_head(const Head& head) {
  return std::as_bytes(std::span(&head, 1));
}
// Nothing: the message is shorter.
template<class Head>
std::optional<Head> read_head(std::span<const std::byte> message) {
  Head head;
  if (message.size() < sizeof head) return std::nullopt;
  std::memcpy(&head, message.data(), sizeof head);
  return head;
}

}  // namespace muster
