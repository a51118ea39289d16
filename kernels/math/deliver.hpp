// One result into every one of several targets, past the cache when that pays.
#pragma once

#include <muster/muster.h>

#include <cstddef>
#include <span>

namespace muster::math {

// Copies `bytes` from source to each target, a tile at a time, so that the source is fetched once. Targets
// are the source itself or do not overlap it, nor each other. `streaming_from_bytes` as for copy().
void copy_to_all(std::span<std::byte* const> targets, const std::byte* source, std::size_t bytes,
                 std::size_t streaming_from_bytes);

// reduce() into each target; at most kReduceSourcesMax sources, and as many targets. A target may be exactly
// one of the sources. From `streaming_from_bytes` of result on targets are streamed, as by copy(); but not
// one that is a source, whose lines just were in the cache: a single target, or target k that is source k.
void reduce_to_all(muster_dtype dtype, muster_redop redop, std::span<const std::byte* const> sources,
                   std::span<std::byte* const> targets, std::size_t count, double scale,
                   std::size_t streaming_from_bytes);

}  // namespace muster::math
