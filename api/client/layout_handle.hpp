// What a muster_layout is.
#pragma once

#include "api/base/layout/layout.hpp"

#include <muster/layouts.h>

// Owns    what the caller described.
// Thread  any: it never changes.
// Bound   that of Layout.
// Fails   never.
struct muster_layout {
  muster::Layout layout;
};
