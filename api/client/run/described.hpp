// A collective as its caller described it, in the terms of the direct path: addresses instead of handles.
#pragma once

#include "api/base/result.hpp"
#include "api/client/direct/planning.hpp"
#include "api/client/submit/buffers.hpp"

#include <muster/muster.h>

#include <cstdint>

namespace muster::client {

// Translates the description of member `index` of `ranks`. The engine has checked it already.
Result<Described> described_of(Buffers& buffers, const muster_collective& said, std::int32_t index,
                               std::int32_t ranks);

}  // namespace muster::client
