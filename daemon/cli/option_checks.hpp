// What the value of an option must be. Each check returns what is wrong, or an empty text.
#pragma once

#include <cstdint>
#include <string>

namespace muster::cli {

// Decimal digits, perhaps with a sign; low and high included.
std::string whole_number_fault(const std::string& text, std::int64_t low, std::int64_t high);
// Finite; low and high included.
std::string number_fault(const std::string& text, double low, double high);
std::string empty_fault(const std::string& text);

}  // namespace muster::cli
