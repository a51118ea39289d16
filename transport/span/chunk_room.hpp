// How much of operations that are not urgent may be with the library at once: one chunk for each node, of all
// of them together. The library sends in order, so an urgent message waits for no more.
#pragma once

#include "api/base/clock.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <list>
#include <memory_resource>
#include <ranges>
#include <span>

namespace muster::transport::span {

// The size of a chunk of a row, and of two pieces of a stream.
inline constexpr std::size_t kChunkBytes = 1 << 20;

// The bytes of an operation's chunk for one other node.
struct ChunkToNode {
  std::size_t now = 0;    // with the library
  std::size_t later = 0;  // the most that it has yet to give at once
};

// Whether chunk `index` of an operation may give the library its next `bytes`, as far as its other chunks are
// concerned. The first chunk always may, so no operation makes nodes wait in a circle: the first chunk that
// some node has not ended is the first on each such node. So a later chunk leaves room for whatever an
// earlier one has yet to give.
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

// ChunkRoom: the room of one connection. Operations that find none wait in a queue: so they share the link
// message by message, however long they are.
//
// With several operations nodes might wait for each other's room in a circle: a message that a node has given
// may wait for one that its peer has no room for. So if nothing has begun or ended for kPatience, the first
// in the queue goes on without room.
//
// Owns    the queue. Thread  that of the network. Bound  operations in flight. Fails  never.
class ChunkRoom {
 public:
  static constexpr Nanos kPatience = std::chrono::milliseconds(100);

  // `now`: when the present turn began; it outlives this.
  ChunkRoom(const Instant& now, std::pmr::memory_resource* memory) : now_(now), queue_(memory) {}

  // Whether `operation` may give its next message. If not, it waits in the queue until it may, or leaves.
  bool may_give(const void* operation, std::size_t bytes) {
    const bool has_room = given_ == 0 || given_ + bytes <= kChunkBytes || now_ - moved_at_ >= kPatience;
    const bool is_first = queue_.empty() || queue_.front() == operation;
    if (has_room && is_first) {
      leave(operation);
      return true;
    }
    if (std::ranges::find(queue_, operation) == queue_.end()) queue_.push_back(operation);
    return false;
  }
  void leave(const void* operation) { queue_.remove(operation); }

  // A message that is not urgent goes to the library, and has ended.
  void began(std::size_t bytes) {
    given_ += bytes;
    moved_at_ = now_;
  }
  void ended(std::size_t bytes) {
    given_ -= bytes;
    moved_at_ = now_;
  }
  std::size_t given() const { return given_; }  // bytes

 private:
  const Instant& now_;
  Instant moved_at_{0};  // when a message last began or ended
  std::size_t given_ = 0;
  std::pmr::list<const void*> queue_;
};

}  // namespace muster::transport::span
