#include "daemon/engine/direct/direct_records.hpp"

#include <algorithm>

namespace muster::engine {
namespace {

bool has_arrived(const std::byte* region, const DirectQuestion& q) {
  const auto* slot = reinterpret_cast<const shm::DirectSlot*>(region + shm::kSlotsOffset +
                                                              (q.position & 1) * shm::kSlotBytes);
  return peek(&slot->position) >= q.position;
}

bool has_reached(const std::byte* region, const DirectQuestion& q) {
  const auto* head = reinterpret_cast<const shm::MemberRegion*>(region);
  return has_arrived(region, q) && peek(&head->progress) >= shm::make_progress(q.position, q.phase);
}

}  // namespace

std::vector<std::uint32_t> DirectRecords::missing(const DirectQuestion& q) const {
  std::vector<std::uint32_t> missing;
  if (q.kind == shm::DirectWait::kMessage || q.kind == shm::DirectWait::kReceived) {
    if (q.peer >= segments_.member_count(q.group)) return missing;
    const auto* pairs =
        reinterpret_cast<const shm::DirectPair*>(segments_.region(q.group, q.peer) + shm::kPairsOffset);
    const shm::DirectPair& theirs = pairs[q.index];
    const bool sent = peek(&theirs.sent.position) >= q.position;
    const bool received = peek(&theirs.received) >> 1 >= q.position;
    if (!(q.kind == shm::DirectWait::kMessage ? sent : received)) missing.push_back(q.peer);
    return missing;
  }
  for (std::uint32_t i = 0; i < segments_.member_count(q.group); ++i) {
    const std::byte* theirs = segments_.region(q.group, i);
    if (!(q.kind == shm::DirectWait::kArrivals ? has_arrived(theirs, q) : has_reached(theirs, q)))
      missing.push_back(i);
  }
  return missing;
}

std::uint64_t DirectRecords::plan_of(const DirectQuestion& q, std::uint32_t index) const {
  const std::byte* theirs = segments_.region(q.group, index);
  const auto* head = reinterpret_cast<const shm::MemberRegion*>(theirs);
  if (q.kind == shm::DirectWait::kMessage || q.kind == shm::DirectWait::kReceived) {
    const auto* pairs = reinterpret_cast<const shm::DirectPair*>(theirs + shm::kPairsOffset);
    const bool sender = (q.kind == shm::DirectWait::kReceived) == (index == q.index);
    const std::uint32_t other = index == q.index ? q.peer : q.index;
    if (index != q.index && index != q.peer) return 0;
    return sender ? peek(&head->plans[0]) : peek(&pairs[other].plan);
  }
  return has_arrived(theirs, q) ? peek(&head->plans[q.position & 1]) : 0;
}

// ---- records -----------------------------------------------------------------------------------

std::uint64_t DirectRecords::recorded(Rank rank) const {
  return peek(&segments_.header(rank)->recorded);
}

DirectRecords::Counted DirectRecords::counted(Rank rank) const {
  return {peek(&segments_.header(rank)->operations), peek(&segments_.header(rank)->bytes_moved)};
}

DirectRecords::Progress DirectRecords::progress(GroupId group) const {
  if (segments_.member_count(group) == 0) return {epochs_.present(group), 0};  // it has no direct path
  const std::uint64_t latest = segments_.arrived(group, 0);
  const std::uint64_t base = epochs_.base(group);
  return {epochs_.present(group), latest > base ? latest - base : 0};
}

std::optional<DirectRecords::Flight> DirectRecords::flight(Rank rank, std::uint64_t index) const {
  const shm::DirectRecord& record = segments_.records(rank)[index % shm::kDirectRecords];
  if (index == 0 || peek(&record.index) != index) return std::nullopt;
  Flight found;
  found.index = index;
  found.what = shm::unpack_what(peek(&record.what));
  found.uneven = (found.what.dtype & shm::kRecordUneven) != 0;
  found.what.dtype &= static_cast<std::uint8_t>(~shm::kRecordUneven);
  found.epoch = peek(&record.epoch);
  found.number = peek(&record.number);
  found.source_bytes = peek(&record.source_bytes);
  found.target_bytes = peek(&record.target_bytes);
  const std::uint64_t begun = peek(&record.begun_ns);
  const std::uint64_t end = peek(&record.end);
  if (peek(&record.index) != index || found.what.line >= segments_.groups()) return std::nullopt;
  found.group = GroupId(found.what.line);
  const auto member = segments_.index_of(found.group, rank);
  if (!member || found.what.peer >= segments_.member_count(found.group)) return std::nullopt;
  if (found.epoch < epochs_.first(found.group)) return std::nullopt;
  found.member = *member;
  constexpr std::uint64_t kNanosMax = std::uint64_t{1} << 62;
  found.begun = Instant(static_cast<std::int64_t>(std::min(begun, kNanosMax)));
  const std::uint64_t state = end & ((1 << shm::kRecordStateBits) - 1);
  if (state > static_cast<std::uint64_t>(shm::DirectRecord::State::kBadly)) return std::nullopt;
  found.state = static_cast<shm::DirectRecord::State>(state);
  if (const std::uint64_t nanos = end >> shm::kRecordStateBits; nanos != 0)
    found.ended = Instant(static_cast<std::int64_t>(nanos));
  return found;
}

std::optional<DirectRecords::Flight> DirectRecords::latest_flight(Rank rank) const {
  return flight(rank, recorded(rank));
}

std::optional<DirectRecords::Flight> DirectRecords::awaited_flight(Rank rank) const {
  return flight(rank, peek(&segments_.header(rank)->awaiting));
}

std::vector<DirectRecords::Flight> DirectRecords::flights(Rank rank, std::uint64_t after,
                                                          std::uint64_t* lost) const {
  std::vector<Flight> flights;
  const std::uint64_t latest = recorded(rank);
  if (latest <= after) return flights;
  const std::uint64_t wanted = latest - after;
  const std::uint64_t kept = std::min<std::uint64_t>(wanted, shm::kDirectRecords);
  for (std::uint64_t index = latest - kept + 1; index != latest + 1; ++index)
    if (const auto found = flight(rank, index)) flights.push_back(*found);
  if (lost != nullptr) *lost += wanted - flights.size();
  return flights;
}

bool DirectRecords::untold(Rank rank) const {
  return peek(&segments_.header(rank)->untold) != 0;
}

}  // namespace muster::engine
