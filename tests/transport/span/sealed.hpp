// A message between engines as it travels.
#pragma once

#include "transport/span/wire.hpp"

#include <cstddef>
#include <utility>
#include <vector>

namespace muster::transport::test {

// The message with its checksum behind it.
inline std::vector<std::byte> sealed(std::vector<std::byte> message) {
  message.resize(message.size() + sizeof(span::WireSum));
  span::seal(message);
  return message;
}

}  // namespace muster::transport::test
