// Fields of messages from other nodes. A field that is missing or of another type counts as empty, as 0, or
// as false; texts are cut.
#pragma once

#include "daemon/control/packet.hpp"

#include <cstddef>
#include <cstdint>
#include <string>

namespace muster::supervisor {

constexpr std::size_t kWhyBytesMax = 1024;

inline std::string said_text(const control::Json& message, const char* name) {
  const auto field = message.find(name);
  return field != message.end() && field->is_string() ? field->get<std::string>().substr(0, kWhyBytesMax)
                                                      : std::string();
}

inline std::uint64_t said_number(const control::Json& message, const char* name) {
  const auto field = message.find(name);
  return field != message.end() && field->is_number_unsigned() ? field->get<std::uint64_t>() : 0;
}

inline bool said_flag(const control::Json& message, const char* name) {
  const auto field = message.find(name);
  return field != message.end() && field->is_boolean() && field->get<bool>();
}

// A peer and an engine may give long reasons, and a message is bounded.
inline Status cut(const Status& status) {
  return Status(status.code(), status.message().substr(0, kWhyBytesMax));
}

}  // namespace muster::supervisor
