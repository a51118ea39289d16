// The keys and the settings in force, as text for people and for programs.
#pragma once

#include "daemon/config/diagnostic.hpp"
#include "daemon/config/settings.hpp"

#include <string>
#include <string_view>

namespace muster::config {

// configs/musterd.yaml: every key with its default and its comment.
std::string settings_yaml();

// One line for each key: name, value, origin; in columns.
std::string show(const Resolved& resolved);
// {"schema_version": 1, "settings": [{"key", "value", "origin", "source"}]}; one line.
std::string show_json(const Resolved& resolved);

// What a key of either file means, its type, range and default, and where it can be set; for a section, its
// keys. The path may carry indices, as a diagnostic does. The complaint names the nearest key.
tl::expected<std::string, Complaint> explain(std::string_view path);

}  // namespace muster::config
