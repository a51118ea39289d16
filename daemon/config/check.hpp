// check(): holds a tree against the keys of its file. Every scalar gets its value; every fault is reported.
#pragma once

#include "daemon/config/diagnostic.hpp"
#include "daemon/config/document.hpp"
#include "daemon/config/key.hpp"

#include <span>

namespace muster::config {

// Reports unknown keys, wrong types, values out of range, and missing keys. Sets `value` of each scalar
// without a fault.
void check(const Source& source, std::span<const Key> keys, Node* root, Diagnostics* diagnostics);

}  // namespace muster::config
