// The table of all kernels, and the launch of one row.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/kernel.hpp"

#include <cstdint>
#include <span>

namespace muster::kernels {

// The row of an op; null: no such op.
const Kernel* find(std::int32_t op) noexcept;
// The rows of a family. families(), in order of op, is made from kernels/CMakeLists.txt.
using FamilyRows = std::span<const Kernel> (*)();
std::span<const FamilyRows> families() noexcept;
// All rows in order of op.
std::span<const Kernel> all() noexcept;

// Enqueues the kernel on a stream. args must live until the work has finished. kUnsupported if the stream's
// device kind has no implementation of the kernel.
Status launch(device::Stream& stream, const Kernel& kernel, const Args& args);

}  // namespace muster::kernels
