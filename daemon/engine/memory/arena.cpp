#include "daemon/engine/memory/arena.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include "api/base/assert.hpp"

namespace muster::engine {
namespace {

constexpr std::uint64_t kGranule = std::uint64_t{2} << 20;  // a huge page

std::uint64_t round_up(std::uint64_t value, std::uint64_t to) {
  return (value + to - 1) / to * to;
}

}  // namespace

// Large memory comes in whole granules, so a limit between two granules would be exceeded: round it down.
Arena::Arena(device::Device& device, Options options) : device_(device), options_(options) {
  if (options_.bytes_max > kGranule) options_.bytes_max -= options_.bytes_max % kGranule;
}

Status Arena::check_arena(std::uint64_t buffer_bytes) const {
  if (buffer_bytes > options_.bytes_max)
    return failure(
        Code::kNoResource,
        "a buffer of {} bytes is larger than the rank's arena of {} bytes (limits.arena_per_rank_max)",
        buffer_bytes, options_.bytes_max);
  return {};
}

Status Arena::check_segment(std::uint64_t memory_bytes) {
  if (memory_bytes > shm::kSegmentBytesMax)
    return failure(Code::kNoResource, "a memory of {} bytes is larger than one can be: {} bytes",
                   memory_bytes, shm::kSegmentBytesMax);
  return {};
}

Status Arena::check_segments() const {
  if (segments_.size() >= kSegmentsMax)
    return failure(Code::kNoResource,
                   "the rank has had {} segments of memory in this job's life, and no more are told apart; "
                   "start the job anew",
                   segments_.size());
  return {};
}

Result<Arena::Grant> Arena::allocate(std::uint64_t bytes) {
  MUSTER_ASSERT(bytes > 0);
  MUSTER_RETURN_IF_ERROR(check_arena(bytes));
  MUSTER_RETURN_IF_ERROR(check_segment(bytes));
  const std::uint64_t rounded = round_up(bytes, kAlignment);
  Grant grant;
  for (const std::uint32_t segment : grown_)
    if (carve(segment, rounded, grant)) return grant;
  MUSTER_RETURN_IF_ERROR(grow(rounded));
  const bool carved = carve(grown_.back(), rounded, grant);
  MUSTER_ASSERT(carved);
  return grant;
}

Result<Arena::Grant> Arena::adopt(std::shared_ptr<device::Memory> memory, std::uint64_t offset,
                                  std::uint64_t bytes) {
  MUSTER_ASSERT(offset + bytes <= memory->bytes());
  MUSTER_RETURN_IF_ERROR(check_arena(bytes));
  MUSTER_RETURN_IF_ERROR(check_segment(memory->bytes()));  // clients name an offset in it
  MUSTER_RETURN_IF_ERROR(check_segments());
  const std::uint64_t left = options_.bytes_max > reserved_bytes_ ? options_.bytes_max - reserved_bytes_ : 0;
  if (bytes > left)
    return fail(Code::kNoResource,
                "a buffer of {} bytes more is too much: {} of the rank's {} bytes are reserved already "
                "(limits.arena_per_rank_max); free buffers or raise the limit",
                bytes, reserved_bytes_, options_.bytes_max);
  const std::uint64_t beside = memory->bytes() - bytes;
  if (beside > kMappedBesideMax - mapped_beside_bytes_)
    return fail(Code::kNoResource,
                "a piece of {} bytes of a memory of {}, which is mapped whole, is too much: {} bytes are "
                "mapped so already; import the memory once and use ranges of it, or import smaller memories",
                bytes, memory->bytes(), mapped_beside_bytes_);
  mapped_beside_bytes_ += beside;
  const Grant grant{static_cast<std::uint32_t>(segments_.size()), offset, bytes, memory->data() + offset};
  reserved_bytes_ += bytes;
  used_bytes_ += bytes;
  segments_.push_back({std::move(memory), {}, 0, true});
  return grant;
}

Status Arena::grow(std::uint64_t bytes) {
  MUSTER_RETURN_IF_ERROR(check_segments());
  const std::uint64_t left = options_.bytes_max > reserved_bytes_ ? options_.bytes_max - reserved_bytes_ : 0;
  if (bytes > left)
    return failure(
        Code::kNoResource,
        "a buffer of {} bytes needs a new segment, but {} of the rank's {} bytes are reserved already "
        "(limits.arena_per_rank_max); free buffers or raise the limit",
        bytes, reserved_bytes_, options_.bytes_max);
  // Segments grow with the arena: memory is committed when granted, so a small rank must stay small.
  const std::uint64_t step = std::min(options_.segment_bytes, std::max(kGranule, reserved_bytes_));
  const std::uint64_t needed = std::min(round_up(bytes, kGranule), left);
  auto allocated = device_.allocate(static_cast<std::size_t>(std::min(std::max(step, needed), left)));
  // The rest of a share or of the machine may be enough for the buffer alone.
  if (!allocated && allocated.error().code() == Code::kNoResource && needed < step)
    allocated = device_.allocate(static_cast<std::size_t>(needed));
  MUSTER_ASSIGN_OR_RETURN(auto memory, std::move(allocated));
  reserved_bytes_ += memory->bytes();
  Segment segment;
  segment.free.emplace(0, memory->bytes());
  segment.memory = std::move(memory);
  grown_.push_back(static_cast<std::uint32_t>(segments_.size()));
  segments_.push_back(std::move(segment));
  return {};
}

// First fit keeps low offsets busy and the tail of a segment untouched.
bool Arena::carve(std::uint32_t index, std::uint64_t bytes, Grant& grant) {
  Segment& segment = segments_[index];  // an adopted one has no holes
  const auto it = std::find_if(segment.free.begin(), segment.free.end(),
                               [&](const auto& hole) { return hole.second >= bytes; });
  if (it == segment.free.end()) return false;
  const auto [offset, length] = *it;
  segment.free.erase(it);
  if (length > bytes) segment.free.emplace(offset + bytes, length - bytes);
  grant = {index, offset, bytes, segment.memory->data() + offset};
  if (offset < segment.touched && device_.info().node_memory)
    std::memset(grant.data, 0, std::min(bytes, segment.touched - offset));
  segment.touched = std::max(segment.touched, offset + bytes);
  used_bytes_ += bytes;
  return true;
}

std::shared_ptr<device::Memory> Arena::free(const Grant& grant) {
  MUSTER_ASSERT(grant.segment < segments_.size());
  used_bytes_ -= grant.bytes;
  if (segments_[grant.segment].adopted) {
    reserved_bytes_ -= grant.bytes;
    mapped_beside_bytes_ -= segments_[grant.segment].memory->bytes() - grant.bytes;
    ++retired_;
    return std::exchange(segments_[grant.segment].memory, nullptr);
  }
  auto& holes = segments_[grant.segment].free;
  auto [it, inserted] = holes.emplace(grant.offset, grant.bytes);
  MUSTER_ASSERT(inserted);
  if (const auto next = std::next(it); next != holes.end() && it->first + it->second == next->first) {
    it->second += next->second;
    holes.erase(next);
  }
  if (it != holes.begin()) {
    const auto before = std::prev(it);
    if (before->first + before->second == it->first) {
      before->second += it->second;
      holes.erase(it);
    }
  }
  return nullptr;
}

}  // namespace muster::engine
