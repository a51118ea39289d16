// UTF-8, as far as a reader must know it to refuse what is none.
#pragma once

#include <cstddef>
#include <string_view>

namespace muster::config {

// Bytes of the well-formed character at byte `i` of `text`, 1..4; 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t i);

}  // namespace muster::config
