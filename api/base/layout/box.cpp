#include "api/base/layout/box.hpp"

#include <algorithm>
#include <functional>
#include <numeric>

#include <fmt/format.h>

namespace muster {

std::int64_t Box::elements() const noexcept {
  const auto end = length.begin() + static_cast<std::ptrdiff_t>(dims);
  if (std::find(length.begin(), end, 0) != end) return 0;  // the product of the others need not fit
  return std::accumulate(length.begin(), end, std::int64_t{1}, std::multiplies<>());
}

std::string to_text(std::span<const std::int64_t> shape) {
  return fmt::format("[{}]", fmt::join(shape, ", "));
}

}  // namespace muster
