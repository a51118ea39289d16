// One collective with its memory, made from a few numbers: where every vector lies, what it holds, what must
// come out.
#pragma once

#include "api/base/dtype.hpp"
#include "tests/kernels/math/values.hpp"
#include "tests/transport/oracle.hpp"
#include "transport/collective/communicator.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

namespace muster::transport::test {

using math::test::Random;

enum class Place : std::uint8_t { kApart, kInPlace };

// What a case is made from.
struct Shape {
  Collective collective;
  std::int32_t ranks = 1;
  Place place = Place::kApart;
  std::size_t misaligned_bytes = 0;  // added to every vector's 64-byte aligned start
  std::uint64_t seed = 0;

  std::string text() const {
    constexpr const char* kOps[] = {"none",      "all-reduce", "all-gather", "reduce-scatter",
                                    "broadcast", "barrier",    "send",       "recv"};
    std::string out = std::string(kOps[collective.op]) + " " + dtype_name(collective.dtype) + " " +
                      math::test::redop_name(collective.redop) + ", ranks " + std::to_string(ranks) +
                      ", count " + std::to_string(collective.count) + ", counts {";
    for (const std::uint64_t count : collective.counts) out += std::to_string(count) + " ";
    return out + "}, root " + std::to_string(collective.root) + ", receiver " +
           std::to_string(collective.receiver) + (place == Place::kInPlace ? ", in place" : ", apart") +
           ", misaligned by " + std::to_string(misaligned_bytes) + ", seed " + std::to_string(seed);
  }
};

// The memory of a case. Everything that is no vector is a fence, and must stay as it is.
struct Case {
  std::vector<Placement> members;  // in order of index
  std::vector<std::byte> before;
  std::vector<std::byte> after;  // what the oracle says
};

namespace detail {

// Hands out aligned ranges of a growing arena.
class Layout {
 public:
  explicit Layout(std::size_t misaligned_bytes) : misaligned_(misaligned_bytes) {}
  std::size_t take(std::uint64_t bytes) {
    const std::size_t at = (end_ + 63) / 64 * 64 + misaligned_;
    end_ = at + bytes + 64;
    return at;
  }
  std::size_t bytes() const { return end_ + 64; }

 private:
  std::size_t misaligned_;
  std::size_t end_ = 64;
};

inline Placement place_member(const Shape& shape, std::int32_t index, Layout& layout) {
  const Collective& c = shape.collective;
  const std::size_t bytes = dtype_bytes(c.dtype);
  Placement member{index};
  if (c.op == MUSTER_BARRIER) return member;
  if (c.op == MUSTER_ALL_REDUCE || c.op == MUSTER_BROADCAST) {
    const bool reads = c.op == MUSTER_ALL_REDUCE || index == c.root;
    if (reads) member.source = layout.take(c.count * bytes);
    member.target = reads && shape.place == Place::kInPlace ? member.source : layout.take(c.count * bytes);
    return member;
  }
  if (c.op == MUSTER_SEND || c.op == MUSTER_RECV) {
    (index == c.root ? member.source : member.target) = layout.take(c.count * bytes);
    return member;
  }
  const std::vector<std::uint64_t> lengths = block_lengths(c, shape.ranks);
  std::uint64_t total = 0;
  std::uint64_t offset = 0;
  for (std::size_t k = 0; k < lengths.size(); ++k) {
    if (k < static_cast<std::size_t>(index)) offset += lengths[k];
    total += lengths[k];
  }
  const std::size_t whole = layout.take(total * bytes);
  const std::size_t block = shape.place == Place::kInPlace
                                ? whole + offset * bytes
                                : layout.take(lengths[static_cast<std::size_t>(index)] * bytes);
  const bool gather = c.op == MUSTER_ALL_GATHER;
  member.source = gather ? block : whole;
  member.target = gather ? whole : block;
  return member;
}

inline std::uint64_t source_length(const Shape& shape, const Placement& member) {
  const Collective& c = shape.collective;
  if (member.source == kNowhere) return 0;
  const std::vector<std::uint64_t> lengths = block_lengths(c, shape.ranks);
  if (c.op == MUSTER_ALL_GATHER) return lengths[static_cast<std::size_t>(member.index)];
  if (c.op != MUSTER_REDUCE_SCATTER) return c.count;
  std::uint64_t total = 0;
  for (const std::uint64_t length : lengths) total += length;
  return total;
}

}  // namespace detail

inline Case make_case(const Shape& shape) {
  const Collective& c = shape.collective;
  const std::size_t bytes = dtype_bytes(c.dtype);
  Case made;
  detail::Layout layout(shape.misaligned_bytes);
  std::vector<std::int32_t> indices;
  if (c.op == MUSTER_SEND || c.op == MUSTER_RECV)
    indices = {c.root, c.receiver};
  else
    for (std::int32_t i = 0; i < shape.ranks; ++i) indices.push_back(i);
  for (const std::int32_t index : indices) made.members.push_back(detail::place_member(shape, index, layout));
  made.before.resize(layout.bytes(), std::byte{0xC3});
  for (const Placement& member : made.members)
    if (member.source != kNowhere)
      math::test::fill(c.dtype, made.before.data() + member.source, detail::source_length(shape, member),
                       shape.seed * 1000 + static_cast<std::uint64_t>(member.index));
  made.after = oracle(c, shape.ranks, made.members, made.before, bytes);
  return made;
}

// A small case of any kind from one seed: operation, dtype, operator, ranks, uneven and empty blocks, place,
// misalignment.
inline Shape random_shape(std::uint64_t seed) {
  Random random(seed);
  constexpr muster_op kOps[] = {MUSTER_ALL_REDUCE, MUSTER_ALL_GATHER, MUSTER_REDUCE_SCATTER,
                                MUSTER_BROADCAST,  MUSTER_BARRIER,    MUSTER_SEND,
                                MUSTER_RECV};
  Shape shape;
  Collective& c = shape.collective;
  shape.seed = seed;
  shape.ranks = static_cast<std::int32_t>(1 + random.below(9));
  c.op = kOps[random.below(7)];
  const bool transfer = c.op == MUSTER_SEND || c.op == MUSTER_RECV;
  if (transfer && shape.ranks == 1) shape.ranks = 2;
  const auto ranks = static_cast<std::uint64_t>(shape.ranks);
  c.dtype = math::test::kDtypes[random.below(7)];
  const bool reduces = c.op == MUSTER_ALL_REDUCE || c.op == MUSTER_REDUCE_SCATTER;
  if (reduces) c.redop = math::test::kRedops[random.below(6)];
  c.scale = math::test::scale_for(c.dtype);
  c.count = random.below(4) == 0 ? random.below(3) : random.below(300);
  const bool blocks = c.op == MUSTER_ALL_GATHER || c.op == MUSTER_REDUCE_SCATTER;
  if (blocks && random.below(2) == 0)
    for (std::uint64_t k = 0; k < ranks; ++k)
      c.counts.push_back(random.below(3) == 0 ? 0 : random.below(200));
  if (c.op == MUSTER_BROADCAST || transfer) c.root = static_cast<std::int32_t>(random.below(ranks));
  if (transfer)
    c.receiver =
        static_cast<std::int32_t>((static_cast<std::uint64_t>(c.root) + 1 + random.below(ranks - 1)) % ranks);
  shape.place = random.below(2) == 0 ? Place::kApart : Place::kInPlace;
  shape.misaligned_bytes = random.below(2) == 0 ? 0 : random.below(64);
  return shape;
}

}  // namespace muster::transport::test
