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
    case Kind::kInteger:
      return fmt::format("{}..{}", key.low, key.high);
    case Kind::kBytes:
      return fmt::format("{}..{}", format_bytes(key.low), format_bytes(key.high));
    case Kind::kDuration:
      return fmt::format("{}..{}", format_duration(std::chrono::nanoseconds(key.low)),
                         format_duration(std::chrono::nanoseconds(key.high)));
    case Kind::kMode:
      return fmt::format("0{:o}..0{:o}", key.low, key.high);
    default:
      return "";
  }
}

std::string type_text(const Key& key) {
  switch (key.kind) {
    case Kind::kSection:
      return "a map of keys";
    case Kind::kList:
      return fmt::format("a list of {} to {} items", key.low, key.high);
    case Kind::kNames:
      return fmt::format("a map of at most {} names", key.high);
    case Kind::kText:
      return fmt::format("text, at most {} bytes", key.high);
    case Kind::kName:
      return fmt::format("a name of letters, digits, '-', '_', '.', {}at most {} bytes",
                         key.low == 0 ? "or empty, " : "", key.high);
    case Kind::kPath:
      return fmt::format("an absolute path, {}at most {} bytes", key.low == 0 ? "or empty, " : "", key.high);
    case Kind::kHosts:
      return "a hostlist, such as node[01-16,20]";
    case Kind::kFlag:
      return "true or false";
    case Kind::kInteger:
      return "a whole number, " + range_text(key);
    case Kind::kBytes:
      return "a size with its unit, " + range_text(key);
    case Kind::kDuration:
      return "a duration with its unit, " + range_text(key);
    case Kind::kChoice: {
      std::string out;
      for (const std::string& word : choices_of(key)) out += (out.empty() ? "" : " | ") + word;
      return out;
    }
    case Kind::kMode:
      return "octal permissions in quotes, " + range_text(key);
  }
  return "";
}

std::string_view kind_name(Kind kind) {
  switch (kind) {
    case Kind::kSection:
      return "section";
    case Kind::kList:
      return "list";
    case Kind::kNames:
      return "names";
    case Kind::kText:
      return "text";
    case Kind::kName:
      return "name";
    case Kind::kPath:
      return "path";
    case Kind::kHosts:
      return "hosts";
    case Kind::kFlag:
      return "flag";
    case Kind::kInteger:
      return "integer";
    case Kind::kBytes:
      return "bytes";
    case Kind::kDuration:
      return "duration";
    case Kind::kChoice:
      return "choice";
    case Kind::kMode:
      return "mode";
  }
  return "";
}

std::string example_of(const Key& key) {
  if (!key.fallback.empty()) return std::string(key.fallback);
  switch (key.kind) {
    case Kind::kSection:
    case Kind::kList:
    case Kind::kNames:
      return "";
    case Kind::kText:
    case Kind::kName:
      return "train";
    case Kind::kPath:
      return "/var/lib/muster";
    case Kind::kHosts:
      return "node[01-16,20]";
    case Kind::kFlag:
      return "true";
    case Kind::kInteger:
      return fmt::format("{}", std::max<std::int64_t>(key.low, 1));
    case Kind::kBytes:
      return format_bytes(key.high);
    case Kind::kDuration:
      return format_duration(std::chrono::nanoseconds(key.high));
    case Kind::kChoice:
      return choices_of(key).front();
    case Kind::kMode:
      return fmt::format("0{:o}", key.low);
  }
  return "";
}

}  // namespace muster::config
