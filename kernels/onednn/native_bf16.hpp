// oneDNN's own bf16 product. The library generates a kernel for each shape, so a thread keeps the last ones
// that it used.
#pragma once

#include "kernels/onednn/matrix.hpp"

namespace muster::kernels::onednn {

// Whether the processor has bf16 dot products. Without them the library emulates, more slowly than f32.
bool native_bf16_is_fast();

// Returns false, and writes nothing, if the library has no product for these strides or this processor. The
// caller then converts. No size of the product may be zero.
bool multiply_native_bf16(const Product& product);

}  // namespace muster::kernels::onednn
