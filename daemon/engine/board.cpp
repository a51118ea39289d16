#include "daemon/engine/board.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <numeric>

#include <fcntl.h>

namespace muster::engine {
namespace {

using shm::Published;
using shm::Untrusted;

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}

std::uint64_t peek(const std::uint64_t* word) {
  return Untrusted<std::uint64_t>(word).load_acquire();
}

// The words of a seat, as an engine that makes it ready for a new client sees them.
void clear_seat(std::byte* seat, std::size_t members) {
  auto* head = reinterpret_cast<shm::DirectSeat*>(seat);
  for (std::uint64_t& progress : head->progress) Published<std::uint64_t>(&progress).store(0);
  Published<std::uint64_t>(&head->generation).store(0);
  for (std::uint64_t& plan : head->plans) Published<std::uint64_t>(&plan).store(0);
  for (std::size_t k = 0; k < 2; ++k) {
    auto* slot = reinterpret_cast<shm::DirectSlot*>(seat + shm::kSlotsOffset + k * shm::kSlotBytes);
    Published<std::uint64_t>(&slot->sequence).store_ordered(0);
    Published<std::uint64_t>(&slot->generation).store(0);
  }
  auto* pairs = reinterpret_cast<shm::DirectPair*>(seat + shm::kPairsOffset);
  for (std::size_t i = 0; i < members; ++i) {
    Published<std::uint64_t>(&pairs[i].sent.sequence).store_ordered(0);
    Published<std::uint64_t>(&pairs[i].sent.generation).store(0);
    Published<std::uint64_t>(&pairs[i].received_generation).store(0);
    Published<std::uint64_t>(&pairs[i].received).store_ordered(0);
  }
}

}  // namespace

Result<shm::Descriptor> read_only(int memory) {
  const std::string path = "/proc/self/fd/" + std::to_string(memory);
  shm::Descriptor copy(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!copy.valid())
    return fail(Code::kNoResource, "{}: {}; /proc must be mounted, and descriptors be left (ulimit -n)", path,
                std::strerror(errno));
  return copy;
}

// ---- memory ------------------------------------------------------------------------------------

Result<Board> Board::create(std::span<const scheduler::Group> groups, std::uint32_t world,
                            std::uint32_t spare_seats, std::uint64_t epoch, const shm::Headroom& headroom,
                            const std::shared_ptr<MemoryAccount>& account) {
  Board board;
  board.segments_.resize(world);
  board.lives_.resize(world);
  std::vector<std::uint64_t> ends(world, shm::kDirectSeatsOffset);
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    GroupState state;
    const std::uint64_t bytes = shm::seat_bytes(static_cast<std::uint32_t>(groups[g].ranks.size()));
    for (const Rank rank : groups[g].ranks) {
      std::uint64_t& end = ends[rank.value];
      state.seats.push_back({rank.value, end});
      board.segments_[rank.value].seats.emplace(end, GroupId(g));
      end += bytes;
    }
    board.groups_.push_back(std::move(state));
  }
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    board.segments_[rank].spare = ends[rank];
    ends[rank] = whole_pages(ends[rank] + spare_seats * shm::seat_bytes(world));
  }
  const std::uint64_t bytes = std::accumulate(ends.begin(), ends.end(), board.page_size());
  MUSTER_ASSIGN_OR_RETURN(board.charge_, MemoryAccount::charge(account, bytes));
  MUSTER_RETURN_IF_ERROR(board.create_segments(ends, headroom));
  MUSTER_RETURN_IF_ERROR(board.create_page(epoch, headroom));
  return board;
}

Status Board::create_segments(const std::vector<std::uint64_t>& ends, const shm::Headroom& headroom) {
  for (std::uint32_t rank = 0; rank < ends.size(); ++rank) {
    Segment& segment = segments_[rank];
    const std::uint64_t bytes = ends[rank];
    MUSTER_ASSIGN_OR_RETURN(segment.memory, shm::create_memory("muster-direct", bytes, headroom));
    MUSTER_ASSIGN_OR_RETURN(segment.mapping,
                            shm::Mapping::map(segment.memory, bytes, shm::Access::kReadWrite));
    auto* header = new (segment.mapping.writable()) shm::DirectHeader;
    header->magic = shm::kMagicDirect;
    header->abi_version = shm::kAbiVersion;
    header->rank = rank;
    header->bytes = bytes;
  }
  return {};
}

std::uint64_t Board::page_size() const {
  return whole_pages(shm::kGroupLinesOffset + groups_.size() * sizeof(shm::GroupLine) +
                     segments_.size() * sizeof(shm::RankLine));
}

Status Board::create_page(std::uint64_t epoch, const shm::Headroom& headroom) {
  const std::uint64_t bytes = page_size();
  MUSTER_ASSIGN_OR_RETURN(page_memory_, shm::create_memory("muster-groups", bytes, headroom));
  MUSTER_ASSIGN_OR_RETURN(page_, shm::Mapping::map(page_memory_, bytes, shm::Access::kReadWrite));
  auto* header = new (page_.writable()) shm::GroupPageHeader;
  header->magic = shm::kMagicGroupPage;
  header->abi_version = shm::kAbiVersion;
  header->groups = static_cast<std::uint32_t>(groups_.size());
  header->epoch = epoch;
  header->ranks = static_cast<std::uint32_t>(segments_.size());
  for (std::uint32_t g = 0; g < groups_.size(); ++g)
    Published<std::uint64_t>(&line(GroupId(g))->generation).store_release(groups_[g].generation);
  MUSTER_ASSIGN_OR_RETURN(page_read_only_, read_only(page_memory_.get()));
  return {};
}

void Board::reset(Rank rank) {
  Segment& segment = segments_[rank.value];
  auto* header = reinterpret_cast<shm::DirectHeader*>(segment.mapping.writable());
  for (std::uint64_t& uses : header->stage_uses) Published<std::uint64_t>(&uses).add_ordered(1);
  Published<std::uint32_t>(&header->asleep).store(0);
  for (std::uint64_t* count : {&header->operations, &header->bytes_moved, &header->sleeps})
    Published<std::uint64_t>(count).store(0);
  Published<std::uint64_t>(&header->recorded).store(0);
  auto* records =
      reinterpret_cast<shm::DirectRecord*>(segment.mapping.writable() + shm::kDirectRecordsOffset);
  for (std::uint32_t k = 0; k < shm::kDirectRecords; ++k)
    Published<std::uint64_t>(&records[k].index).store(0);
  Published<std::uint64_t>(&header->untold).store(0);
  Published<std::uint64_t>(&header->awaiting).store(0);
  for (const auto& [offset, group] : segment.seats)
    clear_seat(segment.mapping.writable() + offset, groups_[group.value].seats.size());
}

// First fit: seats come and go rarely, and are few.
std::optional<std::uint64_t> Board::room_in(const Segment& segment, std::uint64_t bytes) const {
  std::uint64_t at = segment.spare;
  for (auto next = segment.seats.lower_bound(segment.spare); next != segment.seats.end(); ++next) {
    if (next->first - at >= bytes) return at;
    const auto members = static_cast<std::uint32_t>(groups_[next->second.value].seats.size());
    at = next->first + shm::seat_bytes(members);
  }
  if (segment.mapping.size() - at >= bytes) return at;
  return std::nullopt;
}

Status Board::seat_group(GroupId group, std::span<const Rank> ranks) {
  GroupState state;
  const std::uint64_t bytes = shm::seat_bytes(static_cast<std::uint32_t>(ranks.size()));
  for (const Rank rank : ranks) {
    const auto offset = room_in(segments_[rank.value], bytes);
    if (!offset)
      return failure(Code::kNoResource,
                     "rank {} is in {} groups and has no room for one more of {} ranks; free some "
                     "(muster_group_free, muster_mesh_free)",
                     rank.value, segments_[rank.value].seats.size(), ranks.size());
    state.seats.push_back({rank.value, *offset});
  }
  // Records of a former group of this place are told from its own by the generation.
  state.generation = state.first_generation = groups_[group.value].generation + 1;
  for (const Seat& seat : state.seats) {
    Segment& segment = segments_[seat.rank];
    clear_seat(segment.mapping.writable() + seat.offset, ranks.size());
    segment.seats.emplace(seat.offset, group);
  }
  groups_[group.value] = std::move(state);
  Published<std::int32_t>(&line(group)->standing).store_ordered(0);
  Published<std::uint64_t>(&line(group)->generation).store_ordered(groups_[group.value].generation);
  return {};
}

void Board::unseat_group(GroupId group) {
  GroupState& state = groups_[group.value];
  for (const Seat& seat : state.seats) segments_[seat.rank].seats.erase(seat.offset);
  GroupState empty;
  empty.generation = empty.first_generation = state.generation + 1;
  state = std::move(empty);
  Published<std::uint64_t>(&line(group)->generation).store_ordered(state.generation);
}

std::vector<shm::DirectMember> Board::members(GroupId group) const {
  std::vector<shm::DirectMember> members;
  for (const Seat& seat : groups_[group.value].seats)
    members.push_back({static_cast<std::int32_t>(seat.rank), 0, seat.offset});
  return members;
}

shm::GroupLine* Board::line(GroupId group) {
  return reinterpret_cast<shm::GroupLine*>(page_.writable() + shm::kGroupLinesOffset) + group.value;
}

shm::RankLine* Board::rank_line(Rank rank) {
  std::byte* lines = page_.writable() + shm::kGroupLinesOffset + groups_.size() * sizeof(shm::GroupLine);
  return reinterpret_cast<shm::RankLine*>(lines) + rank.value;
}

const std::byte* Board::seat(GroupId group, std::uint32_t index) const {
  const Seat& seat = groups_[group.value].seats[index];
  return segments_[seat.rank].mapping.data() + seat.offset;
}

// ---- verdicts ----------------------------------------------------------------------------------

// A member that left had seen all others arrive at what it completed, so what it saw is seen here.
std::uint64_t Board::completed(GroupId group) const {
  const GroupState& state = groups_[group.value];
  std::uint64_t least = UINT64_MAX;
  for (std::uint32_t i = 0; i < state.seats.size(); ++i) {
    std::uint64_t latest = 0;
    for (std::size_t k = 0; k < 2; ++k) {
      const auto* slot =
          reinterpret_cast<const shm::DirectSlot*>(seat(group, i) + shm::kSlotsOffset + k * shm::kSlotBytes);
      if (peek(&slot->generation) == state.generation) latest = std::max(latest, peek(&slot->sequence));
    }
    least = std::min(least, latest);
  }
  return least;
}

void Board::break_group(GroupId group, const scheduler::Cause& cause, End end) {
  GroupState& state = groups_[group.value];
  state.verdicts.push_back(cause);
  if (state.verdicts.size() > kVerdictsKept) state.verdicts.pop_front();
  shm::GroupLine* words = line(group);
  const bool goes_on = end == End::kDeparture;
  Published<std::uint64_t>(&words->completed[state.generation % shm::kGenerationsKept])
      .store(goes_on ? completed(group) : 0);
  if (!goes_on) Published<std::uint64_t>(&words->revoked).store(state.generation);
  ++state.generation;
  Published<std::uint64_t>(&words->generation).store_ordered(state.generation);
}

void Board::set_attached(Rank rank, bool attached) {
  std::uint64_t& life = lives_[rank.value];
  life += (life % 2 == 1) == attached ? 2 : 1;
  Published<std::uint64_t>(&rank_line(rank)->life).store_ordered(life);
}

void Board::set_retired(Rank rank, std::uint64_t segments) {
  Published<std::uint64_t>(&rank_line(rank)->retired).store_release(segments);
}

void Board::stand(GroupId group, const scheduler::Cause* cause) {
  GroupState& state = groups_[group.value];
  state.standing = cause != nullptr ? std::optional(*cause) : std::nullopt;
  const auto code = cause != nullptr ? static_cast<std::int32_t>(cause->code) : 0;
  Published<std::int32_t>(&line(group)->standing).store_ordered(code);
}

// A member that missed several hears of the first it can still be told of.
std::optional<scheduler::Cause> Board::verdict_of(GroupId group, std::uint64_t generation) const {
  const GroupState& state = groups_[group.value];
  // A client that asks about a generation before the first may find that none has ended yet.
  if (generation >= state.generation || state.verdicts.empty()) return state.standing;
  const std::uint64_t oldest = state.generation - state.verdicts.size();
  return state.verdicts[generation < oldest ? 0 : generation - oldest];
}

// ---- reports -----------------------------------------------------------------------------------

namespace {

bool has_arrived(const std::byte* seat, const DirectQuestion& q) {
  const auto* slot =
      reinterpret_cast<const shm::DirectSlot*>(seat + shm::kSlotsOffset + (q.number & 1) * shm::kSlotBytes);
  return peek(&slot->sequence) >= q.number && peek(&slot->generation) == q.generation;
}

bool has_reached(const std::byte* seat, const DirectQuestion& q) {
  const auto* head = reinterpret_cast<const shm::DirectSeat*>(seat);
  return has_arrived(seat, q) &&
         peek(&head->progress[q.generation & 1]) >= shm::make_progress(q.number, q.phase);
}

}  // namespace

std::vector<std::uint32_t> Board::missing(const DirectQuestion& q) const {
  const GroupState& state = groups_[q.group.value];
  std::vector<std::uint32_t> missing;
  if (q.kind == shm::DirectWait::kMessage || q.kind == shm::DirectWait::kReceived) {
    if (q.peer >= state.seats.size()) return missing;
    const auto* pairs = reinterpret_cast<const shm::DirectPair*>(seat(q.group, q.peer) + shm::kPairsOffset);
    const shm::DirectPair& theirs = pairs[q.index];
    const bool sent =
        peek(&theirs.sent.sequence) >= q.number && peek(&theirs.sent.generation) == q.generation;
    const bool received =
        peek(&theirs.received) >> 1 >= q.number && peek(&theirs.received_generation) == q.generation;
    if (!(q.kind == shm::DirectWait::kMessage ? sent : received)) missing.push_back(q.peer);
    return missing;
  }
  for (std::uint32_t i = 0; i < state.seats.size(); ++i) {
    const std::byte* theirs = seat(q.group, i);
    if (!(q.kind == shm::DirectWait::kArrivals ? has_arrived(theirs, q) : has_reached(theirs, q)))
      missing.push_back(i);
  }
  return missing;
}

std::uint64_t Board::plan_of(const DirectQuestion& q, std::uint32_t index) const {
  const std::byte* theirs = seat(q.group, index);
  const auto* head = reinterpret_cast<const shm::DirectSeat*>(theirs);
  if (q.kind == shm::DirectWait::kMessage || q.kind == shm::DirectWait::kReceived) {
    const auto* pairs = reinterpret_cast<const shm::DirectPair*>(theirs + shm::kPairsOffset);
    const bool sender = (q.kind == shm::DirectWait::kReceived) == (index == q.index);
    const std::uint32_t other = index == q.index ? q.peer : q.index;
    if (index != q.index && index != q.peer) return 0;
    return sender ? peek(&head->plans[0]) : peek(&pairs[other].plan);
  }
  return has_arrived(theirs, q) ? peek(&head->plans[q.number & 1]) : 0;
}

// Both sides of a pair ask about one thing.
Board::Disagreement Board::about(const DirectQuestion& q) {
  Disagreement d{q.generation, q.number, 0, 0, {}};
  if (q.kind == shm::DirectWait::kMessage) {
    d.sender = q.peer;
    d.receiver = q.index;
  } else if (q.kind == shm::DirectWait::kReceived) {
    d.sender = q.index;
    d.receiver = q.peer;
  }
  return d;
}

const Status* Board::disagreement(const DirectQuestion& q) const {
  const Disagreement asked = about(q);
  for (const Disagreement& known : groups_[q.group.value].disagreements)
    if (known.generation == asked.generation && known.number == asked.number &&
        known.sender == asked.sender && known.receiver == asked.receiver)
      return &known.found;
  return nullptr;
}

void Board::remember_disagreement(const DirectQuestion& q, const Status& found) {
  auto& kept = groups_[q.group.value].disagreements;
  kept.push_back(about(q));
  kept.back().found = found;
  if (kept.size() > kDisagreementsKept) kept.pop_front();
}

// ---- flights -----------------------------------------------------------------------------------

const shm::DirectHeader* Board::header(Rank rank) const {
  return reinterpret_cast<const shm::DirectHeader*>(segments_[rank.value].mapping.data());
}

std::uint64_t Board::recorded(Rank rank) const {
  return peek(&header(rank)->recorded);
}

void Board::set_recording(bool on) {
  auto* head = reinterpret_cast<shm::GroupPageHeader*>(page_.writable());
  Published<std::uint32_t>(&head->recording).store(on ? 1 : 0);
}

Board::Counted Board::counted(Rank rank) const {
  return {peek(&header(rank)->operations), peek(&header(rank)->bytes_moved)};
}

Board::Progress Board::progress(GroupId group) const {
  Progress progress{groups_[group.value].generation, 0};
  for (std::size_t k = 0; k < 2; ++k) {
    const auto* slot =
        reinterpret_cast<const shm::DirectSlot*>(seat(group, 0) + shm::kSlotsOffset + k * shm::kSlotBytes);
    if (peek(&slot->generation) == progress.generation)
      progress.number = std::max(progress.number, peek(&slot->sequence));
  }
  return progress;
}

std::optional<Board::Flight> Board::flight(Rank rank, std::uint64_t index) const {
  const auto* records = reinterpret_cast<const shm::DirectRecord*>(segments_[rank.value].mapping.data() +
                                                                   shm::kDirectRecordsOffset);
  const shm::DirectRecord& record = records[index % shm::kDirectRecords];
  if (index == 0 || peek(&record.index) != index) return std::nullopt;
  Flight found;
  found.index = index;
  found.what = shm::unpack_what(peek(&record.what));
  found.uneven = (found.what.dtype & shm::kRecordUneven) != 0;
  found.what.dtype &= static_cast<std::uint8_t>(~shm::kRecordUneven);
  found.generation = peek(&record.generation);
  found.number = peek(&record.number);
  found.source_bytes = peek(&record.source_bytes);
  found.target_bytes = peek(&record.target_bytes);
  const std::uint64_t begun = peek(&record.begun_ns);
  const std::uint64_t end = peek(&record.end);
  if (peek(&record.index) != index || found.what.line >= groups_.size()) return std::nullopt;
  found.group = GroupId(found.what.line);
  const auto& seats = groups_[found.what.line].seats;
  const auto seat =
      std::find_if(seats.begin(), seats.end(), [&](const Seat& s) { return s.rank == rank.value; });
  if (seat == seats.end() || found.what.peer >= seats.size()) return std::nullopt;
  if (found.generation < groups_[found.what.line].first_generation) return std::nullopt;
  found.member = static_cast<std::uint32_t>(seat - seats.begin());
  constexpr std::uint64_t kNanosMax = std::uint64_t{1} << 62;
  found.begun = Instant(static_cast<std::int64_t>(std::min(begun, kNanosMax)));
  const std::uint64_t state = end & ((1 << shm::kRecordStateBits) - 1);
  if (state > static_cast<std::uint64_t>(shm::RecordState::kBadly)) return std::nullopt;
  found.state = static_cast<shm::RecordState>(state);
  if (const std::uint64_t nanos = end >> shm::kRecordStateBits; nanos != 0)
    found.ended = Instant(static_cast<std::int64_t>(nanos));
  return found;
}

std::optional<Board::Flight> Board::latest_flight(Rank rank) const {
  return flight(rank, recorded(rank));
}

std::optional<Board::Flight> Board::awaited_flight(Rank rank) const {
  return flight(rank, peek(&header(rank)->awaiting));
}

std::vector<Board::Flight> Board::flights(Rank rank, std::uint64_t after, std::uint64_t* lost) const {
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

bool Board::untold(Rank rank) const {
  const auto* header = reinterpret_cast<const shm::DirectHeader*>(segments_[rank.value].mapping.data());
  return peek(&header->untold) != 0;
}

}  // namespace muster::engine
