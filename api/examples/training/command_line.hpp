// The command line of a program that trains: checks of values, and messages that say what was meant.
#pragma once

#include <charconv>
#include <cstdint>
#include <functional>
#include <sstream>
#include <string>
#include <system_error>
#include <type_traits>

namespace CLI {
class App;
}

namespace training {

template<class Number>
std::string text_of(Number value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

// The fault in the text of a number; empty: none.
template<class Number>
std::string number_fault(const std::string& text, Number low, Number high) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  const bool shape = stop == end && error != std::errc::invalid_argument;
  // Refuses 010, which some read as eight and some as ten.
  if (!shape || (std::is_integral_v<Number> && text.size() > 1 && text.front() == '0'))
    return "'" + text + "' is not a " +
           (!std::is_integral_v<Number> ? "number"
            : std::is_signed_v<Number>  ? "whole number"
                                        : "whole number without a sign");
  if (error != std::errc() || !(value >= low && value <= high))
    return text + " is not in the range " + text_of(low) + " to " + text_of(high);
  return "";
}

// For an option's check().
template<class Number>
std::function<std::string(const std::string&)> in_range(Number low, Number high) {
  return [low, high](const std::string& text) { return number_fault(text, low, high); };
}

std::string empty_fault(const std::string& text);

// False: --help was asked for, and has been printed. Throws UsageError with one sentence for anything wrong.
bool parse(CLI::App& app, int argc, const char* const* argv);

}  // namespace training
