#include "daemon/config/key.hpp"

#include "daemon/config/quantity.hpp"

#include <algorithm>

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
    case KeyKind::kInteger:
      return fmt::format("{}..{}", key.low, key.high);
    case KeyKind::kBytes:
      return fmt::format("{}..{}", format_bytes(key.low), format_bytes(key.high));
    case KeyKind::kDuration:
      return fmt::format("{}..{}", format_duration(std::chrono::nanoseconds(key.low)),
                         format_duration(std::chrono::nanoseconds(key.high)));
    case KeyKind::kMode:
      return fmt::format("0{:o}..0{:o}", key.low, key.high);
    default:
      return "";
  }
}

std::string type_text(const Key& key) {
  switch (key.kind) {
    case KeyKind::kSection:
      return "a map of keys";
    case KeyKind::kList:
      return fmt::format("a list of {} to {} items", key.low, key.high);
    case KeyKind::kNames:
      return fmt::format("a map of at most {} names", key.high);
    case KeyKind::kText:
      return fmt::format("text, at most {} bytes", key.high);
    case KeyKind::kName:
      return fmt::format("a name of letters, digits, '-', '_', '.', {}at most {} bytes",
                         key.low == 0 ? "or empty, " : "", key.high);
    case KeyKind::kPath:
      return fmt::format("an absolute path, {}at most {} bytes", key.low == 0 ? "or empty, " : "", key.high);
    case KeyKind::kHosts:
      return "a hostlist, such as node[01-16,20]";
    case KeyKind::kFlag:
      return "true or false";
    case KeyKind::kInteger:
      return "a whole number, " + range_text(key);
    case KeyKind::kBytes:
      return "a size with its unit, " + range_text(key);
    case KeyKind::kDuration:
      return "a duration with its unit, " + range_text(key);
    case KeyKind::kChoice: {
      std::string out;
      for (const std::string& word : choices_of(key)) out += (out.empty() ? "" : " | ") + word;
      return out;
    }
    case KeyKind::kMode:
      return "octal permissions in quotes, " + range_text(key);
  }
  return "";
}

std::string_view kind_name(KeyKind kind) {
  switch (kind) {
    case KeyKind::kSection:
      return "section";
    case KeyKind::kList:
      return "list";
    case KeyKind::kNames:
      return "names";
    case KeyKind::kText:
      return "text";
    case KeyKind::kName:
      return "name";
    case KeyKind::kPath:
      return "path";
    case KeyKind::kHosts:
      return "hosts";
    case KeyKind::kFlag:
      return "flag";
    case KeyKind::kInteger:
      return "integer";
    case KeyKind::kBytes:
      return "bytes";
    case KeyKind::kDuration:
      return "duration";
    case KeyKind::kChoice:
      return "choice";
    case KeyKind::kMode:
      return "mode";
  }
  return "";
}

std::string example_of(const Key& key) {
  if (!key.fallback.empty()) return std::string(key.fallback);
  switch (key.kind) {
    case KeyKind::kSection:
    case KeyKind::kList:
    case KeyKind::kNames:
      return "";
    case KeyKind::kText:
    case KeyKind::kName:
      return "train";
    case KeyKind::kPath:
      return "/var/lib/muster";
    case KeyKind::kHosts:
      return "node[01-16,20]";
    case KeyKind::kFlag:
      return "true";
    case KeyKind::kInteger:
      return fmt::format("{}", std::max<std::int64_t>(key.low, 1));
    case KeyKind::kBytes:
      return format_bytes(key.high);
    case KeyKind::kDuration:
      return format_duration(std::chrono::nanoseconds(key.high));
    case KeyKind::kChoice:
      return choices_of(key).front();
    case KeyKind::kMode:
      return fmt::format("0{:o}", key.low);
  }
  return "";
}

}  // namespace muster::config
