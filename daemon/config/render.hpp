// Renders the keys and the settings in force as text for people and programs.
#pragma once

#include "daemon/config/diagnostic.hpp"
#include "daemon/config/settings.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace muster::config {

// configs/musterd.yaml: every key with its default and its comment.
std::string settings_yaml();

// A table with one line for each key: name, value, origin; `columns` wide at most.
std::string show(const Resolved& resolved, std::size_t columns);
// {"schema_version": 1, "settings": [{"key", "value", "origin", "source"}]}; one line.
std::string show_json(const Resolved& resolved);

// The meaning of a key of either file, its type, range and default, and where it can be set; for a section,
// its keys. The path may have indices, as in a diagnostic. A complaint names the nearest key.
tl::expected<std::string, Complaint> explain(std::string_view path);

// The same, as data.
struct Explanation {
  const Key* key = nullptr;
  bool setting = false;  // of musterd.yaml, which flags and environment set too; else of a cluster file
  std::vector<const Key*> below;  // of a section
};
tl::expected<Explanation, Complaint> explanation_of(std::string_view path);

}  // namespace muster::config
