// UTF-8: enough to refuse text that is not, and to keep text from controlling a terminal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

// Bytes of the well-formed character at byte `i` of `text`, 1..4; 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t i);

// Characters of well-formed text, and the byte offset of the character at `index`: the size if there is none.
std::size_t utf8_characters(std::string_view text);
std::size_t utf8_offset(std::string_view text, std::size_t index);

constexpr bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// Bytes of the control character at byte `i`: 1, or 2 for U+0080 to U+009F; 0: none is there.
std::size_t control_bytes(std::string_view text, std::size_t i);

// The text, safe for a terminal: control characters and bytes that are no UTF-8 become '?', one for one. Line
// ends and tabs stay in kSeveral and become blanks in kOne.
enum class Lines : std::uint8_t { kOne, kSeveral };
std::string printable(std::string_view text, Lines lines);

}  // namespace muster
