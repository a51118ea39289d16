// SaveIntent: a member's request to save, as it sends it to the others.
#pragma once

#include "api/base/checkpoint/write_plan.hpp"
#include "api/base/result.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::client {

struct SaveIntent {
  std::string folder, name;
  std::uint64_t step = 0;
  std::uint32_t flags = 0;
  std::uint64_t nonce = 0;  // of member 0: names the folder in which all write
  std::vector<checkpoint::OwnTensor> tensors{};
  friend bool operator==(const SaveIntent&, const SaveIntent&) = default;
};

std::string packed(const SaveIntent& intent);
// Errors: kProtocol, for bytes that no member has packed.
Result<SaveIntent> unpacked(std::string_view bytes);

}  // namespace muster::client
