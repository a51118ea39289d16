// The dtype numbers of the C API: bytes and names.
#pragma once

#include <muster/muster.h>

#include <cstddef>

namespace muster {

// Bytes of one element; 0 for a number that is no dtype.
constexpr std::size_t dtype_bytes(muster_dtype dtype) noexcept {
  switch (dtype) {
    case MUSTER_U8:
    case MUSTER_I8:
    case MUSTER_F8_E4M3:
    case MUSTER_F8_E5M2:
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
  return dtype == MUSTER_I32 || dtype == MUSTER_I64 || dtype == MUSTER_U8 || dtype == MUSTER_I8;
}

// "f32", as messages say it; "none" for 0, which operations without a dtype carry.
constexpr const char* dtype_name(muster_dtype dtype) noexcept {
  switch (dtype) {
    case 0:
      return "none";
    case MUSTER_F32:
      return "f32";
    case MUSTER_BF16:
      return "bf16";
    case MUSTER_F16:
      return "f16";
    case MUSTER_F64:
      return "f64";
    case MUSTER_I32:
      return "i32";
    case MUSTER_I64:
      return "i64";
    case MUSTER_U8:
      return "u8";
    case MUSTER_I8:
      return "i8";
    case MUSTER_F8_E4M3:
      return "f8_e4m3";
    case MUSTER_F8_E5M2:
      return "f8_e5m2";
    default:
      return "unknown dtype";
  }
}

}  // namespace muster
