// A redistribution in the terms of the C API: the one collective that carries it out.
#pragma once

#include "api/base/layout/redistribution.hpp"
#include "api/base/result.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <vector>

namespace muster::client {

// An EXCHANGE of `sends` and `receives`, or an ALL_REDUCE.
struct Redistributed {
  muster_collective collective = MUSTER_COLLECTIVE_INIT;  // without group and faces
  std::vector<muster_face> sends{};
  std::vector<muster_face> receives{};
};

// What member `rank` does, whose arrays are `source` and `target`. Errors: kBadArgument (a view that is not
// the rank's array), kUnsupported (more than one operation, or more dims than a view has), kNoResource
// (faces).
Result<Redistributed> redistributed(const Redistribution& redistribution, std::int64_t rank,
                                    const muster_tensor& source, const muster_tensor& target);

}  // namespace muster::client
