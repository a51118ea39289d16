#include "daemon/config/scalar.hpp"

#include "api/base/spelling.hpp"
#include "daemon/config/quantity.hpp"

#include <algorithm>
#include <array>
#include <charconv>

namespace muster::config {
namespace {

using Read = tl::expected<Value, Complaint>;

Read refuse(std::string message, std::string suggestion = "", std::size_t offset = 0) {
  return tl::unexpected(Complaint{std::move(message), std::move(suggestion), offset});
}

bool all_digits(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

// 010 is 8 to a YAML 1.1 reader and 10 to a YAML 1.2 reader, so it is refused.
bool octal_looking(std::string_view text) {
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  return (text.size() > 1 && text[0] == '0' && all_digits(text)) || text.starts_with("0o");
}

std::string_view without_zeros(std::string_view digits) {
  const std::size_t first = digits.find_first_not_of('0');
  return first == std::string_view::npos ? "0" : digits.substr(first);
}

// A plain scalar that a YAML reader does not read as text.
bool reads_as_other(std::string_view text) {
  static constexpr std::array<std::string_view, 12> kWords{"true", "True", "TRUE", "false", "False", "FALSE",
                                                           "null", "Null", "NULL", "~",     ".inf",  ".nan"};
  if (std::find(kWords.begin(), kWords.end(), text) != kWords.end()) return true;
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc() && end == text.data() + text.size();
}

Read out_of_range(const Key& key, std::string_view text) {
  return refuse(fmt::format("must be {}, is {}", range_text(key), text));
}

Read read_integer(const Key& key, std::string_view text, Spelling spelling) {
  if (spelling == Spelling::kQuoted)
    return refuse(fmt::format("expected a whole number, not the text \"{}\"", text), "remove the quotes");
  if (octal_looking(text)) {
    const bool decimal = all_digits(text);
    return refuse(fmt::format("{} looks like an octal number", in_quotes(text)),
                  decimal ? fmt::format("write {}", without_zeros(text)) : "write it in decimal");
  }
  const std::string_view digits = text.starts_with('-') ? text.substr(1) : text;
  if (!all_digits(digits)) return refuse(fmt::format("expected {}, not {}", type_text(key), in_quotes(text)));
  std::int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || number < key.low || number > key.high) return out_of_range(key, text);
  return Value{"", number};
}

Read read_quantity(const Key& key, std::string_view text) {
  auto number = key.kind == Key::Kind::kBytes
                    ? parse_bytes(text)
                    : parse_duration(text).map([](Nanos duration) { return std::int64_t{duration.count()}; });
  if (!number) return tl::unexpected(std::move(number).error());
  if (*number < key.low || *number > key.high) return out_of_range(key, text);
  return Value{"", *number};
}

Read read_flag(std::string_view text, Spelling spelling) {
  if (spelling == Spelling::kQuoted)
    return refuse(fmt::format("expected true or false, not the text \"{}\"", text), "remove the quotes");
  if (text == "true") return Value{"", 1};
  if (text == "false") return Value{"", 0};
  std::string low(text);
  std::transform(low.begin(), low.end(), low.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? char(c + 32) : c; });
  const bool yes = low == "yes" || low == "on" || low == "y" || low == "1" || low == "true";
  const bool no = low == "no" || low == "off" || low == "n" || low == "0" || low == "false";
  return refuse(fmt::format("expected true or false, not {}", in_quotes(text)), yes  ? "write true"
                                                                                : no ? "write false"
                                                                                     : "");
}

Read read_mode(const Key& key, std::string_view text, Spelling spelling) {
  if (spelling == Spelling::kPlain && all_digits(text))
    return refuse(fmt::format("{} without quotes is a number, octal or not", text),
                  fmt::format("write \"{}\"", text));
  const bool octal = text.size() == 4 && text[0] == '0' &&
                     std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '7'; });
  if (!octal)
    return refuse(fmt::format("expected four octal digits, not {}", in_quotes(text)), "write \"0660\"");
  std::int64_t mode = 0;
  std::from_chars(text.data(), text.data() + text.size(), mode, 8);
  if (mode < key.low || mode > key.high) return out_of_range(key, text);
  return Value{"", mode};
}

Read read_choice(const Key& key, std::string_view text) {
  const std::vector<std::string> words = choices_of(key);
  if (std::find(words.begin(), words.end(), text) != words.end()) return Value{std::string(text), 0};
  const auto near = closest(text, words);
  return refuse(fmt::format("expected {}, not {}", type_text(key), in_quotes(text)), did_you_mean(near));
}

// Faults that any text can have.
std::optional<Complaint> text_fault(const Key& key, std::string_view text, Spelling spelling) {
  if (spelling == Spelling::kPlain) {
    if (octal_looking(text))
      return Complaint{fmt::format("{} looks like an octal number", text),
                       fmt::format("write \"{}\" for text", text)};
    if (reads_as_other(text))
      return Complaint{fmt::format("expected text, not {}", text), fmt::format("write \"{}\"", text)};
  }
  const auto control =
      std::find_if(text.begin(), text.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; });
  if (control != text.end())
    return Complaint{"a control character or a line break inside", "write it on one line"};
  const auto bytes = static_cast<std::int64_t>(text.size());
  if (bytes < key.low) return Complaint{"must not be empty", ""};
  if (bytes > key.high)
    return Complaint{fmt::format("has {} bytes; at most {} fit", bytes, key.high), "shorten it"};
  return std::nullopt;
}

Read read_text(const Key& key, std::string_view text, Spelling spelling) {
  if (auto fault = text_fault(key, text, spelling)) return tl::unexpected(std::move(*fault));
  if (key.kind == Key::Kind::kPath && !text.empty() && text[0] != '/')
    return refuse(fmt::format("expected an absolute path, not {}", in_quotes(text)), "start it with '/'");
  if (key.kind == Key::Kind::kName && !text.empty()) {
    const auto letter = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
    };
    if (!letter(text[0]))
      return refuse(fmt::format("{} does not start with a letter or a digit", in_quotes(text)));
    const auto odd = std::find_if_not(text.begin(), text.end(),
                                      [&](char c) { return letter(c) || c == '-' || c == '_' || c == '.'; });
    if (odd != text.end())
      return refuse(fmt::format("{} is no name", in_quotes(text)), "use letters, digits, '-', '_' and '.'",
                    static_cast<std::size_t>(odd - text.begin()));
  }
  return Value{std::string(text), 0};
}

}  // namespace

Read read_scalar(const Key& key, std::string_view text, Spelling spelling) {
  switch (key.kind) {
    case Key::Kind::kInteger:
      return read_integer(key, text, spelling);
    case Key::Kind::kBytes:
    case Key::Kind::kDuration:
      return read_quantity(key, text);
    case Key::Kind::kFlag:
      return read_flag(text, spelling);
    case Key::Kind::kMode:
      return read_mode(key, text, spelling);
    case Key::Kind::kChoice:
      return read_choice(key, text);
    case Key::Kind::kText:
    case Key::Kind::kName:
    case Key::Kind::kPath:
    case Key::Kind::kHosts:
      return read_text(key, text, spelling);
    case Key::Kind::kSection:
    case Key::Kind::kList:
    case Key::Kind::kNames:
      break;
  }
  return refuse(fmt::format("expected {}, not {}", type_text(key), in_quotes(text)));
}

std::string written(const Key& key, const Value& value) {
  switch (key.kind) {
    case Key::Kind::kInteger:
      return std::to_string(value.number);
    case Key::Kind::kBytes:
      return format_bytes(value.number);
    case Key::Kind::kDuration:
      return format_duration(Nanos(value.number));
    case Key::Kind::kFlag:
      return value.number != 0 ? "true" : "false";
    case Key::Kind::kMode:
      return fmt::format("{:04o}", value.number);
    default:
      return value.text;
  }
}

}  // namespace muster::config
