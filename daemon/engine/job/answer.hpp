// Building answers to clients.
#pragma once

#include "api/shm/control.hpp"
#include "daemon/engine/job/conductor.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace muster::engine {

// The message with its header filled in, followed by a list.
// Errors: NO_RESOURCE if both do not fit into one message.
template<class T>
Result<Answer> answer_with_list(T message, shm::MessageKind kind, std::uint32_t serial,
                                std::span<const std::byte> list) {
  if (sizeof(T) + list.size() > shm::kMessageBytesMax)
    return fail(Code::kNoResource, "a list of {} bytes is more than a message holds", list.size());
  message.header = shm::MessageHeader{};
  message.header.kind = kind;
  message.header.serial = serial;
  message.header.bytes = static_cast<std::uint32_t>(sizeof(T) + list.size());
  Answer answer;
  answer.bytes.resize(sizeof(T) + list.size());
  std::memcpy(answer.bytes.data(), &message, sizeof(T));
  if (!list.empty()) std::memcpy(answer.bytes.data() + sizeof(T), list.data(), list.size());
  return answer;
}

template<class T>
Answer answer_with(T message, shm::MessageKind kind, std::uint32_t serial) {
  return *answer_with_list(message, kind, serial, {});
}

}  // namespace muster::engine
