#include "api/base/collective/collective.hpp"

#include "api/base/dtype.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

namespace muster {
namespace {

// The longest vector: memory is addressed by signed differences.
constexpr std::uint64_t kBytesMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

// "MUSTER_ALL_REDUCE"
std::string constant_of(muster_op op) {
  std::string text = "MUSTER_";
  for (const char* c = op_name(op); *c != 0; ++c) text += *c == '_' ? '_' : static_cast<char>(*c - 'a' + 'A');
  return text;
}

Status check_redop(const Collective& c) {
  if (!has_reduction(c.op)) {
    if (c.redop != 0)
      return failure(Code::kBadArgument, "redop {} is given but {} reduces nothing; leave it 0", c.redop,
                     op_name(c.op));
    return Status();
  }
  if (c.redop < MUSTER_SUM || c.redop > MUSTER_PREMUL_SUM)
    return failure(Code::kBadArgument, "redop {} of {} is none of MUSTER_SUM..MUSTER_PREMUL_SUM ({}..{})",
                   c.redop, op_name(c.op), static_cast<int>(MUSTER_SUM), static_cast<int>(MUSTER_PREMUL_SUM));
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
  if (!has_root(c.op) && !is_transfer(c.op)) {
    if (c.root != 0)
      return failure(Code::kBadArgument, "peer {} is given but {} has none; leave it 0", c.root,
                     op_name(c.op));
    return Status();
  }
  if (c.root < 0 || c.root >= ranks)
    return failure(Code::kBadArgument, "peer {} of {} is not a member: the group has 0..{}", c.root,
                   op_name(c.op), ranks - 1);
  if (!is_transfer(c.op)) return Status();
  if (c.receiver < 0 || c.receiver >= ranks)
    return failure(Code::kBadArgument, "peer {} of {} is not a member: the group has 0..{}", c.receiver,
                   op_name(c.op), ranks - 1);
  if (c.receiver == c.root)
    return failure(Code::kBadArgument, "peer {} of {} is this rank itself; copy instead", c.root,
                   op_name(c.op));
  return Status();
}

Status check_counts(const Collective& c, std::int32_t ranks) {
  const auto members = static_cast<std::uint64_t>(ranks);
  if (is_pairwise(c.op) && c.count != 0)
    return failure(Code::kBadArgument, "count {} stands in what all agree on, but {} agrees pair by pair",
                   c.count, op_name(c.op));
  if (!c.counts.empty() && !has_agreed_blocks(c.op))
    return failure(Code::kBadArgument, "counts has {} entries but {} has no uneven blocks; leave it empty",
                   c.counts.size(), op_name(c.op));
  if (!c.counts.empty() && c.counts.size() != members)
    return failure(Code::kBadArgument, "counts has {} entries; {} in a group of {} needs one per member",
                   c.counts.size(), op_name(c.op), ranks);
  std::uint64_t total = c.count;
  bool overflow = false;
  if (!c.counts.empty()) {
    total = 0;
    for (const std::uint64_t count : c.counts)
      overflow = overflow || __builtin_add_overflow(total, count, &total);
  } else if (has_agreed_blocks(c.op)) {
    overflow = __builtin_mul_overflow(c.count, members, &total);
  }
  if (overflow || total > kBytesMax / dtype_bytes(c.dtype))
    return failure(
        Code::kBadArgument,
        "{} of {} elements a member (or by counts) of {} bytes in a group of {} is more than 2^63 bytes",
        op_name(c.op), c.count, dtype_bytes(c.dtype), ranks);
  return Status();
}

// Source or target of a share, as its caller described it.
struct Side {
  const char* name;
  std::uint64_t count;
  std::span<const std::uint64_t> counts;
  std::span<const std::uint64_t> offsets;
};

Status check_lists(const Side& side, muster_op op, std::int32_t ranks, bool has_lists) {
  const auto check = [&](const char* list, std::size_t entries) {
    if (entries == 0) return Status();
    if (!has_lists)
      return failure(Code::kBadArgument, "{}.{} is given but {} has no such blocks; leave it NULL", side.name,
                     list, op_name(op));
    if (entries != static_cast<std::size_t>(ranks))
      return failure(Code::kBadArgument, "{}.{} has {} entries; {} in a group of {} needs one per member",
                     side.name, list, entries, op_name(op), ranks);
    return Status();
  };
  MUSTER_RETURN_IF_ERROR(check("counts", side.counts.size()));
  return check("offsets", side.offsets.size());
}

Result<std::vector<Block>> blocks_of(const Side& side, std::int32_t ranks, std::size_t element_bytes) {
  const std::uint64_t elements_max = kBytesMax / element_bytes;
  std::vector<Block> blocks(static_cast<std::size_t>(ranks));
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    Block& block = blocks[i];
    block.count = side.counts.empty() ? side.count : side.counts[i];
    if (block.count > elements_max - sum)
      return fail(Code::kBadArgument,
                  "{}: the counts up to block {} of {} elements add up to more than 2^63 bytes", side.name, i,
                  block.count);
    block.offset = side.offsets.empty() ? sum : block.count > 0 ? side.offsets[i] : 0;
    if (block.offset > elements_max - block.count)
      return fail(Code::kBadArgument,
                  "{}: block {} of {} elements at offset {} ends beyond 2^63 bytes of its vector", side.name,
                  i, block.count, block.offset);
    sum += block.count;
  }
  return blocks;
}

// Blocks that are written must not overlap.
Status check_apart(const char* name, std::span<const Block> blocks) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < blocks.size(); ++i)
    if (blocks[i].count > 0) order.push_back(i);
  const auto by_offset = [&](std::size_t a, std::size_t b) { return blocks[a].offset < blocks[b].offset; };
  // Blocks mostly lie end to end, and need no sorting.
  if (!std::is_sorted(order.begin(), order.end(), by_offset))
    std::sort(order.begin(), order.end(), by_offset);
  for (std::size_t k = 1; k < order.size(); ++k) {
    const Block& a = blocks[order[k - 1]];
    const Block& b = blocks[order[k]];
    if (a.offset + a.count > b.offset)
      return failure(Code::kBadArgument,
                     "{}: block {} [{}, {}) and block {} [{}, {}) overlap; both are written", name,
                     order[k - 1], a.offset, a.offset + a.count, order[k], b.offset, b.offset + b.count);
  }
  return Status();
}

// The blocks of the cut side, whose entries are pieces.
Result<std::vector<Block>> pieces_of(const Side& side, std::span<const muster_piece> pieces,
                                     std::size_t element_bytes) {
  const std::uint64_t elements_max = kBytesMax / element_bytes;
  std::vector<Block> blocks;
  for (const muster_piece& said : pieces) {
    const Block piece{said.count > 0 ? said.offset : 0, said.count};
    if (piece.count > elements_max || piece.offset > elements_max - piece.count)
      return fail(Code::kBadArgument,
                  "{}: piece {} of {} elements at offset {} ends beyond 2^63 bytes of its vector", side.name,
                  blocks.size(), piece.count, piece.offset);
    blocks.push_back(piece);
  }
  return blocks;
}

// Elements of each block, and where its pieces begin.
Status add_pieces(const Share::Counts& counts, std::int32_t ranks, Collective& c,
                  std::vector<std::uint64_t>& sums) {
  const char* const name = has_target_blocks(c.op, false) ? "target_blocks" : "source_blocks";
  if (!has_agreed_blocks(c.op))
    return failure(Code::kBadArgument, "pieces are given but the blocks of {} have none; leave them NULL",
                   op_name(c.op));
  if (counts.count != 0 || !counts.source_counts.empty() || !counts.source_offsets.empty() ||
      !counts.target_counts.empty() || !counts.target_offsets.empty())
    return failure(
        Code::kBadArgument,
        "{} has pieces beside a count, counts or offsets; the pieces say all, leave these 0 and NULL", name);
  if (counts.piece_counts.size() != static_cast<std::size_t>(ranks))
    return failure(Code::kBadArgument,
                   "{}.piece_counts has {} entries; {} in a group of {} needs one per member", name,
                   counts.piece_counts.size(), op_name(c.op), ranks);
  const std::size_t pieces = counts.pieces.size();
  std::size_t next = 0;
  c.first_piece.push_back(0);
  for (const std::uint32_t entries : counts.piece_counts) {
    if (entries > pieces - next)
      return failure(Code::kBadArgument, "{}.piece_counts adds up to more than the {} pieces that are given",
                     name, pieces);
    std::uint64_t sum = 0;
    for (const std::size_t end = next + entries; next < end; ++next)
      if (__builtin_add_overflow(sum, counts.pieces[next].count, &sum))
        return failure(Code::kBadArgument, "{}.pieces add up to more than 2^63 bytes", name);
    sums.push_back(sum);
    c.first_piece.push_back(static_cast<std::uint32_t>(next));
  }
  if (next == pieces) return {};
  return failure(Code::kBadArgument, "{}.piece_counts adds up to {}, but {} pieces are given", name, next,
                 pieces);
}

bool is_even(std::span<const std::uint64_t> counts) {
  return std::all_of(counts.begin(), counts.end(), [&](std::uint64_t count) { return count == counts[0]; });
}

// The member's half of an operation whose blocks lie in pieces: all pieces on the cut side, and its own block
// on the other, end to end or in the same pieces.
Result<Share> in_pieces(const Collective& c, Share share, const Share::Counts& counts) {
  const bool of_target = has_target_blocks(c.op, false);
  const Side side{of_target ? "target_blocks" : "source_blocks", 0, {}, {}};
  MUSTER_ASSIGN_OR_RETURN(auto cut, pieces_of(side, counts.pieces, dtype_bytes(c.dtype)));
  if (of_target) MUSTER_RETURN_IF_ERROR(check_apart(side.name, cut));
  const auto own = entries_of(c, cut, static_cast<std::size_t>(share.index));
  std::vector<Block> mine{{0, count_of(own)}};
  if (counts.in_place && count_of(own) > 0) mine.assign(own.begin(), own.end());
  share.source_blocks = of_target ? std::move(mine) : std::move(cut);
  share.target_blocks = of_target ? std::move(cut) : std::move(mine);
  return share;
}

}  // namespace

std::uint64_t Face::count() const noexcept {
  std::uint64_t elements = 1;
  for (std::int32_t d = 0; d < dims; ++d)
    elements *= static_cast<std::uint64_t>(size[static_cast<std::size_t>(d)]);
  return elements;
}

std::size_t Face::element_bytes() const noexcept {
  return dtype_bytes(dtype);
}

std::uint64_t Face::bytes() const noexcept {
  return count() * element_bytes();
}

Face make_face(const muster_face& said, std::byte* data) noexcept {
  Face face;
  face.dtype = said.view.dtype;
  face.peer = said.peer;
  face.tag = said.tag;
  face.dims = said.view.dims;
  face.data = data;
  if (face.dims < 0 || face.dims > MUSTER_TENSOR_DIMS_MAX) return face;
  std::copy_n(said.view.size, face.dims, face.size.begin());
  std::copy_n(said.view.stride, face.dims, face.stride.begin());
  return face;
}

Result<Collective> make_collective(const muster_collective& said, std::int32_t index, std::int32_t ranks,
                                   const Share::Counts& counts) {
  Collective c;
  c.op = said.op;
  if (!has_data(said.op)) return c;
  c.dtype = has_faces(said.op) ? MUSTER_U8 : said.dtype;
  c.redop = said.redop;
  c.tag = said.tag;
  if (said.redop == MUSTER_PREMUL_SUM) c.scale = said.scale;
  if (has_root(said.op) || is_transfer(said.op)) {
    if (said.peer < 0 || said.peer >= ranks)
      return fail(Code::kBadArgument, "peer {} of {} is not a member: the group has 0..{}", said.peer,
                  op_name(said.op), ranks - 1);
    const bool sends = row_of(said.op).peer == OperationRow::Peer::kReceiver;
    c.root = sends ? index : said.peer;
    if (is_transfer(said.op)) c.receiver = sends ? said.peer : index;
    if (is_transfer(said.op) && said.peer == index)
      return fail(Code::kBadArgument, "peer {} of {} is this rank itself; copy instead", said.peer,
                  op_name(said.op));
  }
  if (!is_pairwise(said.op)) c.count = counts.count;
  std::vector<std::uint64_t> sums;
  if (!counts.piece_counts.empty() || !counts.pieces.empty())
    MUSTER_RETURN_IF_ERROR(add_pieces(counts, ranks, c, sums));
  if (has_agreed_blocks(said.op)) {
    const bool of_target = has_target_blocks(said.op, false);
    auto list = of_target ? counts.target_counts : counts.source_counts;
    if (!sums.empty()) list = sums;
    if (!list.empty() && is_even(list)) {
      c.count = list[0];
    } else if (!list.empty()) {
      c.count = 0;
      c.counts.assign(list.begin(), list.end());
    }
    if (!list.empty() && list.size() != static_cast<std::size_t>(ranks))
      return fail(Code::kBadArgument,
                  "{}_blocks.counts has {} entries; {} in a group of {} needs one per member",
                  of_target ? "target" : "source", list.size(), op_name(said.op), ranks);
  }
  MUSTER_RETURN_IF_ERROR(validate(c, ranks));
  return c;
}

Result<Share> make_share(const Collective& collective, std::int32_t index, std::int32_t ranks,
                         const Share::Counts& counts) {
  const muster_op op = collective.op;
  if (index < 0 || index >= ranks)
    return fail(Code::kBadArgument, "member index {} is not in the group's 0..{}", index, ranks - 1);
  Share share;
  share.index = index;
  if (!has_data(op)) return share;
  const bool is_root = index == collective.root;
  const std::uint64_t own = is_pairwise(op) ? counts.count : collective.count;
  Side source{"source_blocks", own, counts.source_counts, counts.source_offsets};
  Side target{"target_blocks", own, counts.target_counts, counts.target_offsets};
  MUSTER_RETURN_IF_ERROR(check_lists(source, op, ranks, has_source_blocks(op, true)));
  MUSTER_RETURN_IF_ERROR(check_lists(target, op, ranks, has_target_blocks(op, true)));
  const std::size_t bytes = dtype_bytes(collective.dtype);
  if (bytes == 0)
    return fail(Code::kBadArgument, "dtype {} of {} is none that muster.h names", collective.dtype,
                op_name(op));
  if (has_agreed_blocks(op)) source.counts = target.counts = collective.counts;
  if (!collective.first_piece.empty()) return in_pieces(collective, std::move(share), counts);
  if (has_source_blocks(op, is_root)) {
    MUSTER_ASSIGN_OR_RETURN(share.source_blocks, blocks_of(source, ranks, bytes));
  }
  if (has_target_blocks(op, is_root)) {
    MUSTER_ASSIGN_OR_RETURN(share.target_blocks, blocks_of(target, ranks, bytes));
    MUSTER_RETURN_IF_ERROR(check_apart(target.name, share.target_blocks));
  }
  // For the side with one block. If the other side has a list, its own entry is the length.
  const auto i = static_cast<std::size_t>(index);
  Block block{0, own};
  if (!share.source_blocks.empty()) block.count = share.source_blocks[i].count;
  if (!share.target_blocks.empty()) block.count = share.target_blocks[i].count;
  const bool gives = has_source_block(op, is_root);
  const bool gets = has_target_block(op, is_root, index == collective.receiver);
  if ((gives || gets) && block.count > kBytesMax / bytes)
    return fail(Code::kBadArgument, "count {} of {} is more than 2^63 bytes", block.count, op_name(op));
  if (gives) share.source_blocks.assign(1, block);
  if (gets) share.target_blocks.assign(1, block);
  return share;
}

std::span<const Block> entries_of(const Collective& collective, std::span<const Block> blocks,
                                  std::size_t block) noexcept {
  if (collective.first_piece.empty()) return blocks.subspan(block, 1);
  const std::uint32_t first = collective.first_piece[block];
  return blocks.subspan(first, collective.first_piece[block + 1] - first);
}

std::uint64_t extent_of(std::span<const Block> blocks) noexcept {
  std::uint64_t extent = 0;
  for (const Block& block : blocks)
    if (block.count > 0) extent = std::max(extent, block.offset + block.count);
  return extent;
}

std::uint64_t count_of(std::span<const Block> blocks) noexcept {
  std::uint64_t count = 0;
  for (const Block& block : blocks) count += block.count;
  return count;
}

std::uint64_t given_count(const Share& share) noexcept {
  std::uint64_t count = count_of(share.source_blocks);
  for (const Face& face : share.sends) count += face.bytes();
  return count;
}

std::uint64_t got_count(const Share& share) noexcept {
  std::uint64_t count = count_of(share.target_blocks);
  for (const Face& face : share.receives) count += face.bytes();
  return count;
}

Status validate(const Collective& collective, std::int32_t ranks) {
  if (ranks < 1) return failure(Code::kBadArgument, "a group of {} ranks has no collectives", ranks);
  if (!is_operation(collective.op))
    return failure(Code::kBadArgument, "op {} is none of {}..{} ({}..{})", collective.op, constant_of(1),
                   constant_of(kOperations), 1, kOperations);
  if (!has_data(collective.op)) return Status();  // no other field means anything
  if (dtype_bytes(collective.dtype) == 0)
    return failure(Code::kBadArgument, "dtype {} of {} is none that muster.h names", collective.dtype,
                   op_name(collective.op));
  MUSTER_RETURN_IF_ERROR(check_redop(collective));
  MUSTER_RETURN_IF_ERROR(check_peers(collective, ranks));
  return check_counts(collective, ranks);
}

const char* redop_name(muster_redop op) noexcept {
  constexpr const char* kNames[] = {"none", "sum", "avg", "max", "min", "prod", "premul_sum"};
  return op >= 0 && op <= MUSTER_PREMUL_SUM ? kNames[op] : "unknown_redop";
}

}  // namespace muster
