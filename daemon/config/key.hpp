// Key: the one declaration of a configuration key. The parser, the generated files, the JSON Schema, `config
// show` and `--explain` are all made from it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace muster::config {

// low and high, both included, bound the number of a kInteger, kBytes, kDuration or kMode, the length of a
// text, or the size of a list.
struct Key {
  enum class Presence : std::uint8_t { kOptional, kRequired };
  enum class Kind : std::uint8_t {
    kSection,   // a map with keys of its own
    kList,      // of items "path[]"
    kNames,     // a map from names that the user chooses to "path.*"
    kText,      // one line
    kName,      // letters, digits, '-', '_', '.'; starts with a letter or digit
    kPath,      // absolute
    kHosts,     // a hostlist
    kFlag,      // true or false
    kInteger,   // decimal
    kBytes,     // with a unit
    kDuration,  // with a unit; nanoseconds
    kChoice,    // one of a few words
    kMode,      // octal file permissions in quotes
  };
  std::string_view path;  // "nodes[].devices.count": "[]" is an item of a list, "*" a name the user chose
  Kind kind = Kind::kSection;
  Presence presence = Presence::kOptional;
  std::string_view
      fallback;  // the default, as a user would write it; an optional key without one may stay unset
  std::int64_t low = 0;
  std::int64_t high = 0;
  std::string_view choices;   // "text|json"
  std::string_view sentence;  // what it is for

  bool leaf() const { return kind != Kind::kSection && kind != Kind::kList && kind != Kind::kNames; }
};

std::vector<std::string> choices_of(const Key& key);

// "a whole number, 0..1024": what a good value is.
std::string type_text(const Key& key);
// "0..1024", "1MiB..16TiB"; empty if the kind says it all.
std::string range_text(const Key& key);

// "integer", "bytes": the kind as one word.
std::string_view kind_name(Key::Kind kind);
// A good value of a leaf, as a user would write it.
std::string example_of(const Key& key);

}  // namespace muster::config
