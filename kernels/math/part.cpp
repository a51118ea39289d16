#include "kernels/math/part.hpp"

#include "api/base/assert.hpp"
#include "api/base/dtype.hpp"
#include "kernels/math/deliver.hpp"

namespace muster::math {

void carry_out(const Collective& what, std::span<const std::byte* const> sources,
               std::span<std::byte* const> targets, std::size_t count, std::size_t streaming_from_bytes) {
  if (has_reduction(what.op))
    return reduce_to_all(what.dtype, what.redop, sources, targets, count, what.scale, streaming_from_bytes);
  MUSTER_ASSERT(sources.size() == 1);
  copy_to_all(targets, sources[0], count * dtype_bytes(what.dtype), streaming_from_bytes);
}

}  // namespace muster::math
