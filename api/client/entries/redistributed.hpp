// A redistribution in the terms of the C API: the one collective that carries it out.
#pragma once

#include "api/base/layout/redistribution.hpp"
#include "api/base/result.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <vector>

namespace muster::client {

// An EXCHANGE of `sends` and `receives`, an ALL_REDUCE, or a REDUCE_SCATTER of which each member has one
// block (counts and offsets) or several pieces.
struct Redistributed {
  muster_collective collective = MUSTER_COLLECTIVE_INIT;  // without group and lists
  std::vector<std::int64_t> ranks{};                      // that take part; none: all
  std::vector<muster_face> sends{};
  std::vector<muster_face> receives{};
  std::vector<std::uint64_t> counts{};
  std::vector<std::uint64_t> offsets{};
  std::vector<std::uint32_t> piece_counts{};
  std::vector<muster_piece> pieces{};

  muster_collective in(muster_group group) const;  // valid as long as this is
};

// The part of member `rank`, with its arrays `source` and `target`. Errors: kBadArgument (a view that is not
// the rank's array, a target where the source is); kUnsupported (more than one operation, or more dims than a
// view has); the same at all members, kNoResource (faces, pieces).
Result<Redistributed> redistributed(const Redistribution& redistribution, std::int64_t rank,
                                    const muster_tensor& source, const muster_tensor& target);

}  // namespace muster::client
