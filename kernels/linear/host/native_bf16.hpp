// The library's own bf16 product. Its kernels are generated per shape, so a thread keeps the last ones that
// it used.
#pragma once

#include "kernels/linear/host/matrix.hpp"

namespace muster::kernels::linear::host {

// The processor has bf16 dot products; without them the library emulates, slower than f32.
bool native_bf16_is_fast();

// False, and nothing written, where the library has no such product for these strides or this processor; the
// caller then converts. No size of the product is zero.
bool multiply_native_bf16(const Product& product);

}  // namespace muster::kernels::linear::host
