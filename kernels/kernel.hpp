// A kernel as a value: operands resolved to addresses, and one row of the table of all kernels (table.hpp).
//
// The public numbering and the meaning of each operand are in <muster/kernels.h>; every family folder
// implements its rows of the table: a pure check of shapes and dtypes, the number of parts, and the launch
// per device kind.
#pragma once

#include "api/base/result.hpp"

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

struct Args {
  std::array<Tensor, MUSTER_KERNEL_TENSORS_MAX> tensors{};
  std::uint32_t tensor_count = 0;
  std::array<std::int64_t, MUSTER_KERNEL_INTS_MAX> ints{};
  std::array<double, MUSTER_KERNEL_REALS_MAX> reals{};
  // What the parts of a reduction leave for its fold, each its own element. Made by make_room().
  mutable std::vector<double> partials;
};

enum class Intent : std::uint8_t { kRead, kWrite, kReadWrite };

struct Operand {
  const char* name;
  Intent intent;
  bool optional;
};

// One row of the table.
//
// check   kBadArgument with operand, value and expectation. Called with tensors whose bounds are already
//         known to be right (sizes >= 0, strides >= 0, the whole view inside its buffer, no more elements
//         than that range has, 2^31 for the product of an empty view's other sizes), before anything runs;
//         run may then trust Args.
// parts   how many independent parts; a function of Args alone, never of the machine, so results do not
//         depend on it.
// run     one part on a host worker. Writes only its part of the outputs. Null where the host cannot.
// fold    null but for reductions, whose parts write Args::partials alone if there are several. Runs once,
//         after all of them, and adds them up in order. A single part finishes by itself: nothing is
//         folded then.
// in_place_of
//         the input whose very view an output may be; -1: none. What overlaps in any other way is refused.
struct Kernel {
  std::int32_t op;
  const char* name;  // "linear_forward"
  std::span<const Operand> operands;
  Status (*check)(const Args& args);
  std::uint32_t (*parts)(const Args& args);
  void (*run)(const Args& args, std::uint32_t part);
  void (*fold)(const Args& args) = nullptr;
  std::int32_t in_place_of = -1;
};

}  // namespace muster::kernels
