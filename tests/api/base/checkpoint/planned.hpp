// The parts that the ranks of a layout contribute to a save, and an in-memory checkpoint made of these parts.
#pragma once

#include "api/base/checkpoint/read_plan.hpp"
#include "api/base/checkpoint/strided.hpp"
#include "api/base/checkpoint/write_plan.hpp"
#include "api/base/layout/layout.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::test {

inline checkpoint::OwnTensor own_tensor(const std::string& name, const Layout& layout, std::int64_t rank,
                                        muster_dtype dtype = MUSTER_F32) {
  checkpoint::OwnTensor own{name, dtype, layout.dims(), layout.shape()};
  for (const Layout::Piece& piece : layout.pieces(rank)) own.boxes.push_back(piece.box);
  return own;
}

// One tensor, saved by the ranks of its layout.
inline std::vector<std::vector<checkpoint::OwnTensor>> members_of(const std::string& name,
                                                                  const Layout& layout) {
  std::vector<std::vector<checkpoint::OwnTensor>> members;
  for (std::int64_t rank = 0; rank < layout.ranks(); ++rank)
    members.push_back({own_tensor(name, layout, rank)});
  return members;
}

inline Layout rows(std::vector<std::int64_t> shape, std::int64_t ranks) {
  return *Layout::make(shape, {Layout::Axis{"shard", ranks, Placement::shard(0)}});
}

// Rows cut by tp, and what tp left by FSDP: dp outermost.
inline Layout strided_rows(std::int64_t rows, std::int64_t tp, std::int64_t dp) {
  const std::int64_t shape[] = {rows};
  return *Layout::make(
      shape, {Layout::Axis{"dp", dp, Placement::shard(0)}, Layout::Axis{"tp", tp, Placement::shard(0)}});
}

}  // namespace muster::test
