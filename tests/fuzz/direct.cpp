// A rank on the direct path among peers who write anything into their segments: positions, epochs,
// signatures, locations, tables of offsets, lists of faces, phases; and an engine whose regions may not fit.
//
// Whatever they write, the rank reads inside its own mappings and writes inside its own target, which
// AddressSanitizer guards; it ends without help but its deadline's; and it is done only with an operation on
// which all have agreed.
#include "api/base/dtype.hpp"
#include "api/client/direct/faces.hpp"
#include "api/client/direct/member_regions.hpp"
#include "api/client/direct/planning.hpp"
#include "tests/fuzz/bytes.hpp"
#include "tests/fuzz/heap_device.hpp"
#include "tests/fuzz/promise.hpp"
#include "tests/fuzz/target.hpp"

#include <array>

#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

namespace muster::client {
namespace {

using fuzz::Bytes;
using shm::PayloadLocation;

constexpr std::uint32_t kMe = 1;
constexpr std::int32_t kMembers = 3;
constexpr std::uint64_t kGroup = 9;
constexpr Nanos kDefaultDeadline = std::chrono::seconds(60);
constexpr std::uint64_t kRegion = shm::kMemberRegionsOffset;
constexpr std::uint64_t kSegmentBytes = (kRegion + shm::member_region_bytes(kMembers) + 4095) / 4096 * 4096;
constexpr std::uint64_t kPageBytes = 4096;
constexpr std::uint64_t kArenaBytes = 256 << 10;
constexpr std::uint64_t kVectorBytes = 192 << 10;
// No index that fits a location leads beyond it.
constexpr std::size_t kGuardBytes = std::size_t{1} << 32;
constexpr int kOperationsMax = 6;

// Memory below a stretch that nobody may touch. The kernel says where it lies, and takes the highest hole
// that is large enough: so all holes above the stretch are filled, and the one below it is the highest.
shm::Mapping guarded(const shm::Descriptor& memory, std::uint64_t bytes, shm::Mapping::Access access) {
  const auto reserve = [](std::size_t size) {
    constexpr int kFlags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void* at = ::mmap(nullptr, size, PROT_NONE, kFlags, -1, 0);
    MUSTER_PROMISE(at != MAP_FAILED);
    return static_cast<std::byte*>(at);
  };
  std::byte* hole = reserve(bytes + kGuardBytes);
  MUSTER_PROMISE(::munmap(hole, bytes) == 0);
  for (std::size_t size = kGuardBytes; size >= 4096; size /= 2) {
    std::byte* filler = reserve(size);
    while (filler >= hole + bytes) filler = reserve(size);
    MUSTER_PROMISE(::munmap(filler, size) == 0);
  }
  shm::Mapping mapping = *shm::Mapping::map(memory, bytes, access);
  MUSTER_PROMISE(mapping.data() == hole);
  return mapping;
}

// The node's memory, the same for all inputs; reset() makes it as new but for payloads.
struct Node final : DirectMemory::Registrar {
  struct Memory {
    Memory(const char* name, std::uint64_t bytes)
        : file(*shm::create_memory(name, bytes, shm::Headroom{})),
          view(*shm::Mapping::map(file, bytes, shm::Mapping::Access::kReadWrite)) {}
    shm::Descriptor file;
    shm::Mapping view;
  };
  Node()
      : page("page", kPageBytes),
        arena("arena", kArenaBytes),
        segments{Memory("0", kSegmentBytes), Memory("1", kSegmentBytes), Memory("2", kSegmentBytes)},
        scratch_memory(kVectorBytes) {
    auto* header = new (page.view.writable()) shm::GroupPageHeader;
    header->magic = shm::kMagicGroupPage;
    header->abi_version = shm::kAbiVersion;
    header->groups = 1;
    header->ranks = kMembers;
    for (std::uint32_t rank = 0; rank < kMembers; ++rank) rank_line(rank)->rank = rank;
    memory.emplace(
        *DirectMemory::open(guarded(segments[kMe].file, kSegmentBytes, shm::Mapping::Access::kReadWrite),
                            guarded(page.file, kPageBytes, shm::Mapping::Access::kRead), *this));
  }
  void reset() {
    for (Memory& segment : segments) {
      std::memset(segment.view.writable(), 0, shm::kDirectHeaderBytes);
      std::memset(segment.view.writable() + kRegion, 0, kSegmentBytes - kRegion);
    }
    std::memset(page.view.writable() + shm::kGroupLinesOffset, 0, kPageBytes - shm::kGroupLinesOffset);
    line()->epoch = 1;
    for (std::int32_t rank = 0; rank < kMembers; ++rank)
      *const_cast<std::uint64_t*>(memory->life_of(rank) - memory_page() + own_page()) = 1;
  }
  shm::GroupLine* line() {
    return reinterpret_cast<shm::GroupLine*>(page.view.writable() + shm::kGroupLinesOffset);
  }
  shm::RankLine* rank_line(std::uint32_t rank) {
    return reinterpret_cast<shm::RankLine*>(page.view.writable() + shm::kGroupLinesOffset +
                                            sizeof(shm::GroupLine)) +
           rank;
  }
  const std::uint64_t* memory_page() const {
    return reinterpret_cast<const std::uint64_t*>(memory->groups());
  }
  const std::uint64_t* own_page() const { return reinterpret_cast<const std::uint64_t*>(page.view.data()); }
  std::byte* segment(std::uint32_t rank) { return segments[rank].view.writable(); }

  Result<shm::Mapping> direct_segment(std::int32_t rank) override {
    if (rank < 0 || rank >= kMembers) return fail(Code::kBadArgument, "no such rank");
    return guarded(segments[static_cast<std::size_t>(rank)].file, kSegmentBytes, shm::Mapping::Access::kRead);
  }
  Result<shm::Mapping> arena_segment(std::int32_t rank, std::uint32_t segment) override {
    if (rank < 0 || rank >= kMembers || segment > 1) return fail(Code::kBadArgument, "no such segment");
    return guarded(arena.file, kArenaBytes, shm::Mapping::Access::kRead);
  }
  Result<Scratch> scratch(std::uint64_t bytes) override {
    if (bytes > kVectorBytes) return fail(Code::kNoResource, "too much");
    return Scratch{scratch_memory.data(), {PayloadLocation::Kind::kArena, 0, 0}};
  }

  Memory page, arena;
  std::array<Memory, kMembers> segments;
  fuzz::HeapMemory scratch_memory;
  std::optional<DirectMemory> memory;
};

Node& node() {
  static Node the_node;
  return the_node;
}

class World final : public WaitHooks {
 public:
  explicit World(Bytes& bytes) : bytes_(bytes), stages_(node().memory->own(), node().memory->flight()) {
    node().reset();
  }

  void run() {
    MemberRegions regions{kGroup, 0, kMe, {}, 1, 0};
    for (std::int32_t rank = 0; rank < kMembers; ++rank) regions.members.push_back({rank, 0, kRegion});
    if (bytes_.below(16) == 0) return doubtful(regions);
    channel_ = *open_channel(*node().memory, regions, *this);
    for (int i = 0; i < kOperationsMax && !bytes_.empty(); ++i) operation();
  }

 private:
  // ---- wait hooks: every look at the clock is later than the one before --------------------------------
  Instant now() const override { return Nanos(++looks_); }
  bool engine_gone() override { return true; }
  void overdue(const Wanted&) override {
    shm::GroupLine* line = node().line();
    shm::EndedEpoch& record = line->ended[line->epoch % shm::kEpochsKept];
    shm::Published<std::uint64_t>(&record.met).store(0);
    shm::Published<std::uint64_t>(&record.epoch).store(line->epoch);
    shm::Published<std::uint64_t>(&line->epoch).store_ordered(line->epoch + 1);
  }

  // An engine's description of a group, changed: it is refused, or all regions lie within their segments.
  void doubtful(MemberRegions regions) {
    for (auto& member : regions.members) {
      if (bytes_.flag()) member.region = bytes_.flag() ? bytes_.number() : kSegmentBytes - bytes_.number();
      if (bytes_.below(4) == 0) member.rank = bytes_.take<std::int32_t>();
    }
    if (bytes_.below(4) == 0) regions.index = bytes_.take<std::uint32_t>();
    if (bytes_.below(4) == 0) regions.line = bytes_.take<std::uint32_t>();
    if (bytes_.below(4) == 0) regions.members.resize(bytes_.below(5));
    const auto channel = open_channel(*node().memory, regions, *this);
    if (!channel) {
      MUSTER_PROMISE(static_cast<int>(channel.error().code()) < 0);
      return;
    }
    for (std::uint32_t i = 0; i < (*channel)->members(); ++i) {
      const Peer& peer = (*channel)->peer(i);
      const auto* begin = reinterpret_cast<const std::byte*>(peer.header);
      const auto* end = reinterpret_cast<const std::byte*>(peer.pairs + regions.members.size());
      MUSTER_PROMISE(end > begin && static_cast<std::uint64_t>(end - begin) <= kSegmentBytes);
    }
  }

  // ---- one operation ---------------------------------------------------------------------------
  void operation() {
    muster_collective said = MUSTER_COLLECTIVE_INIT;
    said.op = static_cast<muster_op>(1 + bytes_.below(kOperations));
    said.dtype = static_cast<muster_dtype>(1 + bytes_.below(MUSTER_F8_E5M2));
    said.redop = has_reduction(said.op) ? static_cast<muster_redop>(1 + bytes_.below(MUSTER_PREMUL_SUM)) : 0;
    said.peer = has_root(said.op) ? static_cast<std::int32_t>(bytes_.below(kMembers)) : bytes_.flag() ? 0 : 2;
    said.scale = 2.0;
    Share::Counts counts;
    const std::uint64_t all = kVectorBytes / dtype_bytes(said.dtype) / kMembers;
    counts.count = bytes_.flag() ? bytes_.below(200) : bytes_.take<std::uint16_t>() % all;
    Described described{kGroup, &kDefaultDeadline, {}, {}, {PayloadLocation::Kind::kArena, 0, 0}, {}};
    const auto what = make_collective(said, kMe, kMembers, counts);
    if (!what) return;
    described.what = *what;
    auto mine = make_share(*what, kMe, kMembers, counts);
    if (!mine) return;
    described.mine = *std::move(mine);
    if (said.op == MUSTER_EXCHANGE) faces(described);
    const std::size_t element = dtype_bytes(said.dtype);
    const fuzz::HeapMemory source(extent_of(described.mine.source_blocks) * element + 1);
    const fuzz::HeapMemory target(extent_of(described.mine.target_blocks) * element + 1);
    described.mine.source = source.data();
    described.mine.target = bytes_.below(4) == 0 ? source.data() : target.data();
    if (target.bytes() > source.bytes()) described.mine.target = target.data();
    if (!check_share(*what, described.mine, kMembers).ok()) return;
    DirectPlan plan = make_direct_plan(1, described, *channel_, Machine{2, kMembers, true}, 2);
    if (plan.choice.path != Path::kDirect) return;
    start(plan);
  }

  void faces(Described& described) {
    const auto any = [&](std::uint32_t tag) {
      Face face;
      face.dtype = bytes_.flag() ? MUSTER_F64 : MUSTER_BF16;
      face.peer = bytes_.flag() ? 0 : 2;
      face.tag = tag;
      face.dims = static_cast<std::int32_t>(bytes_.below(3));
      for (std::size_t d = 0; d < 2; ++d) face.size[d] = static_cast<std::int64_t>(1 + bytes_.below(12));
      face.stride = {face.size[1], 1};
      if (face.dims == 1) face.stride[0] = 1;
      faces_[tag] = std::make_unique<fuzz::HeapMemory>(face.count() * 8);
      face.data = faces_[tag]->data();
      return face;
    };
    for (std::uint32_t tag = 0; tag < 2; ++tag) {
      described.mine.sends.push_back(any(tag));
      described.sends.push_back({PayloadLocation::Kind::kArena, 0, 64 * tag});
      described.mine.receives.push_back(any(2 + tag));
      described.mine.receives.back().tag = tag;
    }
  }

  void start(const DirectPlan& plan) {
    agreed_ = true;
    Hash128 rest;
    rest -= plan.signature.balance;
    for (std::uint32_t peer = 0; peer < kMembers; ++peer) {
      if (peer == kMe) continue;
      is_transfer(plan.what.op) ? write_pair(plan, peer) : write_slot(plan, peer, rest);
      rest = {};
    }
    WaitPolicy policy(Nanos(bytes_.below(4)), true);
    const Outcome outcome = run_direct(plan, *node().memory, stages_, policy);
    if (outcome == Outcome::kDone && plan.what.op != MUSTER_BARRIER) MUSTER_PROMISE(agreed_);
    const std::uint64_t epoch = node().line()->epoch;
    if (channel_->view().ended()) channel_->move_on(epoch, channel_->at().position + 1 + bytes_.below(4));
  }

  PayloadLocation any_location(std::uint32_t peer) {
    PayloadLocation location;
    location.kind = static_cast<PayloadLocation::Kind>(bytes_.below(6));
    location.index =
        static_cast<std::uint32_t>(bytes_.below(8) < 6 ? bytes_.below(3) : bytes_.take<std::uint16_t>());
    location.index &= shm::kLocationIndexMax;
    location.value = (bytes_.flag() ? bytes_.below(4) : bytes_.number()) & shm::kLocationValueMask;
    auto* header = reinterpret_cast<shm::DirectHeader*>(node().segment(peer));
    if (location.kind == PayloadLocation::Kind::kStage && location.index < shm::kStages &&
        bytes_.below(8) != 0)
      header->stage_uses[location.index] = location.value;
    return location;
  }

  void write_header(shm::DirectSlot* slot, const DirectPlan& plan, std::uint32_t peer,
                    std::uint64_t position) {
    slot->common[0] = plan.signature.common.low;
    slot->common[1] = plan.signature.common.high;
    if (bytes_.below(16) == 0) {
      slot->common[bytes_.below(2)] ^= 1;
      agreed_ = false;
    }
    slot->location = shm::pack_location(any_location(peer));
    slot->position = bytes_.below(16) == 0 ? bytes_.number() : position;
  }

  void write_slot(const DirectPlan& plan, std::uint32_t peer, const Hash128& balance) {
    auto* region = node().segment(peer) + kRegion;
    const std::uint64_t position = channel_->at().position + 1;
    auto* bytes = region + shm::kSlotsOffset + (position & 1) * shm::kSlotBytes;
    auto* slot = reinterpret_cast<shm::DirectSlot*>(bytes);
    const auto body = bytes_.some(bytes_.below(200));
    if (!body.empty()) std::memcpy(bytes + shm::kSlotHeaderBytes, body.data(), body.size());
    const auto inside = bytes_.some(bytes_.flag() ? shm::kInlineBytes : 0);
    std::memset(slot->payload, 0, sizeof slot->payload);
    if (!inside.empty()) std::memcpy(slot->payload, inside.data(), inside.size());
    if (is_pairwise(plan.what.op)) {
      if (bytes_.below(8) != 0) {
        std::memcpy(slot->payload, &balance, sizeof balance);
      } else {
        Hash128 theirs;
        std::memcpy(&theirs, slot->payload, sizeof theirs);
        agreed_ = agreed_ && theirs == balance;
      }
    } else if (plan.choice.algorithm == Algorithm::kSliced) {
      const std::uint64_t stage = shm::pack_location(any_location(peer));
      std::memcpy(slot->payload, &stage, sizeof stage);
    }
    if (plan.what.op == MUSTER_EXCHANGE) write_list(peer, bytes, slot);
    write_header(slot, plan, peer, position);
    if (plan.what.op == MUSTER_EXCHANGE && bytes_.flag())
      slot->location = shm::pack_location({PayloadLocation::Kind::kSlot, 0, 0});
    auto* head = reinterpret_cast<shm::MemberRegion*>(region);
    head->progress = bytes_.below(8) == 0 ? bytes_.number() : UINT64_MAX;
    head->epoch = bytes_.below(8) == 0 ? bytes_.number() : 0;
  }

  // Sends of a peer as it would list them, more or less.
  void write_list(std::uint32_t peer, std::byte* slot_bytes, shm::DirectSlot* slot) {
    const auto sends = static_cast<std::uint32_t>(bytes_.below(8) == 0 ? bytes_.number() : bytes_.below(4));
    std::memcpy(slot->payload + sizeof(Hash128), &sends, sizeof sends);
    std::byte* at = slot_bytes + shm::kSlotHeaderBytes;
    for (std::uint32_t k = 0; k < std::min<std::uint32_t>(sends, 3); ++k) {
      Faces::Entry entry;
      entry.peer = static_cast<std::int32_t>(kMe);
      entry.tag = static_cast<std::uint32_t>(bytes_.below(3));
      entry.count = 1 + bytes_.below(160);
      entry.location = shm::pack_location(any_location(peer));
      entry.offset = bytes_.number();
      const auto dims = static_cast<std::int32_t>(bytes_.below(MUSTER_TENSOR_DIMS_MAX + 1));
      entry.dims = bytes_.below(16) == 1 ? bytes_.take<std::int32_t>() : dims;
      std::uint64_t count = 1;
      std::array<std::uint64_t, 2 * MUSTER_TENSOR_DIMS_MAX> view{};  // sizes, then strides
      for (std::int32_t d = 0; d < dims; ++d) {
        const auto i = static_cast<std::size_t>(d);
        view[i] = bytes_.flag() ? 1 + bytes_.below(12) : bytes_.number();
        view[i + static_cast<std::size_t>(dims)] = bytes_.number();
        count *= view[i];
      }
      if (bytes_.flag()) entry.count = count;
      std::memcpy(at, &entry, sizeof entry);
      std::memcpy(at + sizeof entry, view.data(), entry_bytes(dims) - sizeof entry);
      at += entry_bytes(dims);
    }
  }

  void write_pair(const DirectPlan& plan, std::uint32_t peer) {
    auto* pairs = reinterpret_cast<shm::DirectPair*>(node().segment(peer) + kRegion + shm::kPairsOffset);
    const std::uint64_t position = channel_->view().base() + 1 + bytes_.below(3);
    const auto inside = bytes_.some(bytes_.flag() ? shm::kInlineBytes : 0);
    if (!inside.empty()) std::memcpy(pairs[kMe].sent.payload, inside.data(), inside.size());
    write_header(&pairs[kMe].sent, plan, peer, position);
    pairs[kMe].received = position << 1 | bytes_.below(2);
    agreed_ = true;  // the other side of a pair is one of two, and says so itself
  }

  Bytes& bytes_;
  Stages stages_;
  std::unique_ptr<Channel> channel_;
  std::array<std::unique_ptr<fuzz::HeapMemory>, 4> faces_;
  bool agreed_ = true;
  mutable std::int64_t looks_ = 0;
};

}  // namespace
}  // namespace muster::client

// Nobody here comes later, so a core given away is time lost.
extern "C" int sched_yield() noexcept {
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  muster::fuzz::Bytes bytes(data, size);
  muster::client::World(bytes).run();
  return 0;
}
