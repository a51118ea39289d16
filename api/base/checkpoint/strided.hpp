// Copies between two arrays of one shape and other strides, as runs that lie end to end in both.
#pragma once

#include "api/base/layout/box.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::checkpoint {

// The strides, in elements, of an array of this shape that has no gaps.
inline Index dense_strides(std::size_t dims, const Index& length) {
  Index strides{};
  std::int64_t stride = 1;
  for (std::size_t dim = dims; dim-- > 0; stride *= length[dim]) strides[dim] = stride;
  return strides;
}

// Where the element at `index` lies.
inline std::int64_t place_of(std::size_t dims, const Index& index, const Index& strides) {
  std::int64_t place = 0;
  for (std::size_t dim = 0; dim < dims; ++dim) place += index[dim] * strides[dim];
  return place;
}

// Calls body(from, to, elements) for each run, in row-major order: `from` and `to` are elements from the
// first one on. Stops at the first body that returns false, and then returns false. No heap.
template<class Body>
bool each_run(std::size_t dims, const Index& length, const Index& from, const Index& to, Body&& body) {
  for (std::size_t dim = 0; dim < dims; ++dim)
    if (length[dim] == 0) return true;
  std::int64_t run = 1;
  std::size_t outer = dims;  // the dims outside a run
  for (; outer > 0; --outer) {
    const std::size_t dim = outer - 1;
    if (length[dim] == 1) continue;
    if (from[dim] != run || to[dim] != run) break;
    run *= length[dim];
  }
  Index at{};
  while (true) {
    if (!body(place_of(outer, at, from), place_of(outer, at, to), run)) return false;
    std::size_t dim = outer;
    while (dim > 0 && ++at[dim - 1] == length[dim - 1]) at[--dim] = 0;
    if (dim == 0) return true;
  }
}

}  // namespace muster::checkpoint
