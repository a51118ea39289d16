// PairPlan: how nodes carry out one collective whose members agree pair by pair: the streams between this
// node and each other, and their chunks. It depends on the collective, the group and the shares of this
// node's members, not on a launch.
//
// All data between the members of two nodes is one stream: by giver, then by getter, then by tag. Both nodes
// know its length, because members have agreed on each edge. The data between members of this node is a
// stream of its own.
//
// A segment of a stream is a block or a face. It begins at a multiple of 8 bytes. A long segment has chunks
// of its own, which move straight from and to the memory of members where that is in one piece. Short ones
// share chunks, and pass through staging. So both nodes cut a stream at the same places.
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/nodes/span.hpp"
#include "transport/collective/communicator.hpp"
#include "transport/span/chunk_room.hpp"
#include "transport/span/vectors.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>
#include <vector>

namespace muster::transport::span {

struct PairStream {
  // A block of the launch's member `member`: its vector begins where the launch says.
  struct BlockOfMember {
    std::uint32_t member = 0;
    std::span<const Block> entries;
    std::size_t element = 1;  // bytes

    // As a part of the member's source, or of its target.
    BlockView<const std::byte> given(std::span<const LocalMember> members) const {
      return {members[member].bases.source, entries, element};
    }
    BlockView<std::byte> got(std::span<const LocalMember> members) const {
      return {members[member].bases.target, entries, element};
    }
  };
  struct Segment {
    std::uint64_t begin = 0;  // in its stream, in bytes
    std::uint64_t bytes = 0;
    std::variant<BlockOfMember, const Face*> data;
    std::size_t element_bytes() const;
  };
  struct Chunk {
    std::uint64_t begin = 0, end = 0;  // in its stream, in bytes
    std::size_t first = 0, last = 0;   // its segments
    std::size_t bytes() const { return static_cast<std::size_t>(end - begin); }
  };

  std::vector<Segment> segments;
  std::vector<Chunk> chunks;
  std::uint64_t bytes = 0;

  // Behind the other segments, with a gap only where elements are wider than those before.
  void add(std::uint64_t length, std::variant<BlockOfMember, const Face*> data);
  // Cuts the stream into chunks, once all segments are there.
  void cut(std::size_t piece_bytes);
  bool goes_inline() const;  // with the match request
};

// Owns    the streams, which refer to the shares of members.
// Thread  immutable; any.
// Bound   an entry for each block or face of this node's members.
// Fails   never: the collective and the shares are valid.
struct PairPlan {
  // `members`: those of this node, in order of index; the shares outlive it. `direct_from`: streams of so
  // many bytes may travel from and to members.
  PairPlan(const Collective& collective, const Span& span, std::span<const LocalMember> members,
           std::size_t direct_from);

  std::uint64_t bytes() const;  // of its lists, about
  // Whether members of a launch have sources and targets that share memory.
  bool in_place(std::span<const LocalMember> members) const;

  struct Between {  // this node and another, or itself
    PairStream out, in;
  };
  std::vector<std::uint32_t> nodes;     // that take part, and this one; places in the span, rising
  std::uint32_t here = 0;               // this one, among them
  std::vector<std::uint32_t> partners;  // members of others that it has edges with; only of faces and pairs
  std::vector<Between> between;         // by node, as `nodes`
  std::vector<Hash128> balances;        // of faces, by node, as `nodes`: of the edges with it. Else empty.
  std::uint64_t most_chunks = 0;        // of a stream
  std::uint64_t chunks_out = 0;         // of all streams
  std::uint64_t chunks = 0;             // out and in; those from this node to itself once
  bool is_large = false;                // chunks may go from and to members

 private:
  void add_blocks(const Collective& collective, const Span& span, std::span<const LocalMember> members);
  void add_faces(const Span& span, std::span<const LocalMember> members);
  void find_nodes(const Collective& collective, const Span& span, std::span<const LocalMember> members);
  Between& with(const Span& span, std::int32_t member);

  struct Extents {  // bytes of a member's vectors, from their beginnings
    std::uint64_t given = 0, got = 0;
  };
  std::vector<Extents> extents_;  // by member; where vectors may be in place
};

}  // namespace muster::transport::span
