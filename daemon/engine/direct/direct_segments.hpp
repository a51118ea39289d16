// DirectSegments: the memory of the direct path. Each rank of this node has a segment, with a member region
// for each of its groups whose members are all here. All ranks read one page, which has a line for each group
// and for each rank.
#pragma once

#include "api/base/world.hpp"
#include "api/shm/control.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/segment.hpp"
#include "api/shm/untrusted.hpp"
#include "daemon/engine/memory/memory_account.hpp"
#include "scheduler/run/match_queue.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace muster::engine {

// Owns    a segment for each rank, and the group page.
// Thread  under the engine's lock.
// Bound   made_max member regions a rank beside those of the first groups.
// Fails   create: NO_RESOURCE. Data of clients is read once and checked. It decides which of their job's
//         operations go on after a loss; nothing outside the job depends on it.
class DirectSegments {
 public:
  // Groups made later are empty here. Each segment has addresses for made_max of them, and memory on demand.
  static Result<std::unique_ptr<DirectSegments>> create(std::span<const scheduler::Group> groups,
                                                        const World& world, std::uint32_t made_max,
                                                        std::uint64_t epoch, const shm::Headroom& headroom,
                                                        const std::shared_ptr<MemoryAccount>& account);

  int descriptor(Rank rank) const { return segments_[rank].memory.get(); }
  std::uint64_t bytes(Rank rank) const { return segments_[rank].mapping.size(); }
  int page_descriptor() const { return page_read_only_.get(); }
  std::uint64_t page_bytes() const { return page_.size(); }

  // ---- member regions --------------------------------------------------------------------------
  // Makes regions for a new group, or changes nothing. BUSY: a member has made_max of them, until one goes.
  // NO_RESOURCE: no memory for more.
  Status add(GroupId group, std::span<const Rank> ranks);
  void remove(GroupId group);
  // Where the regions of a group's members lie in their segments, by index.
  std::vector<shm::DirectMember> members(GroupId group) const;
  std::size_t groups() const { return members_.size(); }
  std::uint32_t member_count(GroupId group) const;
  // The rank's index in the group.
  std::optional<std::uint32_t> index_of(GroupId group, Rank rank) const;
  // The rank's regions, by offset.
  const std::map<std::uint64_t, GroupId>& regions_of(Rank rank) const { return segments_[rank].regions; }
  const std::byte* region(GroupId group, std::uint32_t index) const;
  // The latest position at which the member has arrived.
  std::uint64_t arrived(GroupId group, std::uint32_t index) const;

  // ---- words -----------------------------------------------------------------------------------
  // Prepares the segment for a new client of the rank. The last client's state is cleared, but its words of
  // former epochs stay, for members that still read them.
  void clear(Rank rank);
  std::byte* writable(Rank rank) { return segments_[rank].mapping.writable(); }
  const shm::DirectHeader* header(Rank rank) const;
  const shm::DirectRecord* records(Rank rank) const;
  shm::GroupLine* line(GroupId group);
  // Publishes whether the rank has a client.
  void set_attached(Rank rank, bool attached);
  // Publishes how many segments of the rank's arena are gone: peers forget their mappings.
  void set_retired(Rank rank, std::uint64_t segments);
  // Clients note when their operations end while this is on.
  void set_recording(bool on);

 private:
  struct Segment {
    shm::Descriptor memory;
    shm::Mapping mapping;
    std::map<std::uint64_t, GroupId> regions;  // by offset
    std::uint64_t spare = 0;                   // where the regions of groups made later begin
    std::uint64_t reserved = 0;                // bytes that have memory, in whole pages
  };
  struct Member {
    Rank rank;
    std::uint64_t offset = 0;
  };
  explicit DirectSegments(const World& world) : segments_(world), lives_(world) {}
  Status create_segments(std::uint64_t room, const shm::Headroom& headroom);
  Status create_page(std::uint64_t epoch, const shm::Headroom& headroom);
  std::uint64_t page_size() const;
  std::optional<std::uint64_t> room_in(const Segment& segment, std::uint64_t bytes) const;
  Status reserve(Segment& segment, std::uint64_t end);
  shm::RankLine* rank_line(Rank rank);

  std::shared_ptr<MemoryAccount> account_;
  MemoryCharge charge_;
  std::uint32_t made_max_ = 0;
  RankTable<Segment> segments_;
  std::vector<std::vector<Member>> members_;  // by group, then by index in the group
  RankTable<std::uint64_t> lives_;
  shm::Descriptor page_memory_;
  shm::Descriptor page_read_only_;
  shm::Mapping page_;
};

// A word that a client has written.
inline std::uint64_t peek(const std::uint64_t* word) {
  return shm::Untrusted<std::uint64_t>(word).load_acquire();
}

// A descriptor of the same memory by which it can only be read. Errors: NO_RESOURCE.
Result<shm::Descriptor> read_only(int memory);

}  // namespace muster::engine
