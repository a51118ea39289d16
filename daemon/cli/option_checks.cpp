#include "daemon/cli/option_checks.hpp"

#include <charconv>

#include <fmt/format.h>

namespace muster::cli {
namespace {

template<class Number>
std::string fault(const std::string& text, Number low, Number high, const char* kind) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || stop != end || error == std::errc::invalid_argument)
    return fmt::format("'{}' is not a {}", text, kind);
  if (error == std::errc::result_out_of_range || !(value >= low && value <= high))
    return fmt::format("{} is not in the range {} to {}", text, low, high);
  return "";
}

}  // namespace

std::string whole_number_fault(const std::string& text, std::int64_t low, std::int64_t high) {
  // 010 is eight to some readers and ten to others, so it is refused.
  const std::size_t first = text.starts_with('-') ? 1 : 0;
  const bool digits = text.find_first_not_of("0123456789", first) == std::string::npos;
  if (digits && text.size() > first + 1 && text[first] == '0')
    return fmt::format("{} begins with 0; write it without", text);
  return fault(text, low, high, "whole number");
}

std::string number_fault(const std::string& text, double low, double high) {
  return fault(text, low, high, "number");
}

std::string empty_fault(const std::string& text) {
  return text.empty() ? "the value is empty; give one, or leave the option out" : "";
}

}  // namespace muster::cli
