// The named counters of a session's completion page. One declaration per counter; the index is ABI: append
// only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace muster::shm {

enum class Counter : std::uint32_t {
  kCommands,        // commands taken from the ring
  kStepsCompleted,  // starts that finished well
  kStepsFailed,     // starts that failed
  kBytesMoved,      // payload bytes of finished collectives, counted at this rank's target
  kComputeBusyNs,   // time with a kernel of this rank running on a worker
  kCommBusyNs,      // time with a collective of this rank running
  kExposedNs,       // time the compute lane had work and waited for a collective
  kRefusals,        // 1 once the session was closed for a command that broke the protocol
  kBufferBytes,     // bytes of live buffers
  kBufferBytesPeak,
  kHaloExposedNs,  // of kExposedNs: the lane waited for a lane of class HALO
  kCount
};

constexpr std::array<std::string_view, static_cast<std::size_t>(Counter::kCount)> kCounterNames = {
    "commands",   "steps_completed", "steps_failed", "bytes_moved",       "compute_busy_ns", "comm_busy_ns",
    "exposed_ns", "refusals",        "buffer_bytes", "buffer_bytes_peak", "halo_exposed_ns"};

}  // namespace muster::shm
