#include "daemon/config/quantity.hpp"

#include "api/base/assert.hpp"
#include "api/base/utf8.hpp"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>
#include <span>
#include <utility>

namespace muster::config {
namespace {

__extension__ using Wide = unsigned __int128;

struct Dimension {
  struct Unit {
    std::string_view name;
    std::int64_t scale;
    bool written;  // by the formatter; other units are only read
  };
  // Wrong words for a unit that edit distance would correct wrongly, and the right unit.
  struct Slip {
    std::string_view word;
    std::string_view instead;
  };
  std::string_view noun;
  std::span<const Unit> units;  // ascending where `written`
  std::span<const Slip> slips;
  std::string_view unit_of_bare;  // suggested for a number without a unit
};

constexpr std::int64_t kKi = 1024;
constexpr std::int64_t kK = 1000;

constexpr Dimension::Unit kByteUnits[]{
    {"B", 1, true},
    {"KiB", kKi, true},
    {"MiB", kKi* kKi, true},
    {"GiB", kKi* kKi* kKi, true},
    {"TiB", kKi* kKi* kKi* kKi, true},
    {"KB", kK, false},
    {"MB", kK* kK, false},
    {"GB", kK* kK* kK, false},
    {"TB", kK* kK* kK* kK, false},
};
constexpr Dimension::Slip kByteSlips[]{
    {"k", "KiB"},  {"m", "MiB"},  {"g", "GiB"},  {"t", "TiB"},  {"ki", "KiB"},
    {"mi", "MiB"}, {"gi", "GiB"}, {"ti", "TiB"}, {"byte", "B"}, {"bytes", "B"},
};

constexpr Dimension::Unit kTimeUnits[]{
    {"ns", 1, true},
    {"us", kK, true},
    {"ms", kK* kK, true},
    {"s", kK* kK* kK, true},
    {"min", 60 * kK* kK* kK, true},
    {"h", 3600 * kK* kK* kK, true},
};
constexpr Dimension::Slip kTimeSlips[]{
    {"m", "min"},       {"sec", "s"},    {"secs", "s"}, {"second", "s"},  {"seconds", "s"}, {"minute", "min"},
    {"minutes", "min"}, {"mins", "min"}, {"hour", "h"}, {"hours", "h"},   {"hr", "h"},      {"msec", "ms"},
    {"millis", "ms"},   {"usec", "us"},  {"µs", "us"},  {"micros", "us"}, {"nsec", "ns"},   {"nanos", "ns"},
};

constexpr Dimension kBytes{"size", kByteUnits, kByteSlips, "MiB"};
constexpr Dimension kTime{"duration", kTimeUnits, kTimeSlips, "s"};
std::string lowered(std::string_view text) {
  std::string out(text);
  for (char& c : out) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return out;
}

std::string unit_list(const Dimension& dimension) {
  std::string out;
  for (const Dimension::Unit& unit : dimension.units) {
    if (!out.empty()) out += ' ';
    out += unit.name;
  }
  return out;
}

const Dimension::Unit* find_unit(const Dimension& dimension, std::string_view name) {
  for (const Dimension::Unit& unit : dimension.units)
    if (unit.name == name) return &unit;
  return nullptr;
}

// The unit that a wrong word was meant to be; empty if unclear.
std::string_view meant_unit(const Dimension& dimension, std::string_view word) {
  const std::string low = lowered(word);
  for (const Dimension::Slip& slip : dimension.slips)
    if (slip.word == low) return slip.instead;
  for (const Dimension::Unit& unit : dimension.units)
    if (lowered(unit.name) == low) return unit.name;
  return {};
}

Complaint unit_complaint(const Dimension& dimension, std::string_view number, std::string_view word,
                         std::size_t offset) {
  if (word.empty()) {
    std::string remedy = fmt::format("{}{}", number, dimension.unit_of_bare);
    // Suggest bytes for a number like 67108864. A small one, such as 64, probably counts a larger unit.
    std::int64_t bytes = 0;
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), bytes);
    if (dimension.noun == "size" && error == std::errc() && end == number.data() + number.size() &&
        bytes >= 4096)
      remedy = format_bytes(bytes);
    return {fmt::format("a {} needs a unit ({})", dimension.noun, unit_list(dimension)), "write " + remedy,
            offset};
  }
  // In "60 s" the space is the only fault.
  const std::string_view trimmed = word.substr(std::min(word.find_first_not_of(' '), word.size()));
  std::string_view meant =
      find_unit(dimension, trimmed) != nullptr ? trimmed : meant_unit(dimension, trimmed);
  if (trimmed.size() < word.size() && !meant.empty()) {
    return {fmt::format("no space may stand between number and unit"),
            fmt::format("write {}{}", number, meant), offset};
  }
  std::string suggestion = meant.empty() ? fmt::format("write one of {}", unit_list(dimension))
                                         : fmt::format("write {}{}", number, meant);
  return {fmt::format("{} is no unit of {}", in_quotes(trimmed), dimension.noun), std::move(suggestion),
          offset};
}

struct Number {
  std::uint64_t mantissa = 0;  // all digits without the point
  std::uint64_t divisor = 1;   // ten to the number of digits after the point
  std::size_t length = 0;      // of the text that was read
};

tl::expected<Number, Complaint> parse_number(const Dimension& dimension, std::string_view text) {
  constexpr std::size_t kMantissaDigitsMax =
      18;  // below 10^18: no overflow of 64 bits here, nor of 128 below
  Number number;
  std::size_t digits = 0;
  bool point = false;
  for (const char c : text) {
    if (c == '.' && !point && digits > 0) {
      point = true;
    } else if (is_digit(c)) {
      if (++digits > kMantissaDigitsMax)
        return tl::unexpected(
            Complaint{fmt::format("{} has too many digits", in_quotes(text)), "use a larger unit"});
      number.mantissa = number.mantissa * 10 + static_cast<std::uint64_t>(c - '0');
      if (point) number.divisor *= 10;
    } else {
      break;
    }
    ++number.length;
  }
  if (digits == 0) {
    if (text.starts_with('-'))
      return tl::unexpected(Complaint{fmt::format("a {} is not negative", dimension.noun), ""});
    return tl::unexpected(
        Complaint{fmt::format("{} is no {}", in_quotes(text), dimension.noun),
                  fmt::format("write a number and a unit, such as 5{}", dimension.unit_of_bare)});
  }
  if (text[number.length - 1] == '.')
    return tl::unexpected(Complaint{"a digit must follow the point", "", number.length});
  if (number.length > 1 && text[0] == '0' && is_digit(text[1]))
    return tl::unexpected(
        Complaint{"a leading zero looks like an octal number",
                  fmt::format("write {}", text.substr(text.find_first_not_of('0') == std::string_view::npos
                                                          ? text.size() - 1
                                                          : text.find_first_not_of('0')))});
  return number;
}

tl::expected<std::int64_t, Complaint> parse(const Dimension& dimension, std::string_view text) {
  const auto number = parse_number(dimension, text);
  if (!number) return tl::unexpected(number.error());
  const std::string_view digits = text.substr(0, number->length);
  const std::string_view word = text.substr(number->length);
  const Dimension::Unit* unit = find_unit(dimension, word);
  if (unit == nullptr) return tl::unexpected(unit_complaint(dimension, digits, word, number->length));

  const Wide product = Wide{number->mantissa} * static_cast<std::uint64_t>(unit->scale);
  if (product % number->divisor != 0) {
    return tl::unexpected(
        Complaint{fmt::format("{} is no whole number of {}", in_quotes(text), dimension.units[0].name),
                  "write it in a smaller unit"});
  }
  const Wide value = product / number->divisor;
  if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max()))
    return tl::unexpected(Complaint{fmt::format("{} is too large", in_quotes(text)), ""});
  return static_cast<std::int64_t>(value);
}

std::string format(const Dimension& dimension, std::int64_t value) {
  MUSTER_ASSERT(value >= 0);
  const Dimension::Unit* best = &dimension.units[0];
  for (const Dimension::Unit& unit : dimension.units)
    if (unit.written && value != 0 && value % unit.scale == 0) best = &unit;
  // Up to a few minutes, seconds read better: the default is written as 60s.
  if (dimension.noun == kTime.noun && best->name == "min" && value < 5 * best->scale) best = &kTimeUnits[3];
  return fmt::format("{}{}", value / best->scale, best->name);
}

std::string pattern(const Dimension& dimension) {
  std::string units;
  for (const Dimension::Unit& unit : dimension.units) {
    if (!units.empty()) units += '|';
    units += unit.name;
  }
  return fmt::format("^(0|[1-9][0-9]*)(\\.[0-9]+)?({})$", units);
}

}  // namespace

tl::expected<std::int64_t, Complaint> parse_bytes(std::string_view text) {
  return parse(kBytes, text);
}

tl::expected<Nanos, Complaint> parse_duration(std::string_view text) {
  return parse(kTime, text).map([](std::int64_t ns) { return Nanos(ns); });
}

std::string format_bytes(std::int64_t bytes) {
  return format(kBytes, bytes);
}
std::string format_duration(Nanos duration) {
  return duration.count() == 0 ? "0s" : format(kTime, duration.count());
}
std::string bytes_pattern() {
  return pattern(kBytes);
}
std::string duration_pattern() {
  return pattern(kTime);
}

}  // namespace muster::config
