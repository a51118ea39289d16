// UTF-8, as far as a reader must know it to refuse what is none and a writer to keep a terminal unharmed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace muster {

// Bytes of the well-formed character at byte `i` of `text`, 1..4; 0 when there is none.
std::size_t utf8_length(std::string_view text, std::size_t i);

// Bytes of the control character that stands at `i`, of UTF-8's two-byte ones too; 0: none does.
std::size_t control_bytes(std::string_view text, std::size_t i);

// Harmless on a terminal, character for character: what controls it and what is no UTF-8 becomes '?'. Line
// ends and tabs stay in kSeveral; in kOne they become blanks.
enum class Lines : std::uint8_t { kOne, kSeveral };
std::string printable(std::string_view text, Lines lines);

}  // namespace muster
