// From received bytes to a control message: pure functions that copy the bytes and then check the copy. Every
// byte is untrusted.
#pragma once

#include "api/base/assert.hpp"
#include "api/base/result.hpp"
#include "api/base/utf8.hpp"
#include "api/shm/control.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace muster::shm {

// The header of a datagram, if its magic, version and length are right. Errors: PROTOCOL, VERSION.
inline Result<MessageHeader> checked_header(std::span<const std::byte> bytes) {
  MessageHeader header;
  if (bytes.size() < sizeof header)
    return fail(Code::kProtocol, "a message of {} bytes is shorter than its header of {}", bytes.size(),
                sizeof header);
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != kMagicMessage)
    return fail(Code::kProtocol, "a message starts with 0x{:08x}, not with 0x{:08x}", header.magic,
                kMagicMessage);
  if (header.version != kAbiVersion)
    return fail(Code::kVersion,
                "a message of version {} came, this side speaks version {}; install the same version of "
                "library and daemon",
                header.version, kAbiVersion);
  if (header.bytes != bytes.size())
    return fail(Code::kProtocol, "a message announces {} bytes and has {}", header.bytes, bytes.size());
  return header;
}

enum class Tail { kNone, kAllowed };  // whether an array may follow the message

// A message of one kind, copied out. With Tail::kAllowed the rest is tail_of<T>(). Errors: PROTOCOL, VERSION.
template<class T>
Result<T> checked(std::span<const std::byte> bytes, MessageKind kind, Tail tail = Tail::kNone) {
  static_assert(std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>);
  MUSTER_ASSIGN_OR_RETURN(const MessageHeader header, checked_header(bytes));
  if (header.kind != kind)
    return fail(Code::kProtocol, "a message of kind {} came in place of kind {}",
                static_cast<unsigned>(header.kind), static_cast<unsigned>(kind));
  if (bytes.size() < sizeof(T) || (tail == Tail::kNone && bytes.size() != sizeof(T)))
    return fail(Code::kProtocol, "a message of kind {} has {} bytes; it needs {}{}",
                static_cast<unsigned>(kind), bytes.size(), tail == Tail::kNone ? "" : "at least ", sizeof(T));
  T message;
  std::memcpy(&message, bytes.data(), sizeof message);
  // Keeps the checked copy of the header: the bytes may be shared and may have changed since.
  message.header = header;
  return message;
}

// The bytes behind a checked message.
template<class T>
std::span<const std::byte> tail_of(std::span<const std::byte> bytes) {
  return bytes.subspan(sizeof(T));
}

// Entry `index` of a tail, whose length the caller has checked. Copies, because tails are not aligned.
template<class T>
T tail_entry(std::span<const std::byte> tail, std::size_t index) {
  static_assert(std::is_trivially_copyable_v<T>);
  MUSTER_ASSERT(index < tail.size() / sizeof(T));
  T value;
  std::memcpy(&value, tail.data() + index * sizeof value, sizeof value);
  return value;
}

// Names that one rank chooses appear on other users' terminals, and in logs with one line each.
inline bool has_control(std::string_view text) {
  for (std::size_t i = 0; i < text.size(); ++i)
    if (control_bytes(text, i) > 0) return true;
  return false;
}

// The text in a fixed array of a checked copy. It must end within the array and have no control characters.
// `field` names it in the error. The view lives as long as the array. Errors: PROTOCOL.
template<std::size_t N>
Result<std::string_view> checked_text(const char (&array)[N], const char* field) {
  const void* end = std::memchr(array, 0, N);
  if (end == nullptr)
    return fail(Code::kProtocol, "field \"{}\" of {} bytes has no terminating zero", field, N);
  const std::string_view text(array, static_cast<std::size_t>(static_cast<const char*>(end) - array));
  if (has_control(text)) return fail(Code::kProtocol, "field \"{}\" contains a control character", field);
  return text;
}

// Fills a fixed array of a message. Errors: BAD_ARGUMENT (too long, or a control character, zero included).
template<std::size_t N>
Status set_text(char (&array)[N], std::string_view text, const char* field) {
  if (text.size() >= N)
    return failure(Code::kBadArgument, "{} has {} bytes; at most {} fit", field, text.size(), N - 1);
  if (has_control(text)) return failure(Code::kBadArgument, "{} contains a control character", field);
  std::memset(array, 0, N);
  std::memcpy(array, text.data(), text.size());
  return {};
}

// Fills a fixed array of a message with as much as fits, without control characters and half characters.
template<std::size_t N>
void set_clipped(char (&array)[N], std::string_view text) {
  std::size_t fits = 0;
  for (std::size_t i = 0; i < std::min(text.size(), N); i += std::max<std::size_t>(utf8_length(text, i), 1))
    fits = i;
  if (text.size() < N) fits = text.size();
  const std::string clean = printable(text.substr(0, fits), Lines::kOne);
  std::memset(array, 0, N);
  std::memcpy(array, clean.data(), clean.size());
}

// A message with its header filled in; `tail_bytes` will follow it.
template<class T>
T make_message(MessageKind kind, std::uint32_t serial, std::size_t tail_bytes = 0) {
  T message{};
  message.header.kind = kind;
  message.header.bytes = static_cast<std::uint32_t>(sizeof(T) + tail_bytes);
  message.header.serial = serial;
  return message;
}

inline GroupAbort abort_of(std::uint64_t group, std::string_view reason) {
  GroupAbort message;
  message.group = group;
  set_clipped(message.reason, reason);
  return message;
}

inline Failure make_failure(const Status& status, std::uint32_t serial) {
  auto message = make_message<Failure>(MessageKind::kFailure, serial);
  message.status = static_cast<std::int32_t>(status.code());
  message.culprit_rank = status.culprit();
  message.length = static_cast<std::uint32_t>(std::min(status.message().size(), kErrorTextBytes));
  std::memcpy(message.text, status.message().data(), message.length);
  return message;
}

// The status that a Failure message carries. A success, or a number that is no status, becomes PROTOCOL, so
// that a failure never looks like success.
inline Status status_of(const Failure& message) {
  if (message.status >= 0 || !is_known(message.status))
    return failure(Code::kProtocol, "a failure message carries status {}", message.status);
  if (message.length > kErrorTextBytes)
    return failure(Code::kProtocol, "a failure message announces {} bytes of text", message.length);
  return Status(static_cast<Code>(message.status), std::string(message.text, message.length),
                std::max(message.culprit_rank, -1));
}

// An answer: T, or the status of a Failure. `serial` is that of the request; a Failure of serial 0 was sent
// before the request was read.
template<class T>
Result<T> checked_answer(std::span<const std::byte> bytes, MessageKind kind, std::uint32_t serial,
                         Tail tail = Tail::kNone) {
  MUSTER_ASSIGN_OR_RETURN(const MessageHeader header, checked_header(bytes));
  const bool refused_unread = header.kind == MessageKind::kFailure && header.serial == 0;
  if (header.serial != serial && !refused_unread)
    return fail(Code::kProtocol, "the answer to request {} came in place of that to {}", header.serial,
                serial);
  if (header.kind == MessageKind::kFailure) {
    MUSTER_ASSIGN_OR_RETURN(const Failure message, checked<Failure>(bytes, MessageKind::kFailure));
    return fail(status_of(message));
  }
  return checked<T>(bytes, kind, tail);
}

// The bytes of a message, for sending.
template<class T>
std::span<const std::byte> bytes_of(const T& message) {
  static_assert(std::is_trivially_copyable_v<T>);
  return std::as_bytes(std::span(&message, 1));
}

}  // namespace muster::shm
