// NodeRow: the elements of a collective whose counts all members agree on, in the order in which nodes
// exchange them. An operation with blocks has a row of all blocks, those of the first node's members first:
// each node's slice is the blocks of its members. Any other has its vector, and the slices are equal parts.
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/nodes/span.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory_resource>
#include <vector>

namespace muster::transport::span {

// Owns    where each block begins. Thread  immutable; any.
// Bound   an entry for each member.
// Fails   never: the collective is valid.
class NodeRow {
 public:
  struct Range {
    std::uint64_t first = 0, last = 0;
    std::uint64_t count() const { return last - first; }
  };

  // A part of the row that moves at once, cut into the slices of nodes.
  struct Chunk {
    explicit Chunk(std::pmr::memory_resource* memory = std::pmr::get_default_resource())
        : slices(memory), at(memory) {}
    std::pmr::vector<Range> slices;  // by node: elements of the row
    std::pmr::vector<std::uint64_t>
        at;  // by node: where its slice begins, in elements; then how many there are

    std::uint64_t elements() const { return at.back(); }
    // Calls visit(node, range of the row) for elements [first, last) of the chunk.
    template<class Visit>
    void for_each_slice(std::uint64_t first, std::uint64_t last, Visit visit) const {
      for (std::size_t j = 0; j < slices.size(); ++j) {
        const std::uint64_t from = std::max(first, at[j]), to = std::min(last, at[j + 1]);
        if (from < to) visit(j, Range{slices[j].first + (from - at[j]), slices[j].first + (to - at[j])});
      }
    }
  };

  NodeRow(const Collective& collective, const Span& span);

  std::uint64_t elements() const { return stretches_.empty() ? 0 : stretches_.back().end; }
  std::size_t blocks() const { return stretches_.size(); }
  // Into how many chunks of about `most` elements it is cut; at least one.
  std::uint32_t chunks(std::uint64_t most) const;
  Chunk chunk(std::uint32_t index, std::uint32_t of) const {
    Chunk one;
    cut(index, of, one);
    return one;
  }
  // The same, into an empty chunk.
  void cut(std::uint32_t index, std::uint32_t of, Chunk& into) const;

  // Calls visit(block, elements of that block, where they are in the row) for a range of the row.
  template<class Visit>
  void for_each_block(Range range, Visit visit) const {
    for (const Stretch& stretch : stretches_) {
      const std::uint64_t from = std::max(range.first, stretch.begin);
      const std::uint64_t to = std::min(range.last, stretch.end);
      if (from < to) visit(stretch.block, Range{from - stretch.begin, to - stretch.begin}, from);
    }
  }

 private:
  struct Stretch {
    std::uint32_t block = 0;
    std::uint64_t begin = 0, end = 0;
  };
  std::uint32_t nodes_;
  std::uint64_t grain_;  // elements of a cache line
  std::vector<Stretch> stretches_;
  std::vector<std::uint64_t> of_node_;  // where each node's slice begins; empty: slices are equal parts
};

}  // namespace muster::transport::span
