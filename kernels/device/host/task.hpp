// Task: one piece of work for a stream of a host device.
#pragma once

#include <cstdint>

namespace muster::device::host {

// One piece of host work: `run(context, part)` for part 0..parts-1, each at most once, in any order, on any
// worker. `context` must live until the work has finished. parts 0 is legal: nothing runs.
struct Task {
  void (*run)(const void* context, std::uint32_t part) = nullptr;
  const void* context = nullptr;
  std::uint32_t parts = 1;
};

}  // namespace muster::device::host
