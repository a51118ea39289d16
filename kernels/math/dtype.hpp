// What a dtype number means in bytes, below the C library.
#pragma once

#include <muster/muster.h>

#include <cstddef>

namespace muster::math {

// Bytes of one element; 0 for a number that is no dtype.
constexpr std::size_t dtype_bytes(muster_dtype dtype) noexcept {
  switch (dtype) {
    case MUSTER_U8:
      return 1;
    case MUSTER_BF16:
    case MUSTER_F16:
      return 2;
    case MUSTER_F32:
    case MUSTER_I32:
      return 4;
    case MUSTER_F64:
    case MUSTER_I64:
      return 8;
    default:
      return 0;
  }
}

constexpr bool is_integer(muster_dtype dtype) noexcept {
  return dtype == MUSTER_I32 || dtype == MUSTER_I64 || dtype == MUSTER_U8;
}

}  // namespace muster::math
