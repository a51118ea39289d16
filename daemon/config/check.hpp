// check(): a tree against the keys of its file. Every scalar gets its value; everything wrong is reported.
#pragma once

#include "daemon/config/diagnostic.hpp"
#include "daemon/config/document.hpp"
#include "daemon/config/key.hpp"

#include <span>

namespace muster::config {

// Unknown keys, wrong types, values out of range, missing keys. A node without a fault has its `value`
// afterwards.
void check(const Source& source, std::span<const Key> keys, Node* root, Diagnostics* diagnostics);

}  // namespace muster::config
