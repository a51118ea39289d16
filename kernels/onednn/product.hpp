// One matrix product on one host thread: c = a·b (+ c) (+ bias), for any strides, in f32 or bf16.
#pragma once

#include "kernels/onednn/matrix.hpp"

#include <cstdint>

namespace muster::kernels::onednn {

// How bf16 inputs are multiplied: by the library's bf16 product, or converted to f32 block by block first.
enum class Bf16Path : std::uint8_t { kNative, kConvert };

// kNative if the processor multiplies bf16; the library would emulate it on others, or refuse.
Bf16Path bf16_path_of_this_machine();

// Accumulates in f32 and rounds once. Any size may be zero: a product over no terms is zero, and c is still
// written. Allocates only memory that the thread keeps for its next call. f32 ignores bf16_path.
void multiply(const Product& product, Bf16Path bf16_path);

}  // namespace muster::kernels::onednn
