#include "api/client/run/description.hpp"

#include "api/base/collective/collective.hpp"
#include "api/base/dtype.hpp"
#include "api/shm/message.hpp"
#include "api/shm/tail.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <span>

namespace muster::client {
namespace {

constexpr std::uint64_t kSmallBytes = 64 << 10;  // latency bounds an all-reduce up to this size

// In a transfer the sender names the receiver as its peer, and the receiver the sender.
bool sends(muster_op op) {
  return row_of(op).peer == OperationRow::Peer::kReceiver;
}
bool receives(muster_op op) {
  return row_of(op).peer == OperationRow::Peer::kSender;
}

bool reads(muster_op op, bool is_root) {
  return has_source_blocks(op, is_root) || has_source_block(op, is_root || sends(op));
}

bool writes(muster_op op, bool is_root) {
  return has_target_blocks(op, is_root) || has_target_block(op, is_root, receives(op));
}

// Whether `count` matters: not if lists replace it on each side that has blocks.
bool uses_count(const muster_collective& c, bool is_root) {
  if (has_faces(c.op)) return false;
  const bool source = has_source_blocks(c.op, is_root);
  const bool target = has_target_blocks(c.op, is_root);
  const bool source_uses = source && c.source_blocks.counts == nullptr;
  const bool target_uses = target && c.target_blocks.counts == nullptr;
  return source || target ? source_uses || target_uses : true;
}

bool is_given(const muster_range& range) {
  return range.buffer != 0 || range.offset_bytes != 0;
}

// Refuses a value in a field that the operation has at no member: it was meant for something else.
template<class Value>
Status check_none(bool given, const muster_collective& c, const char* field, const Value& value) {
  if (!given) return {};
  return failure(Code::kBadArgument, "{} {} is given but {} has none; leave it 0", field, value,
                 op_name(c.op));
}

Status check_no_range(const muster_range& range, const muster_collective& c, const char* field) {
  if (!is_given(range)) return {};
  return failure(Code::kBadArgument, "{} (buffer {:#x}, offset {}) is given but {} has none; leave it 0",
                 field, range.buffer, range.offset_bytes, op_name(c.op));
}

// Lists are checked where they are read. An unknown operation passes here and is refused later.
Status check_unused(const muster_collective& c) {
  if (!is_operation(c.op)) return {};
  const bool vectors = has_vectors(c.op);
  MUSTER_RETURN_IF_ERROR(check_none(!has_data(c.op) && c.dtype != 0, c, "dtype", c.dtype));
  MUSTER_RETURN_IF_ERROR(check_none(!has_reduction(c.op) && c.redop != 0, c, "redop", c.redop));
  MUSTER_RETURN_IF_ERROR(check_none(!has_root(c.op) && !is_transfer(c.op) && c.peer != 0, c, "peer", c.peer));
  MUSTER_RETURN_IF_ERROR(check_none(!has_data(c.op) && c.tag != 0, c, "tag", c.tag));
  if (!vectors || receives(c.op)) MUSTER_RETURN_IF_ERROR(check_no_range(c.source, c, "source"));
  if (!vectors || sends(c.op)) MUSTER_RETURN_IF_ERROR(check_no_range(c.target, c, "target"));
  MUSTER_RETURN_IF_ERROR(check_none(!vectors && c.count != 0, c, "count", c.count));
  if (c.scale != 0.0 && c.redop != MUSTER_PREMUL_SUM)
    return failure(Code::kBadArgument, "scale {} is given but the redop is not MUSTER_PREMUL_SUM; leave it 0",
                   c.scale);
  return {};
}

// Before the lists are read: how long they are, and whether they are there.
Status check_pieces(const muster_blocks& blocks, const char* name, std::int32_t ranks, muster_op op) {
  if (blocks.piece_counts == nullptr && blocks.pieces == nullptr) return {};
  if (!has_agreed_blocks(op))
    return failure(Code::kBadArgument, "{} has pieces, but the blocks of {} have none; leave them NULL", name,
                   op_name(op));
  if (blocks.piece_counts == nullptr)
    return failure(Code::kBadArgument, "{}.pieces is given but piece_counts is NULL", name);
  if (blocks.counts != nullptr || blocks.offsets != nullptr)
    return failure(Code::kBadArgument, "{} has pieces beside counts or offsets; leave these NULL", name);
  std::uint64_t entries = 0;
  for (std::int32_t i = 0; i < ranks; ++i) entries += blocks.piece_counts[i];
  if (entries > kPiecesMax)
    return failure(Code::kNoResource, "{} has {} pieces; one operation has at most {}: make it several", name,
                   entries, kPiecesMax);
  if (entries > 0 && blocks.pieces == nullptr)
    return failure(Code::kBadArgument, "{}.pieces is NULL but piece_counts adds up to {}", name, entries);
  return {};
}

void append_pieces(const muster_blocks& blocks, std::int32_t ranks, Description& out) {
  if (blocks.piece_counts == nullptr) return;
  const std::span counts(blocks.piece_counts, static_cast<std::size_t>(ranks));
  const std::uint32_t entries = std::accumulate(counts.begin(), counts.end(), 0u);
  shm::append(out.lists, counts);
  shm::append(out.lists, std::span(blocks.pieces, entries));
  out.message.piece_counts = static_cast<std::uint32_t>(ranks);
  out.message.pieces = entries;
}

// `has`: the operation has such blocks at some member; `mine`: it has them at this member.
Status append_blocks(const muster_blocks& blocks, const char* name, bool has, bool mine, std::int32_t ranks,
                     Description& out, std::uint32_t& counts, std::uint32_t& offsets) {
  const bool given = blocks.counts != nullptr || blocks.offsets != nullptr ||
                     blocks.piece_counts != nullptr || blocks.pieces != nullptr;
  if (!has && given)
    return failure(Code::kBadArgument, "{} is given but {} has no such blocks; leave it NULL", name,
                   op_name(out.message.op));
  if (!mine) return {};
  MUSTER_RETURN_IF_ERROR(check_pieces(blocks, name, ranks, out.message.op));
  const auto append = [&](const std::uint64_t* list, std::uint32_t& entries) {
    if (list == nullptr) return;
    entries = static_cast<std::uint32_t>(ranks);
    shm::append(out.lists, std::span(list, entries));
  };
  append(blocks.counts, counts);
  append(blocks.offsets, offsets);
  return {};
}

Status append_faces(const muster_face* faces, std::uint32_t count, const char* name, Description& out,
                    std::uint32_t& entries) {
  if (!has_faces(out.message.op) && (count != 0 || faces != nullptr))
    return failure(Code::kBadArgument, "{} {} are given but {} has none; leave them NULL and the count 0",
                   count, name, op_name(out.message.op));
  if (count == 0) return {};
  if (faces == nullptr) return failure(Code::kBadArgument, "{} is NULL but its count is {}", name, count);
  if (count > shm::kFacesMax - out.message.sends)
    return failure(Code::kNoResource,
                   "{} {} are more than a message holds: sends and receives of one exchange are at most {} "
                   "together; make it several exchanges",
                   count, name, shm::kFacesMax);
  for (const muster_face& face : std::span(faces, count)) shm::append(out.lists, face);
  entries = count;
  return {};
}

}  // namespace

std::string Description::key() const {
  const auto fields = shm::bytes_of(message).subspan(sizeof(shm::MessageHeader));
  std::string key(reinterpret_cast<const char*>(fields.data()), fields.size());
  key.append(reinterpret_cast<const char*>(lists.data()), lists.size());
  return key;
}

Result<Description> describe(const muster_collective& c, std::int32_t index, std::int32_t ranks) {
  Description out;
  shm::PlanCollective& m = out.message;
  m.op = c.op;
  m.group = c.group;
  if (c.site != nullptr) {
    MUSTER_RETURN_IF_ERROR(shm::set_text(m.site, c.site, "site"));
  }
  MUSTER_RETURN_IF_ERROR(check_unused(c));
  if (!has_faces(c.op)) m.dtype = c.dtype;
  m.redop = c.redop;
  if (has_root(c.op) || is_transfer(c.op)) m.peer = c.peer;
  m.tag = c.tag;
  if (c.redop == MUSTER_PREMUL_SUM) m.scale = c.scale;
  const bool is_root = has_root(c.op) && c.peer == index;
  if (reads(c.op, is_root)) m.source = c.source;
  if (writes(c.op, is_root)) m.target = c.target;
  if (uses_count(c, is_root)) m.count = c.count;
  MUSTER_RETURN_IF_ERROR(append_blocks(c.source_blocks, "source_blocks", has_source_blocks(c.op, true),
                                       has_source_blocks(c.op, is_root), ranks, out, m.source_counts,
                                       m.source_offsets));
  MUSTER_RETURN_IF_ERROR(append_blocks(c.target_blocks, "target_blocks", has_target_blocks(c.op, true),
                                       has_target_blocks(c.op, is_root), ranks, out, m.target_counts,
                                       m.target_offsets));
  if (has_agreed_blocks(c.op))
    append_pieces(has_target_blocks(c.op, false) ? c.target_blocks : c.source_blocks, ranks, out);
  if (out.lists.size() > shm::kListBytesMax)
    return fail(Code::kNoResource,
                "the lists of {} have {} bytes; one message holds {}: the group is too large", op_name(c.op),
                out.lists.size(), shm::kListBytesMax);
  MUSTER_RETURN_IF_ERROR(append_faces(c.sends, c.send_count, "sends", out, m.sends));
  MUSTER_RETURN_IF_ERROR(append_faces(c.receives, c.receive_count, "receives", out, m.receives));
  return out;
}

muster_lane usual_lane(const shm::PlanCollective& m) {
  const OperationRow& row = row_of(m.op);
  const bool small = m.count <= kSmallBytes / std::max<std::size_t>(dtype_bytes(m.dtype), 1);
  return small ? row.lane_if_small : row.lane;
}

}  // namespace muster::client
