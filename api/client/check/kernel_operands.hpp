// Which operands a kernel writes. The table of kernels knows too, but lies above the client; a test compares.
#pragma once

#include <cstdint>

namespace muster::client {

struct KernelOperands {
  std::int32_t op = 0;
  const char* name = nullptr;  // "linear_forward"
  std::uint32_t written = 0;   // bit i: operand i is written; the others are read
};

// nullptr: there is no such kernel.
const KernelOperands* operands_of(std::int32_t op) noexcept;

}  // namespace muster::client
