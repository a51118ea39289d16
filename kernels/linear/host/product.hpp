// One matrix product on one host thread: c = a·b (+ c) (+ bias), for any strides, in f32 or bf16. The only
// folder of this family that knows oneDNN.
#pragma once

#include "kernels/linear/host/matrix.hpp"

#include <cstdint>

namespace muster::kernels::linear::host {

// How bf16 inputs are multiplied: by the library's bf16 product, or converted to f32 block by block first.
enum class Bf16Path : std::uint8_t { kNative, kConvert };

// kNative where the processor multiplies bf16 itself; elsewhere the library would only emulate it, or refuse.
Bf16Path bf16_path_of_this_machine();

// Accumulates in f32 and rounds once. Any size may be zero: a product over no terms is zero, and c is still
// written. Allocates only what a thread keeps for its next call. bf16_path is not looked at for f32.
void multiply(const Product& product, Bf16Path bf16_path);

}  // namespace muster::kernels::linear::host
