// How an AgreementMessage travels between engines. Bytes of a peer are untrusted: read_agreement() checks
// their length, and the reader of a list that it has the length that the group needs.
#pragma once

#include "daemon/engine/nodes/survivor_agreement.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace muster::engine {

struct SentAgreement {
  std::uint64_t group = 0;  // the group's key between nodes
  AgreementMessage message;
};

std::vector<std::byte> bytes_of_agreement(const SentAgreement& sent);
// None: the bytes are no such message.
std::optional<SentAgreement> read_agreement(std::span<const std::byte> bytes);

}  // namespace muster::engine
