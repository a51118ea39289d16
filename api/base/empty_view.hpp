// The one rule for views without elements: their strides say nothing. None is refused, and none is used.
#pragma once

#include <cstddef>
#include <cstdint>

namespace muster {

// View: muster_tensor, Face or the like, with as many dims as its lists have room for.
template<class View>
bool has_no_elements(const View& view) noexcept {
  for (std::int32_t d = 0; d < view.dims; ++d)
    if (view.size[static_cast<std::size_t>(d)] == 0) return true;
  return false;
}

}  // namespace muster
