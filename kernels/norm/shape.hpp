// The cut of the norms into parts, and the operands of a backward by name.
#pragma once

#include "kernels/element.hpp"
#include "kernels/row.hpp"

#include <algorithm>
#include <cstdint>

namespace muster::kernels::norm {

// Both norms are one computation: the root mean square norm is the layer norm without a mean and a bias.
enum class Form : std::uint8_t { kRms, kLayer };

// A part streams this many elements of x: 10 to 30 µs.
inline constexpr std::int64_t kElementsPerPart = 32 * 1024;

inline std::int64_t rows_per_part(const Tensor& x) {
  return std::max<std::int64_t>(1, kElementsPerPart / std::max<std::int64_t>(1, x.size[1]));
}
// Whole cache lines of floats, so that two parts do not share one.
inline std::int64_t columns_per_part(const Tensor& x) {
  constexpr std::int64_t kLine = 16;
  const std::int64_t columns = kElementsPerPart / std::max<std::int64_t>(1, x.size[0]);
  return std::clamp<std::int64_t>(columns / kLine * kLine, kLine, 4096);
}

struct Backward {
  const Tensor& dy;
  const Tensor& x;
  const Tensor& weight;
  const Tensor* mean;  // null for kRms
  const Tensor& rstd;
  const Tensor& dx;
  const Tensor& dweight;
  const Tensor* dbias;  // null for kRms and where it is absent
  Write write_dx;
  Write write_dweight;
};

void forward_rows(Form form, const Args& args, Range rows);
void backward_rows(const Backward& b, Range rows);
void backward_columns(const Backward& b, Range columns);

}  // namespace muster::kernels::norm
