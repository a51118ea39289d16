#include "daemon/engine/board.hpp"

#include "api/base/assert.hpp"
#include "api/shm/fence.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

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

// Numbers of positions that no epoch can have had: a member that says so is not believed.
constexpr std::uint64_t kPositionsMax = std::uint64_t{1} << 44;

// The words of a seat for a group that has come: positions begin at 0.
void clear_seat(std::byte* seat, std::size_t members) {
  auto* head = reinterpret_cast<shm::DirectSeat*>(seat);
  Published<std::uint64_t>(&head->progress).store(0);
  Published<std::uint64_t>(&head->epoch).store(0);
  for (std::uint64_t& plan : head->plans) Published<std::uint64_t>(&plan).store(0);
  for (std::size_t k = 0; k < 2; ++k) {
    auto* slot = reinterpret_cast<shm::DirectSlot*>(seat + shm::kSlotsOffset + k * shm::kSlotBytes);
    Published<std::uint64_t>(&slot->position).store_ordered(0);
  }
  auto* pairs = reinterpret_cast<shm::DirectPair*>(seat + shm::kPairsOffset);
  for (std::size_t i = 0; i < members; ++i) {
    Published<std::uint64_t>(&pairs[i].sent.position).store_ordered(0);
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
                            std::uint32_t made_max, std::uint64_t epoch, const shm::Headroom& headroom,
                            const std::shared_ptr<MemoryAccount>& account) {
  Board board;
  board.account_ = account;
  board.made_max_ = made_max;
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
  std::uint64_t bytes = board.page_size();
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    board.segments_[rank].spare = ends[rank];
    board.segments_[rank].reserved = whole_pages(ends[rank]);
    bytes += board.segments_[rank].reserved;
  }
  MUSTER_ASSIGN_OR_RETURN(board.charge_, MemoryAccount::charge(account, bytes));
  // Below that, fewer than made_max seats could lie so that no gap between them holds another.
  const std::uint64_t room = 2 * std::uint64_t{made_max} * shm::seat_bytes(world);
  MUSTER_RETURN_IF_ERROR(board.create_segments(room, headroom));
  MUSTER_RETURN_IF_ERROR(board.create_page(epoch, headroom));
  return board;
}

// `room`: bytes of address space behind the seats that are there from the start.
Status Board::create_segments(std::uint64_t room, const shm::Headroom& headroom) {
  for (std::uint32_t rank = 0; rank < segments_.size(); ++rank) {
    Segment& segment = segments_[rank];
    const std::uint64_t bytes = whole_pages(segment.spare + room);
    MUSTER_ASSIGN_OR_RETURN(segment.memory,
                            shm::create_growing_memory("muster-direct", bytes, segment.reserved, headroom));
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
    Published<std::uint64_t>(&line(GroupId(g))->epoch).store_release(groups_[g].epochs.present());
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
  // The new client stands in the present epochs. Words of former epochs stay: who still reads them may
  // finish.
  for (const auto& [offset, group] : segment.seats) {
    auto* seat = reinterpret_cast<shm::DirectSeat*>(segment.mapping.writable() + offset);
    Published<std::uint64_t>(&seat->epoch).store_ordered(epoch(group));
  }
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

// Memory up to there. What is reserved once stays so.
Status Board::reserve(Segment& segment, std::uint64_t end) {
  const std::uint64_t wanted = whole_pages(end);
  if (wanted <= segment.reserved) return {};
  const std::uint64_t bytes = wanted - segment.reserved;
  MUSTER_ASSIGN_OR_RETURN(MemoryCharge more, MemoryAccount::charge(account_, bytes));
  MUSTER_RETURN_IF_ERROR(
      shm::reserve_memory(segment.memory, segment.reserved, bytes, shm::memory_headroom()));
  charge_.add(std::move(more));
  segment.reserved = wanted;
  return {};
}

Status Board::seat_group(GroupId group, std::span<const Rank> ranks) {
  GroupState state;
  const std::uint64_t bytes = shm::seat_bytes(static_cast<std::uint32_t>(ranks.size()));
  for (const Rank rank : ranks) {
    Segment& segment = segments_[rank.value];
    const auto made = static_cast<std::uint32_t>(
        std::distance(segment.seats.lower_bound(segment.spare), segment.seats.end()));
    if (made == made_max_)
      return failure(Code::kBusy,
                     "rank {} is a member of {} made groups, some of which their other members have not made "
                     "yet or not freed yet, and there is no room for more",
                     rank.value, made);
    const auto offset = room_in(segment, bytes);
    MUSTER_ASSERT(offset.has_value());
    MUSTER_RETURN_IF_ERROR(reserve(segment, *offset + bytes));
    state.seats.push_back({rank.value, *offset});
  }
  // Records of a former group of this place are told from its own by the epoch.
  state.first_epoch = epoch(group) + 1;
  state.epochs = scheduler::Epochs(state.first_epoch);
  for (const Seat& seat : state.seats) {
    Segment& segment = segments_[seat.rank];
    clear_seat(segment.mapping.writable() + seat.offset, ranks.size());
    segment.seats.emplace(seat.offset, group);
  }
  groups_[group.value] = std::move(state);
  Published<std::int32_t>(&line(group)->absence).store_ordered(0);
  Published<std::uint64_t>(&line(group)->epoch).store_ordered(epoch(group));
  return {};
}

void Board::unseat_group(GroupId group) {
  GroupState& state = groups_[group.value];
  for (const Seat& seat : state.seats) segments_[seat.rank].seats.erase(seat.offset);
  GroupState empty;
  empty.first_epoch = state.epochs.present() + 1;
  empty.epochs = scheduler::Epochs(empty.first_epoch);
  state = std::move(empty);
  Published<std::uint64_t>(&line(group)->epoch).store_ordered(epoch(group));
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

// ---- epochs ------------------------------------------------------------------------------------

std::uint64_t Board::arrived(GroupId group, std::uint32_t index) const {
  std::uint64_t latest = 0;
  for (std::size_t k = 0; k < 2; ++k) {
    const std::byte* slot = seat(group, index) + shm::kSlotsOffset + k * shm::kSlotBytes;
    latest = std::max(latest, peek(&reinterpret_cast<const shm::DirectSlot*>(slot)->position));
  }
  return latest;
}

// What all members have arrived at, whether they are still there or not. An operation that a member has
// completed counts, for it had seen all others arrive.
std::uint64_t Board::count_met(GroupId group) const {
  std::uint64_t least = UINT64_MAX;
  for (std::uint32_t i = 0; i < groups_[group.value].seats.size(); ++i)
    least = std::min(least, arrived(group, i));
  return least;
}

// The highest position that a member has used for an operation or for a message of a pair.
std::uint64_t Board::highest_position(GroupId group) const {
  const GroupState& state = groups_[group.value];
  std::uint64_t highest = state.base;
  const auto use = [&](std::uint64_t position) {
    if (position <= state.base + kPositionsMax) highest = std::max(highest, position);
  };
  for (std::uint32_t i = 0; i < state.seats.size(); ++i) {
    use(arrived(group, i));
    const auto* pairs = reinterpret_cast<const shm::DirectPair*>(seat(group, i) + shm::kPairsOffset);
    for (std::uint32_t k = 0; k < state.seats.size(); ++k) {
      use(peek(&pairs[k].sent.position));
      use(peek(&pairs[k].received) >> 1);
    }
  }
  return highest;
}

// The fence makes every arrival seen whose member did not see the end. A member that had begun before it may
// still come to one position more, which stays below the new base.
void Board::end(GroupId group, const scheduler::CausePtr& cause, scheduler::Epochs::Why why) {
  GroupState& state = groups_[group.value];
  const std::uint64_t ended = state.epochs.present();
  if (!state.epochs.end(cause, why)) return;
  const bool loss = why == scheduler::Epochs::Why::kLoss;
  shm::GroupLine* words = line(group);
  shm::EndedEpoch& record = words->ended[state.used % shm::kEpochsKept];
  Published<std::uint64_t>(&record.epoch).store_ordered(0);
  Published<std::uint64_t>(&record.met).store_ordered(loss ? shm::kMetUncounted : 0);
  Published<std::uint64_t>(&record.epoch).store_ordered(ended);
  Published<std::uint64_t>(&words->epoch).store_ordered(state.epochs.present());
  shm::heavy_fence();
  const std::uint64_t all = loss ? count_met(group) : 0;
  if (all > state.base && all <= state.base + kPositionsMax) state.met = all;
  // The first arrival goes into another slot than what all had met for last, in whatever epoch: a member may
  // still be in that.
  const std::uint64_t highest = highest_position(group);
  if (highest > state.base) ++state.used;
  state.base = highest + 1;
  if ((state.base & 1) != (state.met & 1)) ++state.base;
  Published<std::uint64_t>(&record.met).store_ordered(all);
}

void Board::set_attached(Rank rank, bool attached) {
  std::uint64_t& life = lives_[rank.value];
  life += (life % 2 == 1) == attached ? 2 : 1;
  Published<std::uint64_t>(&rank_line(rank)->life).store_ordered(life);
}

void Board::set_retired(Rank rank, std::uint64_t segments) {
  Published<std::uint64_t>(&rank_line(rank)->retired).store_release(segments);
}

void Board::set_absence(GroupId group, scheduler::CausePtr cause) {
  const auto code = cause != nullptr ? static_cast<std::int32_t>(cause->code) : 0;
  groups_[group.value].absence = std::move(cause);
  Published<std::int32_t>(&line(group)->absence).store_ordered(code);
}

scheduler::CausePtr Board::cause_of(GroupId group, std::uint64_t epoch) const {
  const GroupState& state = groups_[group.value];
  // A client may ask about an epoch before the group's first, or about one to come.
  if (epoch < state.first_epoch || epoch > state.epochs.present()) return nullptr;
  return state.epochs.has_ended(epoch) ? state.epochs.cause_of(epoch) : state.absence;
}

std::uint64_t Board::epoch_after(GroupId group, std::uint64_t epoch) const {
  const GroupState& state = groups_[group.value];
  if (!state.epochs.has_ended(epoch)) return epoch;
  return state.epochs.after(epoch, state.epochs.cause_of(epoch)->fault);
}

// ---- reports -----------------------------------------------------------------------------------

namespace {

bool has_arrived(const std::byte* seat, const DirectQuestion& q) {
  const auto* slot =
      reinterpret_cast<const shm::DirectSlot*>(seat + shm::kSlotsOffset + (q.position & 1) * shm::kSlotBytes);
  return peek(&slot->position) >= q.position;
}

bool has_reached(const std::byte* seat, const DirectQuestion& q) {
  const auto* head = reinterpret_cast<const shm::DirectSeat*>(seat);
  return has_arrived(seat, q) && peek(&head->progress) >= shm::make_progress(q.position, q.phase);
}

}  // namespace

std::vector<std::uint32_t> Board::missing(const DirectQuestion& q) const {
  const GroupState& state = groups_[q.group.value];
  std::vector<std::uint32_t> missing;
  if (q.kind == shm::DirectWait::kMessage || q.kind == shm::DirectWait::kReceived) {
    if (q.peer >= state.seats.size()) return missing;
    const auto* pairs = reinterpret_cast<const shm::DirectPair*>(seat(q.group, q.peer) + shm::kPairsOffset);
    const shm::DirectPair& theirs = pairs[q.index];
    const bool sent = peek(&theirs.sent.position) >= q.position;
    const bool received = peek(&theirs.received) >> 1 >= q.position;
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
  return has_arrived(theirs, q) ? peek(&head->plans[q.position & 1]) : 0;
}

// Both sides of a pair ask about one thing.
Board::Disagreement Board::about(const DirectQuestion& q) {
  Disagreement d{q.position, 0, 0, {}};
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
    if (known.position == asked.position && known.sender == asked.sender && known.receiver == asked.receiver)
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
  const GroupState& state = groups_[group.value];
  const std::uint64_t latest = arrived(group, 0);
  return {state.epochs.present(), latest > state.base ? latest - state.base : 0};
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
  found.epoch = peek(&record.epoch);
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
  if (found.epoch < groups_[found.what.line].first_epoch) return std::nullopt;
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
