// RowMemory: where members of this node have a range of the row in one piece of their memory.
#pragma once

#include "api/base/nodes/row.hpp"
#include "transport/collective/communicator.hpp"

#include <cstddef>
#include <span>

namespace muster::transport::span {

// Owns    nothing: the collective, the row and the members outlive it.
// Thread  immutable; any.
// Bound   -.
// Fails   never: nullptr where the range is in several pieces, or no member has it.
class RowMemory {
 public:
  RowMemory(const Collective& collective, const NodeRow& row, std::span<const LocalMember> members);

  // Where a member has the node's contribution as it is. It is only read.
  std::byte* source_of(NodeRow::Range range) const;
  // Where the first member that gets the range gets it.
  std::byte* target_of(NodeRow::Range range) const;

 private:
  template<class ViewOf>
  std::byte* whole(NodeRow::Range range, ViewOf view_of) const;

  const Collective& c_;
  const NodeRow& row_;
  const std::span<const LocalMember> members_;
  const std::size_t element_;  // bytes
};

}  // namespace muster::transport::span
