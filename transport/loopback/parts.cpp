#include "transport/loopback/parts.hpp"

#include "api/base/dtype.hpp"
#include "kernels/math/copy.hpp"
#include "kernels/math/reduce.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace muster::transport::loopback {
namespace {

constexpr std::uint64_t kLineBytes = 64;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::size_t kTileBytes = 16 << 10;
// From this many written bytes on, targets are stored past the cache: they would not stay in it anyway.
constexpr std::uint64_t kStreamBytes = 16 << 20;

using Sources = std::array<const std::byte*, static_cast<std::size_t>(kRanksMax)>;

// How often each element of the whole vector is read or written.
std::uint64_t touches(muster_op op, std::int32_t ranks) {
  const auto members = static_cast<std::uint64_t>(ranks);
  if (op == MUSTER_ALL_REDUCE) return 2 * members;
  if (op == MUSTER_SEND || op == MUSTER_RECV) return 2;
  return members + 1;
}

// Elements of a part: whole cache lines, so that two parts of an aligned vector never share one; and not less
// than a page of each vector, so that prefetchers get to work.
std::uint64_t part_elements(const Collective& collective, std::int32_t ranks) {
  const std::uint64_t bytes = kPartTrafficBytes / touches(collective.op, ranks) / kLineBytes * kLineBytes;
  const std::uint64_t elements = std::max(bytes, kPageBytes) / dtype_bytes(collective.dtype);
  // Parts are numbered in 32 bits; larger vectors have larger parts.
  const std::uint64_t total = total_count(collective, ranks);
  std::uint64_t grown = elements;
  while (total / grown >= std::numeric_limits<std::uint32_t>::max()) grown *= 2;
  return grown;
}

// One part, resolved: elements [first, last) of the whole vector.
struct Part {
  const Collective& collective;
  std::span<const Member> members;
  std::int32_t ranks;
  std::size_t element_bytes;
  std::uint64_t first;
  std::uint64_t last;
  std::size_t streaming_from;  // 0 or math::kNeverStream
};

// Copies one range to the same place of every target, a tile at a time, so that the source is fetched once.
void spread(const Part& part, const std::byte* source, std::uint64_t byte_offset, std::uint64_t bytes) {
  for (std::uint64_t at = 0; at < bytes; at += kTileBytes) {
    const std::uint64_t tile = std::min<std::uint64_t>(kTileBytes, bytes - at);
    for (const Member& member : part.members)
      math::copy(member.target + byte_offset + at, source + at, tile, part.streaming_from);
  }
}

void all_reduce(const Part& part) {
  alignas(kLineBytes) std::array<std::byte, kTileBytes> tile;
  Sources sources;
  const std::uint64_t end = part.last * part.element_bytes;
  for (std::uint64_t at = part.first * part.element_bytes; at < end; at += kTileBytes) {
    const std::uint64_t bytes = std::min<std::uint64_t>(kTileBytes, end - at);
    for (std::size_t k = 0; k < part.members.size(); ++k) sources[k] = part.members[k].source + at;
    math::reduce(part.collective.dtype, part.collective.redop, std::span(sources).first(part.members.size()),
                 tile.data(), bytes / part.element_bytes, part.collective.scale);
    // Lines of a target in place were just read: they are in the cache, and a streaming store would throw
    // them out.
    for (const Member& member : part.members)
      math::copy(member.target + at, tile.data(), bytes,
                 member.target == member.source ? math::kNeverStream : part.streaming_from);
  }
}

// Calls body(index, first, last, block) for each member's block that the part meets; first and last in the
// whole vector.
template<class Body>
void for_each_block(const Part& part, Body body) {
  std::int32_t index = 0;
  if (part.collective.counts.empty()) index = static_cast<std::int32_t>(part.first / part.collective.count);
  Block block = block_of(part.collective, index, part.ranks);
  for (;;) {
    const std::uint64_t first = std::max(part.first, block.offset);
    const std::uint64_t last = std::min(part.last, block.offset + block.count);
    if (first < last) body(static_cast<std::size_t>(index), first, last, block);
    if (++index == part.ranks || block.offset + block.count >= part.last) return;
    block.offset += block.count;
    block.count = part.collective.counts.empty() ? part.collective.count
                                                 : part.collective.counts[static_cast<std::size_t>(index)];
  }
}

void reduce_scatter(const Part& part) {
  Sources sources;
  for_each_block(part, [&](std::size_t index, std::uint64_t first, std::uint64_t last, const Block& block) {
    for (std::size_t k = 0; k < part.members.size(); ++k)
      sources[k] = part.members[k].source + first * part.element_bytes;
    math::reduce(part.collective.dtype, part.collective.redop, std::span(sources).first(part.members.size()),
                 part.members[index].target + (first - block.offset) * part.element_bytes, last - first,
                 part.collective.scale);
  });
}

void all_gather(const Part& part) {
  for_each_block(part, [&](std::size_t index, std::uint64_t first, std::uint64_t last, const Block& block) {
    const std::byte* source = part.members[index].source + (first - block.offset) * part.element_bytes;
    spread(part, source, first * part.element_bytes, (last - first) * part.element_bytes);
  });
}

void broadcast(const Part& part) {
  const std::uint64_t offset = part.first * part.element_bytes;
  const std::byte* source = part.members[static_cast<std::size_t>(part.collective.root)].source + offset;
  spread(part, source, offset, (part.last - part.first) * part.element_bytes);
}

void transfer(const Part& part) {
  const std::uint64_t offset = part.first * part.element_bytes;
  math::copy(part.members[1].target + offset, part.members[0].source + offset,
             (part.last - part.first) * part.element_bytes, part.streaming_from);
}

std::size_t streaming_from(const Collective& collective, std::int32_t ranks, std::uint64_t total_bytes) {
  const bool one_target = collective.op == MUSTER_SEND || collective.op == MUSTER_RECV;
  const auto targets = one_target ? 1 : static_cast<std::uint64_t>(ranks);
  return total_bytes >= kStreamBytes / targets ? 0 : math::kNeverStream;
}

}  // namespace

std::uint32_t part_count(const Collective& collective, std::int32_t ranks) {
  const std::uint64_t total = total_count(collective, ranks);
  if (total == 0) return 0;
  const std::uint64_t elements = part_elements(collective, ranks);
  return static_cast<std::uint32_t>((total - 1) / elements + 1);
}

void execute_part(const Collective& collective, std::span<const Member> members, std::int32_t ranks,
                  std::uint32_t part) {
  const std::uint64_t total = total_count(collective, ranks);
  const std::uint64_t elements = part_elements(collective, ranks);
  const std::uint64_t first = part * elements;
  const std::size_t element_bytes = dtype_bytes(collective.dtype);
  const Part resolved{collective,
                      members,
                      ranks,
                      element_bytes,
                      first,
                      std::min(total, first + elements),
                      streaming_from(collective, ranks, total * element_bytes)};
  switch (collective.op) {
    case MUSTER_ALL_REDUCE:
      return all_reduce(resolved);
    case MUSTER_ALL_GATHER:
      return all_gather(resolved);
    case MUSTER_REDUCE_SCATTER:
      return reduce_scatter(resolved);
    case MUSTER_BROADCAST:
      return broadcast(resolved);
    default:
      return transfer(resolved);
  }
}

}  // namespace muster::transport::loopback
