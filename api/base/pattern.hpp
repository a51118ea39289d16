// Patterns of names, as the C API takes them.
#pragma once

#include <string_view>

namespace muster {

// Whether a pattern fits a whole name: '*' stands for any bytes, '?' for one. Takes time in proportion to
// both lengths' product at most.
bool fits_pattern(std::string_view pattern, std::string_view name);

}  // namespace muster
