// Reducer: the loops of one dtype, for whoever reduces the same kind of vectors over and over.
#pragma once

#include <muster/muster.h>

#include <cstddef>

namespace muster::math {

// What one call reduces: as the arguments of reduce(), with a count of at least 1.
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
