// The written-out table of all kernels, and how a row of it is launched.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/kernel.hpp"

#include <cstdint>
#include <span>

namespace muster::kernels {

// The row of an op; null for a number that is none.
const Kernel* find(std::int32_t op) noexcept;
// All rows in order of op.
std::span<const Kernel> all() noexcept;

// Enqueues the kernel on a stream. args must live until the work has finished. kUnsupported where the
// stream's device kind has no implementation of it.
Status launch(device::Stream& stream, const Kernel& kernel, const Args& args);

}  // namespace muster::kernels
