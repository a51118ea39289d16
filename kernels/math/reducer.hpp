// Reducer: the loops of one dtype and redop, for code that reduces the same kind of vectors repeatedly.
#pragma once

#include <muster/muster.h>

#include <cstddef>

namespace muster::math {

// The arguments of reduce() as one value, with a count of at least 1.
struct Reduction {
  muster_redop redop;
  const std::byte* const* sources;
  std::size_t source_count;
  std::byte* target;
  std::size_t count;
  double scale;
};
using Reducer = void (*)(const Reduction& reduction);

}  // namespace muster::math
