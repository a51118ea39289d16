// The memory of sessions outlives them, so that the use of a closed session is reported, and does not crash.
//
// A session begins with its mark. When it is closed, its memory gets the mark of a closed one. The memory is
// kept for at least kKeptSessions later closes, and until another session needs memory. It never goes back to
// the heap, where any other object could take its place.
#pragma once

#include "api/base/status.hpp"
#include "api/client/session/forks.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::client {

// The owner of a session. Every call reads it first; `forks` alone tells a session that may be used.
struct SessionMark {
  static constexpr std::uint32_t kClosed = UINT32_MAX;  // more forks than a process can have

  std::int32_t pid = 0;
  std::uint32_t forks = kClosed;

  // A session in check mode bears another number of forks, so that it is never here: its calls take a slower
  // way. No process forks so often.
  static constexpr std::uint32_t kChecked = std::uint32_t{1} << 31;

  bool is_here() const noexcept { return muster::client::forks() == forks; }
  // In check mode, and in its process.
  bool is_checked() const noexcept {
    return forks != kClosed && (muster::client::forks() | kChecked) == forks;
  }
  // Why the session cannot be used where is_here() is false; ok if it is in check mode. Errors: STALE.
  Status why_not() const;
};

inline constexpr std::size_t kKeptSessions = 64;

// Memory for one session, of one size in the whole process. It throws std::bad_alloc.
void* take_session_memory(std::size_t bytes);
// Keeps the memory of a closed session. A caller that still holds its address finds the mark of a closed one.
void keep_session_memory(void* memory) noexcept;

}  // namespace muster::client
