// A kernel as a value: operands resolved to addresses, and one row of the table of all kernels (table.hpp).
//
// <muster/kernels.h> has the public numbers and the meaning of each operand. Each family folder implements
// its rows of the table: a pure check of shapes and dtypes, the number of parts, and a launcher for each kind
// of device.
#pragma once

#include "api/base/result.hpp"
#include "kernels/device/device.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <muster/kernels.h>

namespace muster::kernels {

// A strided view of memory of one device. Absent: data == nullptr.
struct Tensor {
  std::byte* data = nullptr;
  muster_dtype dtype = 0;
  std::int32_t dims = 0;
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> size{};    // elements, outermost first
  std::array<std::int64_t, MUSTER_TENSOR_DIMS_MAX> stride{};  // elements

  bool present() const { return data != nullptr; }
  std::int64_t count() const {
    std::int64_t n = 1;
    for (std::int32_t i = 0; i < dims; ++i) n *= size[static_cast<std::size_t>(i)];
    return n;
  }
};

// As many operands and numbers as the kernel takes.
struct Args {
  std::vector<Tensor> tensors;
  std::vector<std::int64_t> ints;
  std::vector<double> reals;
  // The result of each part of a reduction, for its fold. prepare() sets the size.
  mutable std::vector<double> partials;
};

struct Operand {
  enum Intent : std::uint8_t { kRead, kWrite, kReadWrite };
  const char* name;
  Intent intent;
  bool optional = false;
};

// One row of the table.
//
// check   Returns kBadArgument with operand, value and expectation. The caller has checked bounds before:
//         sizes and strides >= 0, the whole view inside its buffer, no more elements than fit there, and
//         2^31 at most for the product of an empty view's other sizes. After check, a launcher may trust
//         Args.
// parts   The number of independent parts. It depends on Args alone, so results do not depend on the machine.
// launchers
//         By device::Kind; null: not for devices of that kind.
// in_place_of
//         Index of the input that an output may be, as the same view; -1: none. Any other overlap is refused.
// has_partials
//         A reduction. If it has several parts, they write only Args::partials. These are added up in order
//         after all of them. A single part writes the result itself.
// prepare
//         Makes what the first launch on a host would make; null: nothing. Any thread; after `check`.
struct Kernel {
  // Enqueues a row's work on a stream of one kind of device. `args` live until that work has finished.
  using Launcher = Status (*)(device::Stream& stream, const Kernel& row, const Args& args);

  std::int32_t op;
  const char* name;  // "linear_forward"
  std::span<const Operand> operands;
  std::uint32_t ints;  // how many numbers it takes beside its operands
  std::uint32_t reals;
  Status (*check)(const Args& args);
  std::uint32_t (*parts)(const Args& args);
  std::array<Launcher, device::kKinds> launchers{};
  std::int32_t in_place_of = -1;
  bool has_partials = false;
  void (*prepare)(const Args& args) = nullptr;
};

}  // namespace muster::kernels
