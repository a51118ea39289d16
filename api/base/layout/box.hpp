// Box: a block of a tensor, as an offset and a length per dim. All layouts are made of boxes (decision D10).
#pragma once

#include <muster/muster.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace muster {

// An index, an offset or a shape, outermost dim first. Entries from the tensor's number of dims on are 0.
using Index = std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX>;

struct Box {
  std::size_t dims = 0;  // 0: a scalar, which is one element
  Index offset{};
  Index length{};

  std::int64_t elements() const noexcept;  // at most those of the tensor, so the product fits
  friend bool operator==(const Box&, const Box&) = default;
};

std::string to_text(std::span<const std::int64_t> shape);  // "[7, 9]"

}  // namespace muster
