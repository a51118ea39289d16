// Bytes of any length from member to member, by collectives over pieces of them: lengths first, then rounds
// of what fits into the session's piece of memory for it.
#include "api/client/objects.hpp"

#include "api/base/fault_point.hpp"
#include "api/client/session.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <numeric>
#include <utility>

namespace muster::client {
namespace {

// Of each member's piece in a round, and of a broadcast's.
constexpr std::uint64_t kPieceBytes = 64 << 10;

Status check_root(std::int32_t root, std::size_t members, std::int32_t least) {
  if (root >= least && root < static_cast<std::int32_t>(members)) return {};
  return failure(Code::kBadArgument, "root {} is not a member: the group has 0..{}{}", root, members - 1,
                 least < 0 ? ", and -1 is everybody" : "");
}

}  // namespace

// A piece for each member, and one more for what is given.
Status Objects::reserve(std::size_t members) {
  const std::uint64_t bytes = (members + 1) * kPieceBytes;
  if (bytes <= bytes_) return {};
  MUSTER_ASSIGN_OR_RETURN(const auto granted, session_.alloc(bytes));
  if (granted.address == nullptr)
    return failure(Code::kUnsupported, "objects need memory that this process sees");
  // The former one stays for the plans that name it.
  buffer_ = granted.buffer;
  memory_ = granted.address;
  bytes_ = bytes;
  return {};
}

Status Objects::run(muster_plan plan) {
  return session_.run(plan, Nanos(0));
}

Result<muster_plan> Objects::broadcast_plan(muster_group group, std::int32_t root, std::uint64_t bytes) {
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_BROADCAST;
  c.group = group;
  c.dtype = MUSTER_U8;
  c.peer = root;
  c.source = c.target = {buffer_, 0};
  c.count = bytes;
  return session_.cached(c);
}

// Everybody gives `bytes`; at who gets them they stand end to end behind the first piece.
Result<muster_plan> Objects::gather_plan(muster_group group, std::int32_t root, std::uint64_t bytes) {
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = root < 0 ? MUSTER_ALL_GATHER : MUSTER_GATHER;
  c.peer = std::max(root, 0);
  c.group = group;
  c.dtype = MUSTER_U8;
  c.source = {buffer_, 0};
  c.target = {buffer_, kPieceBytes};
  c.count = bytes;
  return session_.cached(c);
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

// Pieces of the new result must not be written over what is still to be given, nor move it.
std::vector<std::byte> Objects::take_if_given(std::span<const std::byte> given) {
  const std::less<> before;
  const bool inside = !given.empty() && !before(given.data(), result_.data()) &&
                      before(given.data(), result_.data() + result_.size());
  return inside ? std::exchange(result_, {}) : std::vector<std::byte>();
}

namespace {

// A status that says of a collective that it did not take place for this rank alone.
bool is_of_this_call(const Status& status) {
  const auto number = static_cast<muster_status_t>(status.code());
  return number <= -100 && number > -200;
}

}  // namespace

// Once lengths are known all members count on each other for the rest of the rounds.
template<class Rounds>
Status Objects::in_step(muster_group group, std::size_t members, Rounds rounds) {
  Status status = rounds();
  if (is_of_this_call(status) && members > 1) static_cast<void>(session_.abort_group(group));
  return status;
}

namespace {

constexpr std::uint64_t kObjectBytesMax = std::uint64_t{1} << 40;

// What others say: every member sees the same and finds the same.
Status check_lengths(std::span<const std::uint64_t> lengths) {
  for (const std::uint64_t length : lengths)
    if (length > kObjectBytesMax)
      return failure(Code::kNoResource, "an object of {} bytes; at most {} are possible", length,
                     kObjectBytesMax);
  return {};
}

}  // namespace

Status Objects::broadcast(muster_group group, std::int32_t root, std::span<const std::byte> given) {
  MUSTER_ASSIGN_OR_RETURN(const auto* facts, session_.known_group(group));
  MUSTER_RETURN_IF_ERROR(check_root(root, facts->ranks.size(), 0));
  MUSTER_RETURN_IF_ERROR(reserve(1));
  const bool gives = facts->rank == root;
  std::uint64_t length = given.size();
  MUSTER_ASSIGN_OR_RETURN(const muster_plan of_length, broadcast_plan(group, root, sizeof length));
  // Always a whole piece: one plan for all lengths.
  MUSTER_ASSIGN_OR_RETURN(const muster_plan of_piece, broadcast_plan(group, root, kPieceBytes));
  if (gives) std::memcpy(memory_, &length, sizeof length);
  MUSTER_RETURN_IF_ERROR(run(of_length));
  std::memcpy(&length, memory_, sizeof length);
  MUSTER_RETURN_IF_ERROR(check_lengths(std::span(&length, 1)));
  return in_step(group, facts->ranks.size(), [&]() -> Status {
    const std::vector<std::byte> former = take_if_given(given);
    MUSTER_RETURN_IF_ERROR(make_room(length));
    for (std::uint64_t at = 0; at < length; at += kPieceBytes) {
      const std::uint64_t bytes = std::min(kPieceBytes, length - at);
      if (gives) std::memcpy(memory_, given.data() + at, bytes);
      MUSTER_RETURN_IF_ERROR(run(of_piece));
      std::memcpy(result_.data() + at, memory_, bytes);
    }
    return {};
  });
}

Status Objects::gather(muster_group group, std::int32_t root, std::span<const std::byte> given) {
  MUSTER_ASSIGN_OR_RETURN(const auto* facts, session_.known_group(group));
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
  MUSTER_RETURN_IF_ERROR(run(of_lengths));
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
      MUSTER_RETURN_IF_ERROR(run(of_pieces));
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

using muster::Code;
using muster::failure;
using muster::Status;

namespace {

Status check_given(const muster_session* session, const void* data, std::uint64_t bytes) {
  if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
  if (data == nullptr && bytes > 0)
    return failure(Code::kBadArgument, "data is NULL but {} bytes are to be given", bytes);
  return session->usable();
}

}  // namespace

extern "C" {

muster_status_t muster_object_broadcast(muster_session* session, muster_group group, int32_t root,
                                        const void* data, uint64_t bytes, const void** result,
                                        uint64_t* result_bytes) {
  return muster::client::guarded([&]() -> Status {
    if (result == nullptr || result_bytes == nullptr)
      return failure(Code::kBadArgument, "result and result_bytes must not be NULL");
    if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
    MUSTER_RETURN_IF_ERROR(session->usable());
    MUSTER_ASSIGN_OR_RETURN(const auto* facts, session->known_group(group));
    const std::uint64_t given = facts->rank == root ? bytes : 0;
    MUSTER_RETURN_IF_ERROR(check_given(session, data, given));
    muster::client::Objects& objects = session->objects();
    MUSTER_RETURN_IF_ERROR(
        objects.broadcast(group, root, std::span(static_cast<const std::byte*>(data), given)));
    *result = objects.result().data();
    *result_bytes = objects.result().size();
    return {};
  });
}

muster_status_t muster_object_gather(muster_session* session, muster_group group, int32_t root,
                                     const void* data, uint64_t bytes, const void** result,
                                     uint64_t* offsets) {
  return muster::client::guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check_given(session, data, bytes));
    MUSTER_ASSIGN_OR_RETURN(const auto* facts, session->known_group(group));
    const bool gets = root < 0 || facts->rank == root;
    if (gets && (result == nullptr || offsets == nullptr))
      return failure(Code::kBadArgument, "result and offsets must not be NULL at who gets them");
    muster::client::Objects& objects = session->objects();
    MUSTER_RETURN_IF_ERROR(
        objects.gather(group, root, std::span(static_cast<const std::byte*>(data), bytes)));
    if (result != nullptr) *result = gets ? objects.result().data() : nullptr;
    if (gets) std::copy(objects.offsets().begin(), objects.offsets().end(), offsets);
    return {};
  });
}
}
