#include "api/client/session/objects.hpp"

#include "api/base/fault_point.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

namespace muster::client {
namespace {

// Bytes of one piece: a member's in each round of a gather, or a broadcast's.
constexpr std::uint64_t kPieceBytes = 64 << 10;

Status check_root(std::int32_t root, std::size_t members, std::int32_t least) {
  if (root >= least && root < static_cast<std::int32_t>(members)) return {};
  return failure(Code::kBadArgument, "root {} is not a member: the group has 0..{}{}", root, members - 1,
                 least < 0 ? ", and -1 is everybody" : "");
}

}  // namespace

// Makes room for a piece of each member, and one for the piece of this rank.
Status Objects::reserve(std::size_t members) {
  const std::uint64_t bytes = (members + 1) * kPieceBytes;
  if (bytes <= bytes_) return {};
  MUSTER_ASSIGN_OR_RETURN(const auto granted, buffers_.alloc(bytes));
  if (granted.address == nullptr)
    return failure(Code::kUnsupported, "objects need memory that this process sees");
  // The former buffer is not freed, because plans still name it.
  buffer_ = granted.buffer;
  memory_ = granted.address;
  bytes_ = bytes;
  return {};
}

Result<muster_plan> Objects::broadcast_plan(muster_group group, std::int32_t root, std::uint64_t bytes) {
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_BROADCAST;
  c.group = group;
  c.dtype = MUSTER_U8;
  c.peer = root;
  c.source = c.target = {buffer_, 0};
  c.count = bytes;
  return plans_.cached(c);
}

// Every member gives `bytes`. They come end to end behind the receiver's own piece.
Result<muster_plan> Objects::gather_plan(muster_group group, std::int32_t root, std::uint64_t bytes) {
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = root < 0 ? MUSTER_ALL_GATHER : MUSTER_GATHER;
  c.peer = std::max(root, 0);
  c.group = group;
  c.dtype = MUSTER_U8;
  c.source = {buffer_, 0};
  c.target = {buffer_, kPieceBytes};
  c.count = bytes;
  return plans_.cached(c);
}

Status Objects::make_room(std::uint64_t bytes) {
  try {
    result_.resize(bytes);
    return {};
  } catch (const std::exception&) {  // bad_alloc, length_error
    return failure(Code::kNoResource,
                   "the result has {} bytes, more than this process has room for; give less at once. Other "
                   "members are told by an abort of the group",
                   bytes);
  }
}

// Keeps `given` in place: the new result must not overwrite or move bytes that are still to be given.
std::vector<std::byte> Objects::take_if_given(std::span<const std::byte> given) {
  const std::less<> before;
  const bool inside = !given.empty() && !before(given.data(), result_.data()) &&
                      before(given.data(), result_.data() + result_.size());
  return inside ? std::exchange(result_, {}) : std::vector<std::byte>();
}

namespace {

// Whether the call failed at this rank alone.
bool is_of_this_call(const Status& status) {
  const auto number = static_cast<muster_status_t>(status.code());
  return number <= -100 && number > -200;
}

}  // namespace

// Once the lengths are known, members wait for each other in every round. So a failure of this rank alone
// aborts the group.
template<class Rounds>
Status Objects::in_step(muster_group group, std::size_t members, Rounds rounds) {
  Status status = rounds();
  if (is_of_this_call(status) && members > 1) static_cast<void>(groups_.abort(group, status.message()));
  return status;
}

namespace {

constexpr std::uint64_t kObjectBytesMax = std::uint64_t{1} << 40;

// Every member checks the same lengths, so all get the same result.
Status check_lengths(std::span<const std::uint64_t> lengths) {
  for (const std::uint64_t length : lengths)
    if (length > kObjectBytesMax)
      return failure(Code::kNoResource, "an object of {} bytes; at most {} are possible", length,
                     kObjectBytesMax);
  return {};
}

}  // namespace

Status Objects::broadcast(muster_group group, std::int32_t root, std::span<const std::byte> given) {
  MUSTER_ASSIGN_OR_RETURN(const auto* facts, groups_.facts(group));
  MUSTER_RETURN_IF_ERROR(check_root(root, facts->ranks.size(), 0));
  MUSTER_RETURN_IF_ERROR(reserve(1));
  const bool gives = facts->rank == root;
  std::uint64_t length = given.size();
  MUSTER_ASSIGN_OR_RETURN(const muster_plan of_length, broadcast_plan(group, root, sizeof length));
  // Always moves a whole piece, so that one plan serves all lengths.
  MUSTER_ASSIGN_OR_RETURN(const muster_plan of_piece, broadcast_plan(group, root, kPieceBytes));
  if (gives) std::memcpy(memory_, &length, sizeof length);
  MUSTER_RETURN_IF_ERROR(runs_.run(of_length, Nanos(0)));
  std::memcpy(&length, memory_, sizeof length);
  MUSTER_RETURN_IF_ERROR(check_lengths(std::span(&length, 1)));
  return in_step(group, facts->ranks.size(), [&]() -> Status {
    const std::vector<std::byte> former = take_if_given(given);
    MUSTER_RETURN_IF_ERROR(make_room(length));
    for (std::uint64_t at = 0; at < length; at += kPieceBytes) {
      const std::uint64_t bytes = std::min(kPieceBytes, length - at);
      if (gives) std::memcpy(memory_, given.data() + at, bytes);
      MUSTER_RETURN_IF_ERROR(runs_.run(of_piece, Nanos(0)));
      std::memcpy(result_.data() + at, memory_, bytes);
    }
    return {};
  });
}

Status Objects::gather(muster_group group, std::int32_t root, std::span<const std::byte> given) {
  MUSTER_ASSIGN_OR_RETURN(const auto* facts, groups_.facts(group));
  const std::size_t members = facts->ranks.size();
  MUSTER_RETURN_IF_ERROR(check_root(root, members, -1));
  MUSTER_RETURN_IF_ERROR(reserve(members));
  const bool gets = root < 0 || facts->rank == root;
  const std::byte* pieces = memory_ + kPieceBytes;
  const std::uint64_t length = given.size();
  MUSTER_ASSIGN_OR_RETURN(const muster_plan of_lengths, gather_plan(group, -1, sizeof length));
  MUSTER_ASSIGN_OR_RETURN(const muster_plan of_pieces, gather_plan(group, root, kPieceBytes));
  std::vector<std::uint64_t> lengths(members);
  offsets_.assign(members + 1, 0);
  std::memcpy(memory_, &length, sizeof length);
  MUSTER_RETURN_IF_ERROR(runs_.run(of_lengths, Nanos(0)));
  std::memcpy(lengths.data(), pieces, members * sizeof length);
  MUSTER_RETURN_IF_ERROR(check_lengths(lengths));
  std::partial_sum(lengths.begin(), lengths.end(), offsets_.begin() + 1);
  return in_step(group, members, [&]() -> Status {
    const std::vector<std::byte> former = take_if_given(given);
    MUSTER_RETURN_IF_ERROR(make_room(gets ? offsets_.back() : 0));
    MUSTER_FAULT_POINT("object.length_known");
    const std::uint64_t longest = *std::max_element(lengths.begin(), lengths.end());
    for (std::uint64_t at = 0; at < longest; at += kPieceBytes) {
      if (at < length) std::memcpy(memory_, given.data() + at, std::min(kPieceBytes, length - at));
      MUSTER_RETURN_IF_ERROR(runs_.run(of_pieces, Nanos(0)));
      MUSTER_FAULT_POINT("object.piece_copied");
      for (std::size_t i = 0; gets && i < members; ++i)
        if (at < lengths[i])
          std::memcpy(result_.data() + offsets_[i] + at, pieces + i * kPieceBytes,
                      std::min(kPieceBytes, lengths[i] - at));
    }
    return {};
  });
}

}  // namespace muster::client
