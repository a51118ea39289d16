// What every backend must agree on about a collective: its blocks, its sizes, and whether it makes sense at
// all.
#include "api/base/dtype.hpp"
#include "transport/collective/communicator.hpp"

#include <cmath>
#include <limits>

namespace muster::transport {
namespace {

// Memory is addressed by signed differences: no vector is longer.
constexpr std::uint64_t kBytesMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

bool has_blocks(muster_op op) {
  return op == MUSTER_ALL_GATHER || op == MUSTER_REDUCE_SCATTER;
}
bool has_reduction(muster_op op) {
  return op == MUSTER_ALL_REDUCE || op == MUSTER_REDUCE_SCATTER;
}
const char* name_of(muster_op op) {
  switch (op) {
    case MUSTER_ALL_REDUCE:
      return "ALL_REDUCE";
    case MUSTER_ALL_GATHER:
      return "ALL_GATHER";
    case MUSTER_REDUCE_SCATTER:
      return "REDUCE_SCATTER";
    case MUSTER_BROADCAST:
      return "BROADCAST";
    case MUSTER_BARRIER:
      return "BARRIER";
    case MUSTER_SEND:
      return "SEND";
    case MUSTER_RECV:
      return "RECV";
    default:
      return "no operation";
  }
}

Status check_redop(const Collective& c) {
  if (!has_reduction(c.op)) {
    if (c.redop != 0)
      return failure(Code::kBadArgument, "redop {} is given but {} reduces nothing; leave it 0", c.redop,
                     name_of(c.op));
    return Status();
  }
  if (c.redop < MUSTER_SUM || c.redop > MUSTER_PREMUL_SUM)
    return failure(Code::kBadArgument, "redop {} of {} is none of MUSTER_SUM..MUSTER_PREMUL_SUM ({}..{})",
                   c.redop, name_of(c.op), static_cast<int>(MUSTER_SUM), static_cast<int>(MUSTER_PREMUL_SUM));
  if (c.redop != MUSTER_PREMUL_SUM || !is_integer(c.dtype)) return Status();
  // A NaN fails both comparisons below.
  const bool whole = std::trunc(c.scale) == c.scale;
  const bool fits = std::fabs(c.scale) < std::ldexp(1.0, 63);
  if (!whole || !fits)
    return failure(Code::kBadArgument, "scale {} of PREMUL_SUM on integers must be a whole number below 2^63",
                   c.scale);
  return Status();
}

Status check_peers(const Collective& c, std::int32_t ranks) {
  const bool rooted = c.op == MUSTER_BROADCAST || is_transfer(c.op);
  if (!rooted) {
    if (c.root != 0)
      return failure(Code::kBadArgument, "root {} is given but {} has none; leave it 0", c.root,
                     name_of(c.op));
    return Status();
  }
  if (c.root < 0 || c.root >= ranks)
    return failure(Code::kBadArgument, "root {} of {} is not a member: the group has 0..{}", c.root,
                   name_of(c.op), ranks - 1);
  if (!is_transfer(c.op)) return Status();
  if (c.receiver < 0 || c.receiver >= ranks)
    return failure(Code::kBadArgument, "receiver {} of {} is not a member: the group has 0..{}", c.receiver,
                   name_of(c.op), ranks - 1);
  if (c.receiver == c.root)
    return failure(Code::kBadArgument,
                   "root and receiver of {} are both {}: a member does not send to itself; copy instead",
                   name_of(c.op), c.root);
  return Status();
}

Status check_counts(const Collective& c, std::int32_t ranks) {
  const auto members = static_cast<std::uint64_t>(ranks);
  if (!c.counts.empty() && !has_blocks(c.op))
    return failure(Code::kBadArgument, "counts has {} entries but {} has no uneven blocks; leave it empty",
                   c.counts.size(), name_of(c.op));
  if (!c.counts.empty() && c.counts.size() != members)
    return failure(Code::kBadArgument, "counts has {} entries; {} in a group of {} needs one per member",
                   c.counts.size(), name_of(c.op), ranks);
  std::uint64_t total = c.count;
  bool overflow = false;
  if (!c.counts.empty()) {
    total = 0;
    for (const std::uint64_t count : c.counts)
      overflow = overflow || __builtin_add_overflow(total, count, &total);
  } else if (has_blocks(c.op)) {
    overflow = __builtin_mul_overflow(c.count, members, &total);
  }
  if (overflow || total > kBytesMax / dtype_bytes(c.dtype))
    return failure(
        Code::kBadArgument,
        "{} of {} elements a member (or by counts) of {} bytes in a group of {} is more than 2^63 bytes",
        name_of(c.op), c.count, dtype_bytes(c.dtype), ranks);
  return Status();
}

// Where a member's target must be if its source and target overlap at all.
const std::byte* in_place_target(const Collective& collective, const Member& member, std::int32_t ranks,
                                 std::size_t element_bytes) {
  const bool gather = collective.op == MUSTER_ALL_GATHER;
  if (!gather && collective.op != MUSTER_REDUCE_SCATTER) return member.source;
  const std::uint64_t offset = block_of(collective, member.index, ranks).offset * element_bytes;
  return gather ? member.source - offset : member.source + offset;
}

}  // namespace

Block block_of(const Collective& collective, std::int32_t index, std::int32_t) {
  const auto i = static_cast<std::size_t>(index);
  if (collective.counts.empty()) return Block{collective.count * i, collective.count};
  std::uint64_t offset = 0;
  for (std::size_t k = 0; k < i; ++k) offset += collective.counts[k];
  return Block{offset, collective.counts[i]};
}

std::uint64_t total_count(const Collective& collective, std::int32_t ranks) {
  if (collective.op == MUSTER_BARRIER) return 0;
  if (!has_blocks(collective.op)) return collective.count;
  const Block last = block_of(collective, ranks - 1, ranks);
  return last.offset + last.count;
}

std::uint64_t source_count(const Collective& collective, std::int32_t index, std::int32_t ranks) {
  switch (collective.op) {
    case MUSTER_ALL_GATHER:
      return block_of(collective, index, ranks).count;
    case MUSTER_ALL_REDUCE:
    case MUSTER_REDUCE_SCATTER:
      return total_count(collective, ranks);
    case MUSTER_BROADCAST:
    case MUSTER_SEND:
    case MUSTER_RECV:
      return index == collective.root ? collective.count : 0;
    default:
      return 0;
  }
}

std::uint64_t target_count(const Collective& collective, std::int32_t index, std::int32_t ranks) {
  switch (collective.op) {
    case MUSTER_REDUCE_SCATTER:
      return block_of(collective, index, ranks).count;
    case MUSTER_ALL_REDUCE:
    case MUSTER_ALL_GATHER:
    case MUSTER_BROADCAST:
      return total_count(collective, ranks);
    case MUSTER_SEND:
    case MUSTER_RECV:
      return index == collective.receiver ? collective.count : 0;
    default:
      return 0;
  }
}

Status validate(const Collective& collective, std::int32_t ranks) {
  if (ranks < 1) return failure(Code::kBadArgument, "a group of {} ranks has no collectives", ranks);
  if (collective.op < MUSTER_ALL_REDUCE || collective.op > MUSTER_RECV)
    return failure(Code::kBadArgument, "op {} is none of MUSTER_ALL_REDUCE..MUSTER_RECV ({}..{})",
                   collective.op, static_cast<int>(MUSTER_ALL_REDUCE), static_cast<int>(MUSTER_RECV));
  if (collective.op == MUSTER_BARRIER) return Status();  // no data: no other field means anything
  if (dtype_bytes(collective.dtype) == 0)
    return failure(Code::kBadArgument, "dtype {} of {} is none of MUSTER_F32..MUSTER_U8 ({}..{})",
                   collective.dtype, name_of(collective.op), static_cast<int>(MUSTER_F32),
                   static_cast<int>(MUSTER_U8));
  MUSTER_RETURN_IF_ERROR(check_redop(collective));
  MUSTER_RETURN_IF_ERROR(check_peers(collective, ranks));
  return check_counts(collective, ranks);
}

Status check_member(const Collective& collective, const Member& member, std::int32_t ranks) {
  const std::size_t element_bytes = dtype_bytes(collective.dtype);
  const std::uint64_t source_bytes = source_count(collective, member.index, ranks) * element_bytes;
  const std::uint64_t target_bytes = target_count(collective, member.index, ranks) * element_bytes;
  if (source_bytes > 0 && member.source == nullptr)
    return failure(Code::kBadArgument, "member {} has no source; {} bytes are read from it", member.index,
                   source_bytes);
  if (target_bytes > 0 && member.target == nullptr)
    return failure(Code::kBadArgument, "member {} has no target; {} bytes are written to it", member.index,
                   target_bytes);
  if (source_bytes == 0 || target_bytes == 0) return Status();
  const auto source = reinterpret_cast<std::uintptr_t>(member.source);
  const auto target = reinterpret_cast<std::uintptr_t>(member.target);
  const bool overlap = source < target + target_bytes && target < source + source_bytes;
  if (overlap && member.target != in_place_target(collective, member, ranks, element_bytes))
    return failure(Code::kBadArgument,
                   "source and target of member {} overlap by {} bytes' offset; in place means the same "
                   "start, or the own "
                   "block of the whole vector",
                   member.index, static_cast<std::int64_t>(target - source));
  return Status();
}

}  // namespace muster::transport
