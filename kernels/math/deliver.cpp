#include "kernels/math/deliver.hpp"

#include "api/base/assert.hpp"
#include "api/base/dtype.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/reduce.hpp"

#include <algorithm>
#include <array>
#include <cstdint>

namespace muster::math {
namespace {

constexpr std::size_t kLineBytes = 64;
constexpr std::size_t kTileBytes = 16 << 10;  // small enough to stay in L1 until it is copied to the targets
// So small that the processor reads for the next tile while it still writes this one. Two cores of a Zen 4
// that sum two vectors move 56 to 80 GB/s by 4 KiB, 46 to 60 by 16 KiB, and 50 to 73 by ordinary stores.
constexpr std::size_t kStreamedTileBytes = 4 << 10;
// With a single target and more sources, streaming slows their reading by more than it saves.
constexpr std::size_t kStreamedSourcesMax = 3;

// Which targets are streamed, and in what tiles.
struct Delivery {
  std::array<bool, kReduceSourcesMax> past_cache;  // by target
  bool streams = false;                            // any target is
  std::size_t tile = kTileBytes;
  std::size_t ahead = 0;  // bytes before the first whole line of the streamed targets
};

std::size_t place_in_line(const std::byte* at) {
  return reinterpret_cast<std::uintptr_t>(at) % kLineBytes;
}

// Tiles begin where the lines of streamed targets begin. If targets have different places in a line, the ends
// of their tiles need ordinary stores, of which longer tiles need fewer.
void choose(Delivery& delivery, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets) {
  const std::byte* first = nullptr;
  for (std::size_t k = 0; k < targets.size(); ++k) {
    const bool is_source = targets.size() == 1
                               ? std::find(sources.begin(), sources.end(), targets[0]) != sources.end()
                               : k < sources.size() && sources[k] == targets[k];
    delivery.past_cache[k] = !is_source;
    if (is_source) continue;
    if (first == nullptr) {
      first = targets[k];
      delivery.tile = kStreamedTileBytes;
      delivery.ahead = (kLineBytes - place_in_line(first)) % kLineBytes;
    } else if (place_in_line(first) != place_in_line(targets[k])) {
      delivery.tile = kTileBytes;
    }
  }
  delivery.streams = first != nullptr;
}

// A function of its own, because the tile would enlarge the frame of every short reduction.
[[gnu::noinline]] void reduce_in_tiles(muster_dtype dtype, muster_redop redop,
                                       std::span<const std::byte* const> sources,
                                       std::span<std::byte* const> targets, std::size_t count, double scale,
                                       const Delivery& delivery) {
  alignas(kLineBytes) std::array<std::byte, kTileBytes> tile;
  std::array<const std::byte*, kReduceSourcesMax> from;
  const std::size_t element = dtype_bytes(dtype);
  MUSTER_ASSERT(element > 0);
  const std::size_t length = delivery.tile / element;
  const std::size_t ahead = delivery.ahead / element;
  for (std::size_t at = 0, end = ahead > 0 ? ahead : length; at < count; at = end, end += length) {
    end = std::min(end, count);
    const std::size_t offset = at * element;
    const std::size_t bytes = (end - at) * element;
    for (std::size_t k = 0; k < sources.size(); ++k) from[k] = sources[k] + offset;
    reduce(dtype, redop, std::span(from).first(sources.size()), tile.data(), end - at, scale);
    for (std::size_t k = 0; k < targets.size(); ++k) {
      if (delivery.streams && delivery.past_cache[k])
        stream(targets[k] + offset, tile.data(), bytes);
      else
        copy(targets[k] + offset, tile.data(), bytes, kNeverStream);
    }
  }
  if (delivery.streams) end_stream();
}

}  // namespace

void copy_to_all(std::span<std::byte* const> targets, const std::byte* source, std::size_t bytes,
                 std::size_t streaming_from_bytes) {
  if (targets.size() == 1) return copy(targets[0], source, bytes, streaming_from_bytes);
  const bool streams = bytes >= streaming_from_bytes;
  for (std::size_t at = 0; at < bytes; at += kTileBytes) {
    const std::size_t tile = std::min(kTileBytes, bytes - at);
    for (std::byte* target : targets) {
      if (target == source) continue;
      if (streams)
        stream(target + at, source + at, tile);
      else
        copy(target + at, source + at, tile, kNeverStream);
    }
  }
  if (streams) end_stream();
}

void reduce_to_all(muster_dtype dtype, muster_redop redop, std::span<const std::byte* const> sources,
                   std::span<std::byte* const> targets, std::size_t count, double scale,
                   std::size_t streaming_from_bytes) {
  MUSTER_ASSERT(!sources.empty() && sources.size() <= kReduceSourcesMax);
  MUSTER_ASSERT(targets.size() <= kReduceSourcesMax);
  const bool pays = targets.size() > 1 || sources.size() <= kStreamedSourcesMax;
  const bool large = pays && count * dtype_bytes(dtype) >= streaming_from_bytes;
  if (targets.size() == 1 && !large) return reduce(dtype, redop, sources, targets[0], count, scale);
  Delivery delivery;
  if (large) choose(delivery, sources, targets);
  if (targets.size() == 1 && !delivery.streams)
    return reduce(dtype, redop, sources, targets[0], count, scale);
  reduce_in_tiles(dtype, redop, sources, targets, count, scale, delivery);
}

}  // namespace muster::math
