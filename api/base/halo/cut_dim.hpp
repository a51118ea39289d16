// CutDim: one dim of a stencil over the ranks that cut it.
#pragma once

#include "api/base/halo/reach.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace muster::halo {

// The dim is cut into cells, one for each coordinate along an axis; one cell if no axis cuts it. Cells may be
// empty, of items and of results.
//
// Owns    the reach, and where each cell begins.
// Thread  a value; any. Each call takes the time of the cells that it names, and of a search among all.
// Bound   -
// Fails   never.
class CutDim {
 public:
  // A part of what a cell reads.
  struct Run {
    std::size_t owner;  // cell
    std::int64_t from;  // the first item, in the dim
    std::int64_t at;    // where the cell reads it: elsewhere than `from` in a pad
    std::int64_t length;
    bool is_own;  // the cell has it, and at its own place
  };

  // Where the items and the results of each cell begin, and their number last.
  CutDim(Reach reach, std::vector<std::int64_t> starts, std::vector<std::int64_t> boundaries);

  const Reach& reach() const { return reach_; }
  std::size_t cells() const { return starts_.size() - 1; }
  const std::vector<std::int64_t>& starts() const { return starts_; }
  const std::vector<std::int64_t>& boundaries() const { return boundaries_; }

  Extent own(std::size_t cell) const { return {starts_[cell], starts_[cell + 1]}; }
  Extent results(std::size_t cell) const { return {boundaries_[cell], boundaries_[cell + 1]}; }
  Extent needed(std::size_t cell) const { return reach_.reads(results(cell)); }
  Extent held(std::size_t cell) const;      // the least that has own and needed
  Extent interior(std::size_t cell) const;  // the results that read nothing but own items

  bool has_ghosts() const;  // any cell

  // They make up what the cell reads, end to end.
  std::vector<Run> runs(std::size_t cell) const;
  // The cells, in rising order, of whose runs this one may be the owner; perhaps itself.
  std::vector<std::size_t> readers(std::size_t cell) const;

 private:
  std::size_t owner_of(std::int64_t item) const;
  std::vector<Extent> images(std::size_t cell) const;

  Reach reach_;
  std::vector<std::int64_t> starts_;
  std::vector<std::int64_t> boundaries_;
  std::vector<std::size_t> computing_;  // cells that have results
};

}  // namespace muster::halo
