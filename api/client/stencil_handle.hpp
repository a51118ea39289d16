// muster_stencil: a stencil that the caller has described.
#pragma once

#include "api/base/halo/stencil.hpp"

#include <muster/halo.h>

// Owns    the stencil.
// Thread  any: it never changes.
// Bound   that of Stencil.
// Fails   never.
struct muster_stencil {
  muster::halo::Stencil stencil;
};
