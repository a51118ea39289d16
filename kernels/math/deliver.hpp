// Writes one result to several targets, with streaming stores where that pays (copy.hpp).
#pragma once

#include <muster/muster.h>

#include <cstddef>
#include <span>

namespace muster::math {

// Copies `bytes` from source to each target, a tile at a time, so that the source is fetched once. A target
// is the source itself, or overlaps neither it nor another target. `streaming_from_bytes` as for copy().
void copy_to_all(std::span<std::byte* const> targets, const std::byte* source, std::size_t bytes,
                 std::size_t streaming_from_bytes);

// reduce() into each target; at most kReduceSourcesMax sources and as many targets. A target may be exactly
// one of the sources. A result of `streaming_from_bytes` or more is streamed, as by copy(), if that pays. A
// target that is a source is not streamed, because its lines are in the cache; where there are several
// targets, this is found only if target k is source k.
void reduce_to_all(muster_dtype dtype, muster_redop redop, std::span<const std::byte* const> sources,
                   std::span<std::byte* const> targets, std::size_t count, double scale,
                   std::size_t streaming_from_bytes);

}  // namespace muster::math
