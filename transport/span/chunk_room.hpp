// How much of an operation that is not urgent may be with the library at once: one chunk to each node. The
// library sends in order, so an urgent message waits for no more.
#pragma once

#include <cstddef>
#include <span>

namespace muster::transport::span {

// The size of a chunk of a row, and of two pieces of a stream.
inline constexpr std::size_t kChunkBytes = 1 << 20;

// The bytes of an operation's chunk for one other node.
struct ChunkToNode {
  std::size_t now = 0;    // with the library
  std::size_t later = 0;  // the most that it has yet to give at once
};

// Whether chunk `index` may give the library its next `bytes`. The first chunk always may, so nodes never
// wait for each other in a circle: the first chunk that some node has not ended is the first on each such
// node. So a later chunk leaves room for whatever an earlier one has yet to give.
inline bool may_give(std::span<const ChunkToNode> chunks, std::size_t index, std::size_t bytes) {
  std::size_t given = bytes;
  for (std::size_t i = chunks.size(); index > 0 && i-- > 0;) {
    if (i == index) continue;
    const std::size_t most = i < index && chunks[i].later > chunks[i].now ? chunks[i].later : chunks[i].now;
    if (given + most > kChunkBytes) return false;
    given += chunks[i].now;
  }
  return true;
}

}  // namespace muster::transport::span
