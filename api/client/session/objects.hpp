// Objects: broadcasts and gathers of bytes whose number only their giver knows.
#pragma once

#include "api/base/result.hpp"
#include "api/client/groups.hpp"
#include "api/client/run/plans.hpp"
#include "api/client/run/run.hpp"
#include "api/client/submit/buffers.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace muster::client {

// Owns    a buffer of the session, through which the bytes go in pieces, and the latest result.
// Thread  the session's.
// Bound   memory for the result; a piece of 64 KiB for each member in the arena.
// Fails   as the collectives that it runs, and NO_RESOURCE for the buffer and the result. A failure of this
//         rank alone in the middle aborts the group, because the other members would wait for it.
class Objects {
 public:
  // All outlive it.
  Objects(Groups& groups, Buffers& buffers, Plans& plans, Runs& runs)
      : groups_(groups), buffers_(buffers), plans_(plans), runs_(runs) {}

  // At every member, result() is the object of member `root`.
  Status broadcast(muster_group group, std::int32_t root, std::span<const std::byte> given);
  // Every member gives. result() has all of it at the member `root`, or at every member if root is -1, and is
  // empty elsewhere. In both calls `given` may lie in the former result.
  Status gather(muster_group group, std::int32_t root, std::span<const std::byte> given);

  std::span<const std::byte> result() const { return result_; }
  // Where each member's bytes begin in result(), and the end of the last.
  std::span<const std::uint64_t> offsets() const { return offsets_; }

 private:
  Status reserve(std::size_t members);
  // Both plans of a call are made before the first one runs, so a refusal to this rank alone comes before
  // others wait for it.
  Result<muster_plan> broadcast_plan(muster_group group, std::int32_t root, std::uint64_t bytes);
  Result<muster_plan> gather_plan(muster_group group, std::int32_t root, std::uint64_t bytes);
  Status make_room(std::uint64_t bytes);
  // Takes the former result out if `given` lies in it.
  std::vector<std::byte> take_if_given(std::span<const std::byte> given);
  template<class Rounds>
  Status in_step(muster_group group, std::size_t members, Rounds rounds);

  Groups& groups_;
  Buffers& buffers_;
  Plans& plans_;
  Runs& runs_;
  muster_buffer buffer_ = 0;
  std::byte* memory_ = nullptr;
  std::uint64_t bytes_ = 0;
  std::vector<std::byte> result_;
  std::vector<std::uint64_t> offsets_;
};

}  // namespace muster::client
