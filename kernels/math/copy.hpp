// copy(): memory to memory, past the cache when that pays.
#pragma once

#include <cstddef>

namespace muster::math {

// From this many written bytes of a whole operation on, over all its members, targets are streamed: the last
// cache of the cores that were measured (a core complex of Zen 4). Of three quarters of it, what stays in it
// takes two fifths to two thirds of the time; from one and a half of it on streaming is faster.
inline constexpr std::size_t kStreamBytes = 32 << 20;

// Never stream: for a target that is read again soon.
inline constexpr std::size_t kNeverStream = static_cast<std::size_t>(-1);

// For copy() and the reductions: where a piece of an operation that writes `operation_bytes` over all its
// members begins to stream.
constexpr std::size_t streaming_from(std::size_t operation_bytes) {
  return operation_bytes >= kStreamBytes ? 0 : kNeverStream;
}

// Copies `bytes` from source to target, which are the same range (then nothing happens) or do not overlap.
// From `streaming_from_bytes` on the stores bypass the cache: worth about a factor of two once a whole
// operation writes kStreamBytes, and a loss below. The caller knows the size of the whole
// operation, so a piece of a large one passes 0. Streamed bytes are ordered before later stores of this
// thread, as ordinary ones are.
void copy(std::byte* target, const std::byte* source, std::size_t bytes, std::size_t streaming_from_bytes);

// The pieces of one large streamed write. Only end_stream() orders them before later stores: it waits for
// memory, so once, and not once a piece.
void stream(std::byte* target, const std::byte* source, std::size_t bytes);
void end_stream();

}  // namespace muster::math
