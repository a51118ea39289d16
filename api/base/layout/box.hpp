// Box: a block of a tensor, as an offset and a length per dim. All layouts are made of boxes (decision D10).
#pragma once

#include <muster/muster.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

namespace muster {

inline constexpr std::size_t kTensorDimsMax = MUSTER_TENSOR_DIMS_MAX;

// An index, an offset or a shape, outermost dim first. Entries from the tensor's number of dims on are 0.
using Index = std::array<std::int64_t, kTensorDimsMax>;

struct Box {
  std::size_t dims = 0;  // 0: a scalar, which is one element
  Index offset{};
  Index length{};

  std::int64_t elements() const noexcept;  // 1 for a scalar
  bool empty() const noexcept { return elements() == 0; }
  friend bool operator==(const Box&, const Box&) = default;
};

// What both contain; nothing if they share no element. Both have equally many dims.
std::optional<Box> intersection(const Box& a, const Box& b) noexcept;

std::string to_text(const Box& box);  // "[0:4, 2:5]": begin and end of each dim

}  // namespace muster
