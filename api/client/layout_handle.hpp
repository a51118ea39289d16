// muster_layout: a layout that the caller has described.
#pragma once

#include "api/base/layout/layout.hpp"

#include <muster/layouts.h>

// Owns    the description.
// Thread  any: it never changes.
// Bound   that of Layout.
// Fails   never.
struct muster_layout {
  muster::Layout layout;
};
