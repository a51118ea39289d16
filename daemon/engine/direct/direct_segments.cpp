#include "daemon/engine/direct/direct_segments.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <iterator>

#include <fcntl.h>

namespace muster::engine {
namespace {

using shm::Published;

std::uint64_t whole_pages(std::uint64_t bytes) {
  return (bytes + 4095) / 4096 * 4096;
}

// Clears the words of a region for a new group: positions begin at 0.
void clear_region(std::byte* region, std::size_t members) {
  auto* head = reinterpret_cast<shm::MemberRegion*>(region);
  Published<std::uint64_t>(&head->progress).store(0);
  Published<std::uint64_t>(&head->epoch).store(0);
  for (std::uint64_t& plan : head->plans) Published<std::uint64_t>(&plan).store(0);
  for (std::size_t k = 0; k < 2; ++k) {
    auto* slot = reinterpret_cast<shm::DirectSlot*>(region + shm::kSlotsOffset + k * shm::kSlotBytes);
    Published<std::uint64_t>(&slot->position).store_ordered(0);
  }
  auto* pairs = reinterpret_cast<shm::DirectPair*>(region + shm::kPairsOffset);
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

Result<std::unique_ptr<DirectSegments>> DirectSegments::create(
    std::span<const scheduler::Group> groups, const World& world, std::uint32_t made_max, std::uint64_t epoch,
    const shm::Headroom& headroom, const std::shared_ptr<MemoryAccount>& account) {
  std::unique_ptr<DirectSegments> made(new DirectSegments(world));
  made->account_ = account;
  made->made_max_ = made_max;
  RankTable<std::uint64_t> ends(world, [](Rank) { return shm::kMemberRegionsOffset; });
  for (std::uint32_t g = 0; g < groups.size(); ++g) {
    std::vector<Member>& members = made->members_.emplace_back();
    if (!world.are_local(groups[g].ranks)) continue;
    const std::uint64_t bytes = shm::member_region_bytes(static_cast<std::uint32_t>(groups[g].ranks.size()));
    for (const Rank rank : groups[g].ranks) {
      std::uint64_t& end = ends[rank];
      members.push_back({rank, end});
      made->segments_[rank].regions.emplace(end, GroupId(g));
      end += bytes;
    }
  }
  std::uint64_t bytes = made->page_size();
  for (const Rank rank : world.locals()) {
    made->segments_[rank].spare = ends[rank];
    made->segments_[rank].reserved = whole_pages(ends[rank]);
    bytes += made->segments_[rank].reserved;
  }
  MUSTER_ASSIGN_OR_RETURN(made->charge_, MemoryAccount::charge(account, bytes));
  // With less room, fewer than made_max regions could leave gaps too small for another one.
  const std::uint64_t room = 2 * std::uint64_t{made_max} * shm::member_region_bytes(world.local_count());
  MUSTER_RETURN_IF_ERROR(made->create_segments(room, headroom));
  MUSTER_RETURN_IF_ERROR(made->create_page(epoch, headroom));
  return made;
}

// `room`: bytes of address space behind the regions that are there from the start.
Status DirectSegments::create_segments(std::uint64_t room, const shm::Headroom& headroom) {
  for (const Rank rank : segments_.world().locals()) {
    Segment& segment = segments_[rank];
    const std::uint64_t bytes = whole_pages(segment.spare + room);
    MUSTER_ASSIGN_OR_RETURN(segment.memory,
                            shm::create_growing_memory("muster-direct", bytes, segment.reserved, headroom));
    MUSTER_ASSIGN_OR_RETURN(segment.mapping,
                            shm::Mapping::map(segment.memory, bytes, shm::Mapping::Access::kReadWrite));
    auto* header = new (segment.mapping.writable()) shm::DirectHeader;
    header->magic = shm::kMagicDirect;
    header->abi_version = shm::kAbiVersion;
    header->rank = rank.value;
    header->bytes = bytes;
  }
  return {};
}

std::uint64_t DirectSegments::page_size() const {
  return whole_pages(shm::kGroupLinesOffset + members_.size() * sizeof(shm::GroupLine) +
                     segments_.size() * sizeof(shm::RankLine));
}

Status DirectSegments::create_page(std::uint64_t epoch, const shm::Headroom& headroom) {
  const std::uint64_t bytes = page_size();
  MUSTER_ASSIGN_OR_RETURN(page_memory_, shm::create_memory("muster-groups", bytes, headroom));
  MUSTER_ASSIGN_OR_RETURN(page_, shm::Mapping::map(page_memory_, bytes, shm::Mapping::Access::kReadWrite));
  auto* header = new (page_.writable()) shm::GroupPageHeader;
  header->magic = shm::kMagicGroupPage;
  header->abi_version = shm::kAbiVersion;
  header->groups = static_cast<std::uint32_t>(members_.size());
  header->epoch = epoch;
  header->ranks = static_cast<std::uint32_t>(segments_.size());
  for (const Rank rank : segments_.world().locals()) rank_line(rank)->rank = rank.value;
  MUSTER_ASSIGN_OR_RETURN(page_read_only_, read_only(page_memory_.get()));
  return {};
}

// ---- member regions ----------------------------------------------------------------------------

// First fit: regions come and go rarely, and are few.
std::optional<std::uint64_t> DirectSegments::room_in(const Segment& segment, std::uint64_t bytes) const {
  std::uint64_t at = segment.spare;
  for (auto next = segment.regions.lower_bound(segment.spare); next != segment.regions.end(); ++next) {
    if (next->first - at >= bytes) return at;
    const std::uint32_t members = member_count(next->second);
    at = next->first + shm::member_region_bytes(members);
  }
  if (segment.mapping.size() - at >= bytes) return at;
  return std::nullopt;
}

// Reserves memory up to `end`. It stays reserved.
Status DirectSegments::reserve(Segment& segment, std::uint64_t end) {
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

Status DirectSegments::add(GroupId group, std::span<const Rank> ranks) {
  if (!segments_.world().are_local(ranks)) return {};  // it has no direct path
  std::vector<Member> members;
  const std::uint64_t bytes = shm::member_region_bytes(static_cast<std::uint32_t>(ranks.size()));
  for (const Rank rank : ranks) {
    Segment& segment = segments_[rank];
    const auto made = static_cast<std::uint32_t>(
        std::distance(segment.regions.lower_bound(segment.spare), segment.regions.end()));
    if (made == made_max_)
      return failure(Code::kBusy,
                     "rank {} is a member of {} made groups, some of which their other members have not made "
                     "yet or not freed yet, and there is no room for more",
                     rank.value, made);
    const auto offset = room_in(segment, bytes);
    MUSTER_ASSERT(offset.has_value());
    MUSTER_RETURN_IF_ERROR(reserve(segment, *offset + bytes));
    members.push_back({rank, *offset});
  }
  for (const Member& member : members) {
    Segment& segment = segments_[member.rank];
    clear_region(segment.mapping.writable() + member.offset, ranks.size());
    segment.regions.emplace(member.offset, group);
  }
  members_[group.value] = std::move(members);
  return {};
}

void DirectSegments::remove(GroupId group) {
  for (const Member& member : members_[group.value]) segments_[member.rank].regions.erase(member.offset);
  members_[group.value].clear();
}

std::vector<shm::DirectMember> DirectSegments::members(GroupId group) const {
  std::vector<shm::DirectMember> members;
  for (const Member& member : members_[group.value])
    members.push_back({static_cast<std::int32_t>(member.rank.value), 0, member.offset});
  return members;
}

std::uint32_t DirectSegments::member_count(GroupId group) const {
  return static_cast<std::uint32_t>(members_[group.value].size());
}

std::optional<std::uint32_t> DirectSegments::index_of(GroupId group, Rank rank) const {
  const auto& members = members_[group.value];
  const auto member =
      std::find_if(members.begin(), members.end(), [&](const Member& m) { return m.rank == rank; });
  if (member == members.end()) return std::nullopt;
  return static_cast<std::uint32_t>(member - members.begin());
}

const std::byte* DirectSegments::region(GroupId group, std::uint32_t index) const {
  const Member& member = members_[group.value][index];
  return segments_[member.rank].mapping.data() + member.offset;
}

std::uint64_t DirectSegments::arrived(GroupId group, std::uint32_t index) const {
  std::uint64_t latest = 0;
  for (std::size_t k = 0; k < 2; ++k) {
    const std::byte* slot = region(group, index) + shm::kSlotsOffset + k * shm::kSlotBytes;
    latest = std::max(latest, peek(&reinterpret_cast<const shm::DirectSlot*>(slot)->position));
  }
  return latest;
}

// ---- words -------------------------------------------------------------------------------------

void DirectSegments::clear(Rank rank) {
  Segment& segment = segments_[rank];
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
}

const shm::DirectHeader* DirectSegments::header(Rank rank) const {
  return reinterpret_cast<const shm::DirectHeader*>(segments_[rank].mapping.data());
}

const shm::DirectRecord* DirectSegments::records(Rank rank) const {
  return reinterpret_cast<const shm::DirectRecord*>(segments_[rank].mapping.data() +
                                                    shm::kDirectRecordsOffset);
}

shm::GroupLine* DirectSegments::line(GroupId group) {
  return reinterpret_cast<shm::GroupLine*>(page_.writable() + shm::kGroupLinesOffset) + group.value;
}

shm::RankLine* DirectSegments::rank_line(Rank rank) {
  std::byte* lines = page_.writable() + shm::kGroupLinesOffset + members_.size() * sizeof(shm::GroupLine);
  return reinterpret_cast<shm::RankLine*>(lines) + segments_.world().local(rank).value;
}

void DirectSegments::set_attached(Rank rank, bool attached) {
  std::uint64_t& life = lives_[rank];
  life += (life % 2 == 1) == attached ? 2 : 1;
  Published<std::uint64_t>(&rank_line(rank)->life).store_ordered(life);
}

void DirectSegments::set_retired(Rank rank, std::uint64_t segments) {
  Published<std::uint64_t>(&rank_line(rank)->retired).store_release(segments);
}

void DirectSegments::set_recording(bool on) {
  auto* head = reinterpret_cast<shm::GroupPageHeader*>(page_.writable());
  Published<std::uint32_t>(&head->recording).store(on ? 1 : 0);
}

}  // namespace muster::engine
