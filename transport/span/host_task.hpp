// HostTask: local work of an operation between nodes, on the device's workers: to pack, fold and deliver.
#pragma once

#include "kernels/device/host/device.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <new>
#include <type_traits>

namespace muster::transport::span {

// Owns    its function. It ends only once it is over.
// Thread  start, over: one at a time. Parts run on any worker.
// Bound   one piece of work at a time, whose function has kRunBytes of values: no heap.
// Fails   never: where the stream takes nothing, the work is done at once.
class HostTask {
 public:
  static constexpr std::size_t kRunBytes = 64;

  // Calls run(part) for each part, in any order. `small`: at once, by the caller, because a worker would take
  // longer to come for it.
  template<class Run>
  void start(device::Stream& stream, std::uint32_t parts, bool small, Run run) {
    static_assert(sizeof(Run) <= kRunBytes && std::is_trivially_copyable_v<Run>);
    if (!small) {
      new (run_) Run(run);
      call_ = [](const std::byte* kept, std::uint32_t part) {
        (*std::launder(reinterpret_cast<const Run*>(kept)))(part);
      };
      left_.store(parts, std::memory_order_relaxed);
      if (device::host::enqueue(stream, {.run = run_part, .context = this, .parts = parts}).ok()) return;
    }
    for (std::uint32_t part = 0; part < parts; ++part) run(part);
    left_.store(0, std::memory_order_relaxed);
  }
  bool over() const { return left_.load(std::memory_order_acquire) == 0; }

 private:
  static void run_part(const void* context, std::uint32_t part) {
    const auto& host_task = *static_cast<const HostTask*>(context);
    host_task.call_(host_task.run_, part);
    host_task.left_.fetch_sub(1, std::memory_order_release);
  }

  alignas(std::max_align_t) std::byte run_[kRunBytes];
  void (*call_)(const std::byte* kept, std::uint32_t part) = nullptr;
  mutable std::atomic<std::uint32_t> left_{0};
};

}  // namespace muster::transport::span
