// Arena: the memory of one rank. It carves buffers out of segments of device memory. Memory that others may
// have too becomes a segment of its own.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/direct.hpp"
#include "kernels/device/device.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace muster::engine {

// Owns    the segments it grew, also without buffers: the next trainer finds them warm. A share of each
//         adopted memory, until that is freed.
// Thread  the conductor.
// Bound   bytes_max over segments and adopted pieces. kMappedBesideMax bytes of addresses beside adopted
//         pieces. kSegmentsMax segments in a job's life: peers remember their mappings by index, so no index
//         is used twice.
// Fails   allocate, adopt: kNoResource naming need and limit, or what the device says.
class Arena {
 public:
  struct Options {
    std::uint64_t bytes_max = 0;      // of all segments together
    std::uint64_t segment_bytes = 0;  // most of a new segment, unless one buffer needs more
  };
  struct Grant {
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;  // in the segment; a multiple of kAlignment
    std::uint64_t bytes = 0;   // as asked for, rounded up to kAlignment
    std::byte* data = nullptr;
  };
  static constexpr std::uint64_t kAlignment = 64;
  static constexpr std::uint32_t kSegmentsMax = shm::kLocationIndexMax;
  static constexpr std::uint64_t kMappedBesideMax = shm::kSegmentBytesMax;

  Arena(device::Device& device, Options options);

  // Zeroed memory. bytes > 0.
  Result<Grant> allocate(std::uint64_t bytes);
  // Bytes [offset, offset + bytes) of memory that others may have too, as a segment of its own.
  Result<Grant> adopt(std::shared_ptr<device::Memory> memory, std::uint64_t offset, std::uint64_t bytes);
  // Returns adopted memory, else nullptr. To let go of it may take long: unmapping touches each page.
  std::shared_ptr<device::Memory> free(const Grant& grant);

  // nullptr: there is no such segment, or it has retired.
  const device::Memory* segment(std::uint32_t index) const {
    return index < segments_.size() ? segments_[index].memory.get() : nullptr;
  }
  std::size_t segment_count() const { return segments_.size(); }
  // Adopted segments that have been freed.
  std::uint64_t retired() const { return retired_; }
  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t reserved_bytes() const { return reserved_bytes_; }

 private:
  struct Segment {
    std::shared_ptr<device::Memory> memory;       // nullptr: retired
    std::map<std::uint64_t, std::uint64_t> free;  // offset → bytes, never adjacent
    std::uint64_t touched = 0;                    // below this, memory may have been written before
    bool adopted = false;
  };
  Status check_arena(std::uint64_t buffer_bytes) const;
  static Status check_segment(std::uint64_t memory_bytes);
  Status check_segments() const;
  bool carve(std::uint32_t index, std::uint64_t bytes, Grant& grant);
  Status grow(std::uint64_t bytes);

  device::Device& device_;
  Options options_;
  std::vector<Segment> segments_;
  std::vector<std::uint32_t> grown_;  // segments that may have holes
  std::uint64_t used_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
  std::uint64_t mapped_beside_bytes_ = 0;  // of adopted memories, beside the pieces that are buffers
  std::uint64_t retired_ = 0;
};

}  // namespace muster::engine
