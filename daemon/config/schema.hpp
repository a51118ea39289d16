// JSON Schema (draft 7, which editors read) of a configuration file, made from its keys.
#pragma once

#include "daemon/config/key.hpp"

#include <span>
#include <string>

namespace muster::config {

// Indented, with a newline at the end. `id` is the file's name: "musterd.schema.json".
std::string json_schema(std::span<const Key> keys, const std::string& id, const std::string& title);

}  // namespace muster::config
