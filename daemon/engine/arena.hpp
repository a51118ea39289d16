// Arena: the memory of one rank, grown by segments of device memory and carved into buffers.
#pragma once

#include "api/base/result.hpp"
#include "kernels/device/device.hpp"

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

namespace muster::engine {

// Owns    the segments; they stay when buffers go, so that the next trainer finds them warm.
// Thread  the conductor.
// Bound   bytes_max over all segments; segments are never given back while the job lives.
// Fails   allocate: kNoResource naming need and limit, or what the device says.
class Arena {
 public:
  struct Options {
    std::uint64_t bytes_max = 0;      // of all segments together
    std::uint64_t segment_bytes = 0;  // least size of a new segment
  };
  struct Grant {
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;  // in the segment; a multiple of kAlignment
    std::uint64_t bytes = 0;   // as asked for, rounded up to kAlignment
    std::byte* data = nullptr;
  };
  static constexpr std::uint64_t kAlignment = 64;

  Arena(device::Device& device, Options options);

  // Zeroed memory. bytes > 0.
  Result<Grant> allocate(std::uint64_t bytes);
  void free(const Grant& grant);

  std::size_t segment_count() const { return segments_.size(); }
  const device::Memory& segment(std::uint32_t index) const { return *segments_[index].memory; }
  std::uint64_t used_bytes() const { return used_bytes_; }
  std::uint64_t reserved_bytes() const { return reserved_bytes_; }

 private:
  struct Segment {
    std::unique_ptr<device::Memory> memory;
    std::map<std::uint64_t, std::uint64_t> free;  // offset → bytes, never adjacent
    std::uint64_t touched = 0;                    // below this, memory may have been written before
  };
  bool carve(std::uint32_t index, std::uint64_t bytes, Grant& grant);
  Status grow(std::uint64_t bytes);

  device::Device& device_;
  Options options_;
  std::vector<Segment> segments_;
  std::uint64_t used_bytes_ = 0;
  std::uint64_t reserved_bytes_ = 0;
};

}  // namespace muster::engine
