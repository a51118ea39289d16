#include "daemon/config/key.hpp"

#include "daemon/config/quantity.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace muster::config {

std::vector<std::string> choices_of(const Key& key) {
  std::vector<std::string> words;
  std::string_view rest = key.choices;
  while (!rest.empty()) {
    const std::size_t bar = std::min(rest.find('|'), rest.size());
    words.emplace_back(rest.substr(0, bar));
    rest.remove_prefix(std::min(bar + 1, rest.size()));
  }
  return words;
}

std::string range_text(const Key& key) {
  switch (key.kind) {
    case Key::Kind::kInteger:
      return fmt::format("{}..{}", key.low, key.high);
    case Key::Kind::kBytes:
      return fmt::format("{}..{}", format_bytes(key.low), format_bytes(key.high));
    case Key::Kind::kDuration:
      return fmt::format("{}..{}", format_duration(std::chrono::nanoseconds(key.low)),
                         format_duration(std::chrono::nanoseconds(key.high)));
    case Key::Kind::kMode:
      return fmt::format("0{:o}..0{:o}", key.low, key.high);
    default:
      return "";
  }
}

std::string type_text(const Key& key) {
  switch (key.kind) {
    case Key::Kind::kSection:
      return "a map of keys";
    case Key::Kind::kList:
      return fmt::format("a list of {} to {} items", key.low, key.high);
    case Key::Kind::kNames:
      return fmt::format("a map of at most {} names", key.high);
    case Key::Kind::kText:
      return fmt::format("text, at most {} bytes", key.high);
    case Key::Kind::kName:
      return fmt::format("a name of letters, digits, '-', '_', '.', {}at most {} bytes",
                         key.low == 0 ? "or empty, " : "", key.high);
    case Key::Kind::kPath:
      return fmt::format("an absolute path, {}at most {} bytes", key.low == 0 ? "or empty, " : "", key.high);
    case Key::Kind::kHosts:
      return "a hostlist, such as node[01-16,20]";
    case Key::Kind::kFlag:
      return "true or false";
    case Key::Kind::kInteger:
      return "a whole number, " + range_text(key);
    case Key::Kind::kBytes:
      return "a size with its unit, " + range_text(key);
    case Key::Kind::kDuration:
      return "a duration with its unit, " + range_text(key);
    case Key::Kind::kChoice: {
      std::string out;
      for (const std::string& word : choices_of(key)) out += (out.empty() ? "" : " | ") + word;
      return out;
    }
    case Key::Kind::kMode:
      return "octal permissions in quotes, " + range_text(key);
  }
  return "";
}

std::string_view kind_name(Key::Kind kind) {
  constexpr std::array<std::string_view, 13> kNames{"section",  "list",   "names", "text",    "name",
                                                    "path",     "hosts",  "flag",  "integer", "bytes",
                                                    "duration", "choice", "mode"};
  static_assert(kNames.size() == static_cast<std::size_t>(Key::Kind::kMode) + 1);
  return kNames[static_cast<std::size_t>(kind)];
}

std::string example_of(const Key& key) {
  if (!key.fallback.empty()) return std::string(key.fallback);
  switch (key.kind) {
    case Key::Kind::kSection:
    case Key::Kind::kList:
    case Key::Kind::kNames:
      return "";
    case Key::Kind::kText:
    case Key::Kind::kName:
      return "train";
    case Key::Kind::kPath:
      return "/var/lib/muster";
    case Key::Kind::kHosts:
      return "node[01-16,20]";
    case Key::Kind::kFlag:
      return "true";
    case Key::Kind::kInteger:
      return fmt::format("{}", std::max<std::int64_t>(key.low, 1));
    case Key::Kind::kBytes:
      return format_bytes(key.high);
    case Key::Kind::kDuration:
      return format_duration(std::chrono::nanoseconds(key.high));
    case Key::Kind::kChoice:
      return choices_of(key).front();
    case Key::Kind::kMode:
      return fmt::format("0{:o}", key.low);
  }
  return "";
}

}  // namespace muster::config
