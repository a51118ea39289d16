// A job on a simulated node: the engine's board as it is in the product, and a client's half for each rank,
// from run_direct() downwards. The product has a socket and the engine's loop between them; the model has a
// call under one mutex.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "api/client/direct/member_regions.hpp"
#include "api/client/direct/operation.hpp"
#include "api/client/direct/planning.hpp"
#include "api/shm/segment.hpp"
#include "daemon/engine/direct/direct_pages.hpp"
#include "tests/models/words.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::shm {

// One place in memory for all who map it, so that a word has one address; it stays to the program's end.
Result<Descriptor> create_memory(const char* name, std::uint64_t bytes, const Headroom&, Sealing) {
  Descriptor memory(::memfd_create(name, MFD_CLOEXEC));
  if (!memory.valid() || ::ftruncate(memory.get(), static_cast<off_t>(bytes)) != 0)
    return muster::fail(Code::kNoResource, "memory of {} bytes for a model: {}", bytes, std::strerror(errno));
  return memory;
}

// All of it from the start: no group is made in a model.
Result<Descriptor> create_growing_memory(const char* name, std::uint64_t bytes, std::uint64_t,
                                         const Headroom& headroom) {
  return create_memory(name, bytes, headroom, {});
}
Status reserve_memory(const Descriptor&, std::uint64_t, std::uint64_t, const Headroom&) {
  return {};
}
Headroom memory_headroom(const Headroom::Files&) {
  return {};
}

Result<Mapping> Mapping::map(const Descriptor& memory, std::size_t bytes, Access) {
  static std::unordered_map<ino_t, std::byte*> places;
  struct stat facts {};
  if (::fstat(memory.get(), &facts) != 0) return muster::fail(Code::kInternal, "fstat");
  std::byte*& place = places[facts.st_ino];
  if (place == nullptr) {
    void* mapped = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory.get(), 0);
    if (mapped == MAP_FAILED) return muster::fail(Code::kNoResource, "mmap: {}", std::strerror(errno));
    place = static_cast<std::byte*>(mapped);
    model::words().share(place, bytes);
  }
  return Mapping(place, bytes, Access::kReadWrite);
}
Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(other.size_), access_(other.access_) {}
Mapping& Mapping::operator=(Mapping&& other) noexcept {
  data_ = std::exchange(other.data_, nullptr);
  size_ = other.size_;
  access_ = other.access_;
  return *this;
}
Mapping::~Mapping() = default;
std::byte* Mapping::writable() const noexcept {
  return data_;
}

}  // namespace muster::shm

namespace muster::engine {

// The job here has no account.
Result<MemoryCharge> MemoryAccount::charge(const std::shared_ptr<MemoryAccount>&, std::uint64_t) {
  return MemoryCharge();
}
MemoryCharge::~MemoryCharge() = default;

}  // namespace muster::engine

namespace muster::model {

constexpr std::uint64_t kArenaBytes = 1 << 20;
constexpr std::uint64_t kArenaStep = 128 << 10;  // the words that stand for an arena lie so far apart

// Owns    the board, and each rank's arena and view of shared memory.
// Thread  one; Relacy's threads are its fibers, and take the engine lock.
// Bound   a few ranks and groups, the same in all schedules of a search.
// Fails   ends the program where the machine gives no memory.
class Job {
 public:
  Job(std::uint32_t ranks, const std::vector<std::vector<std::uint32_t>>& groups) {
    for (std::uint32_t g = 0; g < groups.size(); ++g) {
      scheduler::Group group{fmt::format("g{}", g), {}};
      for (const std::uint32_t rank : groups[g]) group.ranks.push_back(Rank(rank));
      groups_.push_back(std::move(group));
    }
    shm::Headroom headroom;
    headroom.bytes = UINT64_MAX;
    auto made = engine::DirectPages::create(groups_, ranks, 0, 1, headroom);
    MUSTER_ASSERT(made.has_value());
    board_.emplace(*std::move(made));
    for (std::uint32_t rank = 0; rank < ranks; ++rank) {
      auto arena = shm::create_memory("model-arena", kArenaBytes, headroom);
      MUSTER_ASSERT(arena.has_value());
      views_.push_back(std::make_unique<View>(*this, *std::move(arena)));
      views_.back()->open(rank);
    }
    register_words();
  }

  engine::DirectPages& board() { return *board_; }
  std::uint32_t ranks() const { return static_cast<std::uint32_t>(views_.size()); }
  client::DirectMemory& memory(std::uint32_t rank) { return *views_[rank]->memory; }
  std::byte* arena(std::uint32_t rank) { return views_[rank]->arena.writable(); }
  const scheduler::Group& group(std::uint32_t g) const { return groups_[g]; }

  // At the start of each schedule, once the words are simulated.
  void begin() {
    const std::byte* page = views_[0]->memory->groups();
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      const auto* line = reinterpret_cast<const shm::GroupLine*>(page + shm::kGroupLinesOffset) + g;
      shm::Published<std::uint64_t>(const_cast<std::uint64_t*>(&line->epoch))
          .store(board_->epochs().present(GroupId(g)));
    }
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) board_->segments().set_attached(Rank(rank), true);
  }

  // A channel as a client of the rank gets it that attaches now.
  std::unique_ptr<client::Channel> join(std::uint32_t g, std::uint32_t rank, client::WaitHooks& hooks) {
    const auto& ranks = groups_[g].ranks;
    const auto index = std::find(ranks.begin(), ranks.end(), Rank(rank)) - ranks.begin();
    const client::MemberRegions regions{g,
                                        g,
                                        static_cast<std::uint32_t>(index),
                                        board_->segments().members(GroupId(g)),
                                        board_->epochs().present(GroupId(g)),
                                        board_->epochs().base(GroupId(g))};
    auto channel = client::open_channel(memory(rank), regions, hooks);
    MUSTER_ASSERT(channel.has_value());
    return *std::move(channel);
  }

 private:
  // The memory that a rank's process sees. It maps each segment directly, without a request to the engine.
  struct View final : client::DirectMemory::Registrar {
    View(Job& of, shm::Descriptor a) : job(of), arena_memory(std::move(a)) {}
    void open(std::uint32_t rank) {
      auto mapped = shm::Mapping::map(arena_memory, kArenaBytes, shm::Mapping::Access::kReadWrite);
      MUSTER_ASSERT(mapped.has_value());
      arena = *std::move(mapped);
      auto own = direct_segment(static_cast<std::int32_t>(rank));
      shm::Descriptor page(::dup(job.board_->segments().page_descriptor()));
      auto groups = shm::Mapping::map(page, job.board_->segments().page_bytes(), shm::Mapping::Access::kRead);
      MUSTER_ASSERT(own.has_value() && groups.has_value());
      auto opened = client::DirectMemory::open(*std::move(own), *std::move(groups), *this);
      MUSTER_ASSERT(opened.has_value());
      memory.emplace(*std::move(opened));
    }
    Result<shm::Mapping> direct_segment(std::int32_t rank) override {
      const Rank peer(static_cast<std::uint32_t>(rank));
      const shm::Descriptor segment(::dup(job.board_->segments().descriptor(peer)));
      return shm::Mapping::map(segment, job.board_->segments().bytes(peer), shm::Mapping::Access::kRead);
    }
    Result<shm::Mapping> arena_segment(std::int32_t rank, std::uint32_t) override {
      return shm::Mapping::map(job.views_[static_cast<std::size_t>(rank)]->arena_memory, kArenaBytes,
                               shm::Mapping::Access::kRead);
    }
    Result<Scratch> scratch(std::uint64_t) override {
      return muster::fail(Code::kNoResource, "no scratch memory in a model");
    }
    Job& job;
    shm::Descriptor arena_memory;
    shm::Mapping arena;
    std::optional<client::DirectMemory> memory;
  };

  void register_words() {
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) register_rank(rank);
    const std::byte* page = views_[0]->memory->groups();
    words().leave_out(page, sizeof(shm::GroupPageHeader));
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      const auto* line = reinterpret_cast<const shm::GroupLine*>(page + shm::kGroupLinesOffset) + g;
      words().atomic(&line->epoch, fmt::format("g{}.epoch", g));
      words().atomic(&line->absence, fmt::format("g{}.absence", g));
      for (const shm::EndedEpoch& record : line->ended) {
        words().atomic(&record.epoch, fmt::format("g{}.ended", g));
        words().atomic(&record.met, fmt::format("g{}.met", g));
      }
    }
    for (std::uint32_t rank = 0; rank < ranks(); ++rank) {
      const std::uint64_t* life = views_[0]->memory->life_of(static_cast<std::int32_t>(rank));
      words().atomic(life, fmt::format("rank{}.life", rank));
      const auto* line = reinterpret_cast<const shm::RankLine*>(life);
      words().leave_out(&line->retired, sizeof line->retired);
    }
  }

  void register_rank(std::uint32_t rank) {
    const std::byte* own = views_[rank]->memory->own();
    const auto* header = reinterpret_cast<const shm::DirectHeader*>(own);
    words().leave_out(own, offsetof(shm::DirectHeader, asleep));
    words().leave_out(&header->operations, sizeof *header - offsetof(shm::DirectHeader, operations));
    words().leave_out(own + shm::kDirectRecordsOffset, shm::kDirectRecords * shm::kRecordBytes);
    words().atomic(&header->asleep, fmt::format("rank{}.asleep", rank));
    for (std::uint32_t k = 0; k < shm::kStages; ++k) {
      words().atomic(&header->stage_uses[k], fmt::format("rank{}.stage_uses[{}]", rank, k));
      for (std::uint64_t half = 0; half < 2; ++half)
        words().bytes(own + shm::kDirectHeaderBytes + k * shm::kStageBytes + half * shm::kStageBytes / 2,
                      fmt::format("rank{}.stage[{}][{}]", rank, k, half));
    }
    for (std::uint64_t at = 0; at < kArenaBytes; at += kArenaStep)
      words().bytes(arena(rank) + at, fmt::format("rank{}.arena[{}]", rank, at / kArenaStep));
    for (std::uint32_t g = 0; g < groups_.size(); ++g) {
      const auto members = board_->segments().members(GroupId(g));
      for (const shm::DirectMember& member : members)
        if (member.rank == static_cast<std::int32_t>(rank))
          register_region(own + member.region, fmt::format("rank{}.g{}", rank, g), members.size());
    }
  }

  static void register_slot(const shm::DirectSlot& slot, const std::string& name) {
    words().atomic(&slot.position, name + ".position");
    words().atomic(&slot.common[0], name + ".common");
    words().leave_out(&slot.common[1], sizeof slot.common[1]);
    words().atomic(&slot.location, name + ".location");
    words().bytes(slot.payload, name + ".inline");
  }

  static void register_region(const std::byte* at, const std::string& name, std::size_t members) {
    const auto* region = reinterpret_cast<const shm::MemberRegion*>(at);
    words().atomic(&region->progress, name + ".progress");
    words().atomic(&region->epoch, name + ".epoch");
    words().leave_out(region->plans, sizeof region->plans);
    for (std::size_t k = 0; k < 2; ++k) {
      const std::byte* slot = at + shm::kSlotsOffset + k * shm::kSlotBytes;
      const std::string slot_name = fmt::format("{}.slot{}", name, k);
      register_slot(*reinterpret_cast<const shm::DirectSlot*>(slot), slot_name);
      words().bytes(slot + shm::kSlotHeaderBytes, slot_name + ".payload");
    }
    const auto* pairs = reinterpret_cast<const shm::DirectPair*>(at + shm::kPairsOffset);
    for (std::size_t i = 0; i < members; ++i) {
      const std::string pair_name = fmt::format("{}.to{}", name, i);
      register_slot(pairs[i].sent, pair_name);
      words().atomic(&pairs[i].received, pair_name + ".received");
      words().leave_out(&pairs[i].plan, sizeof pairs[i].plan);
    }
  }

  std::vector<scheduler::Group> groups_;
  std::optional<engine::DirectPages> board_;
  std::vector<std::unique_ptr<View>> views_;
};

}  // namespace muster::model
