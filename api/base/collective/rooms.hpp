// Rooms: the offsets at which a start may begin the vectors of a plan.
#pragma once

#include "api/base/collective/collective.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster {

// The results of a plan's checks, kept so that a start with offsets repeats them without heap. Client and
// engine use the same checks, so the engine does not refuse offsets that the client accepts.
//
// Owns    the order of the blocks that are written.
// Thread  any, as a value.
// Bound   one number for each block of the target. allow() takes O(n log n) for n blocks, and mostly a few
//         steps: it looks at blocks only if the vectors meet in one buffer and do not move alike.
// Fails   check: kUnsupported for a collective that takes no offsets; kBadArgument naming field and value.
class Rooms {
 public:
  // Where the two vectors begin, in bytes from the start of their buffers.
  struct Offsets {
    std::uint64_t source = 0;
    std::uint64_t target = 0;
  };

  // The buffer of one vector.
  struct Room {
    std::uint64_t buffer = 0;  // two rooms of one buffer have equal handles
    std::uint64_t bytes = 0;
  };

  Rooms() = default;
  // For a share that check_share() accepts with its vectors at `planned`.
  Rooms(const Collective& collective, const Share& share, Room source, Room target, Offsets planned);

  // Whether the vectors may begin there. Collective and share are those of the constructor.
  bool allow(const Collective& collective, const Share& share, const Offsets& to) const;
  // The same check, with a sentence for the refusal.
  Status check(const Collective& collective, const Share& share, const Offsets& to) const;
  // The share's vectors at these offsets, which are allowed.
  Share::Bases bases(const Share& share, const Offsets& to) const;

 private:
  struct Side {
    Room room;
    std::uint64_t need = 0;   // bytes from the vector's start to the end of its last block
    std::uint64_t align = 0;  // bits that an offset may not have; 0 if the member has no such vector
    bool aligned(std::uint64_t offset) const { return (offset & align) == 0; }
    bool fits(std::uint64_t offset) const {
      return need == 0 || (need <= room.bytes && offset <= room.bytes - need);
    }
  };
  Status check_side(const Side& side, const char* name, std::uint64_t offset) const;
  // Nothing changes where both vectors move alike, or where they lie in different buffers.
  bool keep_distance(const Offsets& to) const { return apart_ || distance(to) == distance(planned_); }
  bool keep_place(const Offsets& to) const {
    return !in_pieces_ || (distance(to) == 0) == (distance(planned_) == 0);
  }
  // How far the source's start lies behind the target's, modulo 2^64. Only in one buffer.
  static std::uint64_t distance(const Offsets& offsets) { return offsets.source - offsets.target; }

  Side source_, target_;
  Offsets planned_;
  bool movable_ = false;
  bool apart_ = true;
  bool in_pieces_ = false;
  std::vector<std::uint32_t> order_;
};

// ---- shared with check_share() -----------------------------------------------------------------

// The blocks that have elements, in order of their offsets.
std::vector<std::uint32_t> in_order(std::span<const Block> blocks);
// Memory that is read and memory that is written must not overlap, or coincide in place. `at`: where the
// vectors begin. `order`: that of the target's blocks, which do not overlap. kBadArgument.
Status check_reads(const Collective& collective, const Share& share, const Rooms::Offsets& at,
                   std::span<const std::uint32_t> order);

}  // namespace muster
