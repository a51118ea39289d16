// Checks of option values. Each returns what is wrong, or an empty text.
#pragma once

#include <cstdint>
#include <string>

namespace muster::cli {

// Decimal digits with an optional sign; low and high included.
std::string whole_number_fault(const std::string& text, std::int64_t low, std::int64_t high);
// A finite number; low and high included.
std::string number_fault(const std::string& text, double low, double high);
std::string empty_fault(const std::string& text);

}  // namespace muster::cli
