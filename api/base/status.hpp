// Status: what went wrong, sorted by what was lost.
//
// Owns    its message.
// Thread  a value; any.
// Bound   the code is one of muster.h's; the message is a sentence for a person.
// Fails   never.
#pragma once

#include <muster/muster.h>

#include <cstdint>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace muster {

// The values of muster.h, typed. The hundreds digit says what was lost and so what the caller must redo.
enum class Code : muster_status_t {
  kOk = MUSTER_OK,
  kPending = MUSTER_PENDING,
  kBadArgument = MUSTER_ERR_BAD_ARGUMENT,
  kBusy = MUSTER_ERR_BUSY,
  kUnsupported = MUSTER_ERR_UNSUPPORTED,
  kNoResource = MUSTER_ERR_NO_RESOURCE,
  kStale = MUSTER_ERR_STALE,
  kDenied = MUSTER_ERR_DENIED,
  kDuplicate = MUSTER_ERR_DUPLICATE,
  kNotFound = MUSTER_ERR_NOT_FOUND,
  kConfig = MUSTER_ERR_CONFIG,
  kState = MUSTER_ERR_STATE,
  kWaitTimeout = MUSTER_ERR_WAIT_TIMEOUT,
  kWaitInterrupted = MUSTER_ERR_WAIT_INTERRUPTED,
  kMismatch = MUSTER_ERR_MISMATCH,
  kTimeout = MUSTER_ERR_TIMEOUT,
  kPeerLost = MUSTER_ERR_PEER_LOST,
  kAborted = MUSTER_ERR_ABORTED,
  kDependency = MUSTER_ERR_DEPENDENCY,
  kCorrupt = MUSTER_ERR_CORRUPT,
  kInterrupted = MUSTER_ERR_INTERRUPTED,
  kMinority = MUSTER_ERR_MINORITY,
  kProtocol = MUSTER_ERR_PROTOCOL,
  kVersion = MUSTER_ERR_VERSION,
  kDaemonLost = MUSTER_ERR_DAEMON_LOST,
  kJobEnded = MUSTER_ERR_JOB_ENDED,
  kDevice = MUSTER_ERR_DEVICE,
  kInternal = MUSTER_ERR_INTERNAL,
};

// "MUSTER_ERR_PEER_LOST"; "MUSTER_ERR_UNKNOWN" for a number that is no code. Never null.
const char* code_name(Code code) noexcept;

// One fixed sentence per code, with the remedy. Never null.
const char* code_sentence(Code code) noexcept;

// -2xx: a group's operation failed.
constexpr bool is_group_failure(Code code) noexcept {
  return static_cast<muster_status_t>(code) / 100 == -2;
}

// -3xx: the session is over, or never was.
constexpr bool is_session_end(Code code) noexcept {
  return static_cast<muster_status_t>(code) / 100 == -3;
}

// False for a number that is no code of muster.h, such as a corrupt shared word.
bool is_known(muster_status_t value) noexcept;

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message, std::int32_t culprit = -1)
      : code_(code), culprit_(culprit), message_(std::move(message)) {}

  bool ok() const noexcept { return code_ == Code::kOk; }
  Code code() const noexcept { return code_; }
  const std::string& message() const noexcept { return message_; }
  // World rank to blame for a group's failure; -1: none in particular.
  std::int32_t culprit() const noexcept { return culprit_; }

  // "MUSTER_ERR_CONFIG: cluster.yaml:3:5: …"
  std::string text() const;

  friend bool operator==(const Status& a, const Status& b) { return a.code_ == b.code_; }

 private:
  Code code_ = Code::kOk;
  std::int32_t culprit_ = -1;
  std::string message_;
};

// Builds a Status from a fmt format string: failure(Code::kBadArgument, "rank {} is not in 0..{}", rank,
// last).
template<class... Args>
Status failure(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return Status(code, fmt::format(format, std::forward<Args>(args)...));
}

}  // namespace muster
