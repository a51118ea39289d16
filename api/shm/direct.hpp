// The memory of the direct path (decision D3): how members of a group on one node meet without the engine.
//
//   direct segment, one per rank; that rank writes, its peers read      group page of the job (engine writes)
//   +------------------------------------------+ 0                      +----------------------------------+
//   | DirectHeader: sizes, sleep flag, stages, |                        | GroupPageHeader                  |
//   |               counters                   |                        | GroupLine[groups]: epoch, and how |
//   +------------------------------------------+ 4096                   |   former epochs ended            |
//   | stage 0, stage 1: kStageBytes each       |                        | RankLine[ranks of this node]     |
//   +------------------------------------------+                        +----------------------------------+
//   | DirectRecord[kDirectRecords]             |
//   +------------------------------------------+
//   | region of the first group of the rank:   |
//   |   MemberRegion: progress, report         |
//   |   slot 0, slot 1: DirectSlot + payload   |
//   |   DirectPair[members]                    |
//   | region of its second group …             |
//   | room for regions of groups made later    |
//   +------------------------------------------+
//
// All direct operations of a group match at one place, whose time is cut into epochs (decision D18).
//
//   1. An operation has a position, counted over all epochs. The first of an epoch is `base` + 1; the engine
//      chooses a base above every position that any member has used. So a word of an old epoch never looks
//      like one of the present epoch, and nothing has to be cleared.
//   2. A member arrives by filling its slot (position & 1) and writing the position last. Two slots are
//      enough: a member that arrives at p + 1 has left p, and no member goes on to p + 2 before all have
//      arrived at p + 1.
//   3. If members meet more than once in an operation, they count its phases in `progress`.
//   4. The payload of an arrival lies in the slot's header, behind the header, in a stage of the rank, or in
//      the rank's arena: see PayloadLocation. A stage is written again only when all its readers are done.
//   5. An end writes the next epoch into the group's line. No operation begins in an epoch that has ended.
//      If a loss ended it, operations at which all members had arrived go on. The engine counts the last such
//      position (`met`) after a fence, so it sees every arrival whose member did not see the end. A member
//      that has arrived compares its position with `met`. Any other end fails operations in flight as well.
//   6. A member moves on by its own act alone. It publishes the epoch in which it stands before it touches
//      memory that others may still read. A member that has read a peer's memory in place then looks at the
//      peer's epoch.
//   7. After a loss the base is chosen so that the first arrival of the new epoch does not overwrite the slot
//      of the last operation at which all had met: a member that is still in that operation completes it.
//   8. While the launcher names a member absent, no operation begins. Messages between two others go on.
//
// Rules as in layout.hpp: plain data, one writer per line, offsets not pointers, a reader copies and checks.
// Peers get read-only descriptors of segments. That guards against mistakes, not malice: all ranks of a job
// belong to one user.
#pragma once

#include "api/shm/layout.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::shm {

constexpr std::uint64_t kMagicDirect = 0x4d55535445524450;     // "MUSTERDP"
constexpr std::uint64_t kMagicGroupPage = 0x4d55535445524750;  // "MUSTERGP"
constexpr std::size_t kSlotHeaderBytes = 64;
constexpr std::size_t kSlotBytes = 1280;  // 1 KiB and a table of offsets; a region must be cheap to make
constexpr std::size_t kSlotPayloadBytes = kSlotBytes - kSlotHeaderBytes;
constexpr std::size_t kInlineBytes = 32;
constexpr std::size_t kStageBytes = 512 << 10;
constexpr std::uint32_t kStages = 2;
constexpr std::size_t kDirectHeaderBytes = 4096;
constexpr std::uint32_t kDirectRecords = 1024;  // a power of two
constexpr std::size_t kRecordBytes = 64;
constexpr std::size_t kDirectRecordsOffset = kDirectHeaderBytes + kStages * kStageBytes;
constexpr std::size_t kMemberRegionsOffset = kDirectRecordsOffset + kDirectRecords * kRecordBytes;

struct DirectSlot {
  std::uint64_t position = 0;        // of the operation, or of the message of a pair; 0: none. Written last
  std::uint64_t common[2] = {0, 0};  // Signature::common
  std::uint64_t location = 0;        // of the payload: PayloadLocation
  std::byte payload[kInlineBytes] = {};
};
static_assert(sizeof(DirectSlot) == kSlotHeaderBytes);

struct alignas(kLineBytes) MemberRegion {
  std::uint64_t progress = 0;  // position << kPhaseBits | phases of it that are done
  std::uint64_t epoch = 0;     // the rank stands in it
  // For reports, in a line of its own: the plan in each slot.
  alignas(kLineBytes) std::uint64_t plans[2] = {0, 0};
};
static_assert(sizeof(MemberRegion) == 2 * kLineBytes);

constexpr int kPhaseBits = 16;
constexpr std::uint64_t kPhaseLast =
    (std::uint64_t{1} << kPhaseBits) - 1;  // no peer waits for anything more of the operation
constexpr std::uint64_t make_progress(std::uint64_t position, std::uint64_t phase) {
  return position << kPhaseBits | phase;
}

// A rank's words for one other member: what it sends to that member, and how far it has received from it.
struct DirectPair {
  alignas(kLineBytes) DirectSlot sent;
  // Written by this rank as receiver: position of the newest message from that member that it has finished,
  // and whether the two disagreed on it.
  alignas(kLineBytes) std::uint64_t received = 0;  // position << 1 | disagreed
  std::uint64_t plan = 0;                          // for reports: of the waiting or the latest receive
};
static_assert(sizeof(DirectPair) == 2 * kLineBytes);

constexpr std::size_t kSlotsOffset = sizeof(MemberRegion);
constexpr std::size_t kPairsOffset = kSlotsOffset + 2 * kSlotBytes;
constexpr std::size_t member_region_bytes(std::uint32_t members) {
  return kPairsOffset + members * sizeof(DirectPair);
}

struct DirectHeader {
  std::uint64_t magic = 0;
  std::uint32_t abi_version = 0;
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;  // of the segment
  // The rank sleeps, or is about to, on a word of some peer.
  alignas(kLineBytes) std::uint32_t asleep = 0;
  // How often each stage was filled anew. A reader compares it before and after it copies.
  alignas(kLineBytes) std::uint64_t stage_uses[kStages] = {0, 0};
  // Counters of the rank's direct operations.
  alignas(kLineBytes) std::uint64_t operations = 0;
  std::uint64_t bytes_moved = 0;  // at its targets
  std::uint64_t sleeps = 0;
  // Plans whose present counts the engine does not know yet; it cannot say in what such plans differ.
  std::uint64_t untold = 0;
  std::uint64_t recorded = 0;  // index of the latest record
  // For reports: the rank wants to fill the stage of this record's operation again, and waits until all have
  // read it. 0: it does not wait so.
  std::uint64_t awaiting = 0;
};
static_assert(sizeof(DirectHeader) <= kDirectHeaderBytes);

// The flight recorder of the direct path: the rank's operations, each at index % kDirectRecords. For reports
// alone: nothing waits for it. A copy is good if `index` is the same before and after. The other words are
// written with release and read with acquire order, as under a Revision.
struct DirectRecord {
  enum class State : std::uint64_t { kOpen = 0, kWell = 1, kBadly = 2 };

  std::uint64_t index = 0;  // from 1; 0 while the record changes
  std::uint64_t what = 0;   // RecordedWhat
  std::uint64_t epoch = 0;
  std::uint64_t number = 0;  // of the operation in its epoch, from 1; of a pair: of the message
  std::uint64_t source_bytes = 0;
  std::uint64_t target_bytes = 0;
  std::uint64_t begun_ns = 0;  // when the rank had arrived, by Clock
  std::uint64_t end = 0;       // State | nanoseconds << kRecordStateBits; 0 nanoseconds: not taken
};
static_assert(sizeof(DirectRecord) == kRecordBytes);

constexpr int kRecordStateBits = 2;

constexpr std::uint8_t kRecordUneven = 0x80;  // beside a dtype: blocks of several sizes
struct RecordedWhat {
  std::uint32_t line = 0;  // of the group, on the group page
  std::uint8_t op = 0;
  std::uint8_t dtype = 0;  // and kRecordUneven
  std::uint16_t peer = 0;  // SEND, RECV: index of the other side
};
constexpr std::uint64_t pack_what(RecordedWhat what) {
  return std::uint64_t{what.line} | std::uint64_t{what.op} << 32 | std::uint64_t{what.dtype} << 40 |
         std::uint64_t{what.peer} << 48;
}
constexpr RecordedWhat unpack_what(std::uint64_t bits) {
  return {static_cast<std::uint32_t>(bits), static_cast<std::uint8_t>(bits >> 32),
          static_cast<std::uint8_t>(bits >> 40), static_cast<std::uint16_t>(bits >> 48)};
}

constexpr std::uint32_t kEpochsKept = 7;
constexpr std::uint64_t kMetUncounted = UINT64_MAX;

// An ended epoch: which of the operations begun in it go on.
struct EndedEpoch {
  std::uint64_t epoch = 0;  // 0: none yet, or the record is being given to another epoch
  // The last position at which all members had arrived; operations up to it go on. 0: all operations ended.
  // kMetUncounted: the engine has not counted yet.
  std::uint64_t met = 0;
};

struct alignas(kLineBytes) GroupLine {
  std::uint64_t epoch = 0;   // the present one, from 1
  std::int32_t absence = 0;  // not 0: a member is named absent, and no operation may begin
  std::uint32_t reserved = 0;
  // The latest epochs in which a member had arrived anywhere, and the latest of all. So a member still in an
  // operation finds its epoch, however many ranks left since. An epoch without a record has ended for all.
  EndedEpoch ended[kEpochsKept];
};
static_assert(sizeof(GroupLine) == kLineBytes);

struct alignas(kLineBytes) RankLine {
  std::uint64_t life = 0;     // odd while the rank has a client; raised at each attachment and departure
  std::uint64_t retired = 0;  // how many segments of its arena are gone; a change tells peers to unmap it
  std::uint32_t rank = 0;     // lines rise by rank
};

struct GroupPageHeader {
  std::uint64_t magic = 0;
  std::uint32_t abi_version = 0;
  std::uint32_t groups = 0;
  std::uint64_t epoch = 0;  // of the job
  std::uint32_t ranks = 0;
  std::uint32_t recording = 0;  // 1: a trace is being taken, so ranks record when operations end
};
// Lines of all groups, then lines of all ranks of this node.
constexpr std::size_t kGroupLinesOffset = kLineBytes;
static_assert(sizeof(GroupPageHeader) <= kGroupLinesOffset);

// The event that a member waits for.
enum class DirectWait : std::uint32_t {
  kArrivals = 0,  // the arrival of all members
  kPhase = 1,     // a phase, by all members
  kMessage = 2,   // a message from one member
  kReceived = 3,  // that one member has received a message
};

// Where a payload lies, in 64 bits: kind in the top 4, then index, then value.
struct PayloadLocation {
  enum class Kind : std::uint8_t {
    kNone = 0,    // nothing is given
    kInline = 1,  // in the slot's header
    kSlot = 2,    // behind the slot's header
    kStage = 3,   // in stage `index`, of which this is use `value`
    kArena = 4,   // in segment `index` of the rank's arena, from byte `value` on
  };
  Kind kind = Kind::kNone;
  std::uint32_t index = 0;  // kLocationIndexBits
  std::uint64_t value = 0;  // kLocationValueBits
};
constexpr int kLocationIndexBits = 20;
constexpr int kLocationValueBits = 40;  // no segment is longer than 1 TiB
constexpr std::uint32_t kLocationIndexMax = (1u << kLocationIndexBits) - 1;
constexpr std::uint64_t kLocationValueMask = (std::uint64_t{1} << kLocationValueBits) - 1;
constexpr std::uint64_t kSegmentBytesMax = kLocationValueMask + 1;

constexpr std::uint64_t pack_location(PayloadLocation location) {
  return std::uint64_t{static_cast<std::uint8_t>(location.kind)} << 60 |
         std::uint64_t{location.index & kLocationIndexMax} << kLocationValueBits |
         (location.value & kLocationValueMask);
}
constexpr PayloadLocation unpack_location(std::uint64_t bits) {
  return {static_cast<PayloadLocation::Kind>(bits >> 60),
          static_cast<std::uint32_t>(bits >> kLocationValueBits) & kLocationIndexMax,
          bits & kLocationValueMask};
}

}  // namespace muster::shm
