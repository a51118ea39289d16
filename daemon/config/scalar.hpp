// Reads one scalar by its key: text in, value or complaint out. The rules are the same for a file, a flag and
// the environment.
#pragma once

#include "daemon/config/diagnostic.hpp"
#include "daemon/config/document.hpp"
#include "daemon/config/key.hpp"

#include <cstdint>
#include <string>
#include <string_view>

namespace muster::config {

enum class Spelling : std::uint8_t {
  kPlain,   // in YAML, without quotes: 12 is a number, not a text
  kQuoted,  // in YAML, in quotes: "12" is a text, not a number
  kGiven,   // in a flag or the environment, where everything is text
};

tl::expected<Value, Complaint> read_scalar(const Key& key, std::string_view text, Spelling spelling);

// As a user would write it: "64MiB", "60s", "0660".
std::string written(const Key& key, const Value& value);

}  // namespace muster::config
