// copy(): memory to memory, with stores that bypass the cache ("streaming") where that pays.
#pragma once

#include <cstddef>

namespace muster::math {

// An operation that writes this many bytes or more, over all its members, streams its targets. This is the
// size of the last cache of a Zen 4 core complex. At three quarters of it, ordinary stores take two fifths to
// two thirds of the time of streaming; from one and a half of it on, streaming is faster.
inline constexpr std::size_t kStreamBytes = 32 << 20;

// Never stream: for a target that is read again soon.
inline constexpr std::size_t kNeverStream = static_cast<std::size_t>(-1);

// The `streaming_from_bytes` for pieces of an operation that writes `operation_bytes` over all its members.
constexpr std::size_t streaming_from(std::size_t operation_bytes) {
  return operation_bytes >= kStreamBytes ? 0 : kNeverStream;
}

// Copies `bytes` from source to target. The two do not overlap, or are the same range: then nothing happens.
// A copy of `streaming_from_bytes` or more is streamed, which gains about a factor of two in operations that
// write kStreamBytes, and loses in smaller ones. Only the caller knows that size, so it passes 0 for a piece
// of a large operation. Streamed bytes are ordered before later stores of this thread, as ordinary ones are.
void copy(std::byte* target, const std::byte* source, std::size_t bytes, std::size_t streaming_from_bytes);

// Writes a piece of a large streamed write. Only end_stream() orders the pieces before later stores. It waits
// for memory, so call it once, behind the last piece.
void stream(std::byte* target, const std::byte* source, std::size_t bytes);
void end_stream();

}  // namespace muster::math
