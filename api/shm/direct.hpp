// The memory of the direct path (decision D3): how members of a group on one node meet without the engine.
//
//   direct segment, one per rank; that rank writes, its peers read      group page, one per job; the engine
//   writes
//   +------------------------------------------+ 0                      +----------------------------------+
//   | DirectHeader: sizes, sleep flag, stages, |                        | GroupPageHeader                  |
//   |               counters                   |                        | GroupLine[groups]: generation,   |
//   +------------------------------------------+ 4096                   |   what has ended and how         |
//   | stage 0, stage 1: kStageBytes each       |                        | RankLine[ranks]: alive or not    |
//   +------------------------------------------+                        +----------------------------------+
//   | DirectRecord[kDirectRecords]             |
//   +------------------------------------------+
//   | seat of the first group of the rank:     |
//   |   DirectSeat: progress, report           |
//   |   slot 0, slot 1: DirectSlot + payload   |
//   |   DirectPair[members]                    |
//   | seat of its second group …               |
//   | room for seats of groups made later      |
//   +------------------------------------------+
//
// An operation of a group has a number, counted from 1 in each generation of the group. A member arrives by
// filling its slot (number & 1) and writing the number last. Two slots are enough: whoever arrives at n + 1
// has left n behind, and nobody goes on to n + 2 before all have arrived at n + 1. Where an operation needs
// more meetings (the sources of others are read in place; results are reduced by slices), members count its
// phases in `progress`.
//
// The payload of an arrival lies in the slot's header, behind the header, in a stage of the rank, or in the
// rank's arena: see Place. A stage is written again only when all who were to read it have said so in their
// progress.
//
// The engine raises a group's generation when a member leaves or is lost, a deadline has passed or somebody
// aborts, and says up to which operation all had arrived by then. Up to there members complete, unless one
// that they still need is gone; beyond, whoever comes gets the verdict, once, and begins again at number 1 of
// the new generation. A verdict that is not a departure ends what is in flight as well. A member says in its
// seat that it has gone on before it touches what others may still read of it, so that they need not fear
// every end; who hears of none because the engine is gone takes its number away instead. What stands against
// a group because a rank is named absent keeps members from beginning, and ends nothing: the departure of
// that rank did. Messages between two who are there pass all the while.
//
// Rules as in layout.hpp: plain data, one writer per line, offsets not pointers, a reader copies and checks.
// Segments are handed to peers by read-only descriptors, which keeps mistakes out, not malice: ranks of a job
// are one user's.
#pragma once

#include "api/shm/layout.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::shm {

constexpr std::uint64_t kMagicDirect = 0x4d55535445524450;     // "MUSTERDP"
constexpr std::uint64_t kMagicGroupPage = 0x4d55535445524750;  // "MUSTERGP"
constexpr std::size_t kSlotHeaderBytes = 64;
constexpr std::size_t kSlotBytes = 1280;  // 1 KiB and a table of offsets; a seat must be cheap to make
constexpr std::size_t kSlotPayloadBytes = kSlotBytes - kSlotHeaderBytes;
constexpr std::size_t kInlineBytes = 24;
constexpr std::size_t kStageBytes = 512 << 10;
constexpr std::uint32_t kStages = 2;
constexpr std::size_t kDirectHeaderBytes = 4096;
constexpr std::uint32_t kDirectRecords = 1024;  // a power of two
constexpr std::size_t kRecordBytes = 64;
constexpr std::size_t kDirectRecordsOffset = kDirectHeaderBytes + kStages * kStageBytes;
constexpr std::size_t kDirectSeatsOffset = kDirectRecordsOffset + kDirectRecords * kRecordBytes;

struct DirectSlot {
  std::uint64_t sequence = 0;        // number of the operation; 0: none. Written last
  std::uint64_t generation = 0;      // of the group, in which it counts
  std::uint64_t common[2] = {0, 0};  // Signature::common
  std::uint64_t place = 0;           // where the payload is: Place
  std::byte payload[kInlineBytes] = {};
};
static_assert(sizeof(DirectSlot) == kSlotHeaderBytes);

struct alignas(kLineBytes) DirectSeat {
  // number << kPhaseBits | phases of it that are done, in a generation; by its parity, so that who is still
  // in one sees what a member did there before it went on to the next.
  std::uint64_t progress[2] = {0, 0};
  std::uint64_t generation = 0;  // in which the rank takes part
  // For reports, in a line of its own: the plan in each slot.
  alignas(kLineBytes) std::uint64_t plans[2] = {0, 0};
};
static_assert(sizeof(DirectSeat) == 2 * kLineBytes);

constexpr int kPhaseBits = 16;
constexpr std::uint64_t kPhaseLast =
    (std::uint64_t{1} << kPhaseBits) - 1;  // all that others could wait for is done
constexpr std::uint64_t make_progress(std::uint64_t number, std::uint64_t phase) {
  return number << kPhaseBits | phase;
}

// One direction of a pair: what the rank sends to a member of the group, and how far it has received from it.
struct DirectPair {
  alignas(kLineBytes) DirectSlot sent;
  // Written by this rank as receiver: number of the newest message from that member that it is done with, and
  // whether the two disagreed on it.
  alignas(kLineBytes) std::uint64_t received = 0;  // number << 1 | disagreed
  std::uint64_t received_generation = 0;
  std::uint64_t plan = 0;  // for reports: of the receive that waits, or was the last
};
static_assert(sizeof(DirectPair) == 2 * kLineBytes);

constexpr std::size_t kSlotsOffset = sizeof(DirectSeat);
constexpr std::size_t kPairsOffset = kSlotsOffset + 2 * kSlotBytes;
constexpr std::size_t seat_bytes(std::uint32_t members) {
  return kPairsOffset + members * sizeof(DirectPair);
}

struct DirectHeader {
  std::uint64_t magic = 0;
  std::uint32_t abi_version = 0;
  std::uint32_t rank = 0;
  std::uint64_t bytes = 0;  // of the segment
  // The rank sleeps, or is about to, on a word of some peer.
  alignas(kLineBytes) std::uint32_t asleep = 0;
  // How often each stage has been given a new content: a reader looks before and after it copies.
  alignas(kLineBytes) std::uint64_t stage_uses[kStages] = {0, 0};
  // Counters of what the rank did itself.
  alignas(kLineBytes) std::uint64_t operations = 0;
  std::uint64_t bytes_moved = 0;  // at its targets
  std::uint64_t sleeps = 0;
  // Plans whose present counts the engine has not been told: it does not know yet in what they differ.
  std::uint64_t untold = 0;
  std::uint64_t recorded = 0;  // index of the latest record
  // For reports: the rank waits until all have read what it gave to the operation of this record, whose stage
  // it wants to fill again; 0: it does not.
  std::uint64_t awaiting = 0;
};
static_assert(sizeof(DirectHeader) <= kDirectHeaderBytes);

// The flight recorder of the direct path: what the rank has run, latest operation at index % kDirectRecords.
// For reports alone: nothing waits for it. A record is good if `index` is the same before and after it was
// copied; other words are written with release and read with acquire order, as under a Revision.
struct DirectRecord {
  std::uint64_t index = 0;  // from 1; 0 while the record changes
  std::uint64_t what = 0;   // RecordedWhat
  std::uint64_t generation = 0;
  std::uint64_t number = 0;  // of the operation in its generation; of a pair: of the message
  std::uint64_t source_bytes = 0;
  std::uint64_t target_bytes = 0;
  std::uint64_t begun_ns = 0;  // the rank had arrived; Clock's time
  std::uint64_t end = 0;       // RecordState | nanoseconds << kRecordStateBits; 0 nanoseconds: not taken
};
static_assert(sizeof(DirectRecord) == kRecordBytes);

enum class RecordState : std::uint64_t { kOpen = 0, kWell = 1, kBadly = 2 };
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

constexpr std::uint32_t kGenerationsKept = 8;

struct alignas(kLineBytes) GroupLine {
  std::uint64_t generation = 0;  // from 1
  std::int32_t standing = 0;     // not 0: no operation may begin, whoever comes gets the verdict
  std::uint32_t reserved = 0;
  std::uint64_t revoked =
      0;  // the latest generation that was ended for all, whatever they were doing; 0: none
  // At index generation % kGenerationsKept of one that has ended: its last operation at which all members had
  // arrived. No member completes more, whenever it hears of the end; one that is held up in that operation
  // while others go on in the next generation may complete less (tests/models/README.md, Left).
  std::uint64_t completed[kGenerationsKept] = {};
};
static_assert(sizeof(GroupLine) == kLineBytes);

struct alignas(kLineBytes) RankLine {
  std::uint64_t life = 0;     // odd while the rank has a client: changes with each attachment and departure
  std::uint64_t retired = 0;  // segments of its arena that are gone: mappings of them only hold memory
};

struct GroupPageHeader {
  std::uint64_t magic = 0;
  std::uint32_t abi_version = 0;
  std::uint32_t groups = 0;
  std::uint64_t epoch = 0;  // of the job
  std::uint32_t ranks = 0;
  std::uint32_t recording = 0;  // 1: a trace is being taken, so records are to say when operations end
};
// Lines of all groups, then lines of all ranks.
constexpr std::size_t kGroupLinesOffset = kLineBytes;
static_assert(sizeof(GroupPageHeader) <= kGroupLinesOffset);

// What a member waits for.
enum class DirectWait : std::uint32_t {
  kArrivals = 0,  // of all members at the operation
  kPhase = 1,     // of all members within it
  kMessage = 2,   // from one member
  kReceived = 3,  // one member to be done with a message
};

// Where a payload lies, in 64 bits: kind in the top 4, then index, then value.
struct Place {
  enum class Kind : std::uint8_t {
    kNone = 0,    // nothing is given
    kInline = 1,  // in the slot's header
    kSlot = 2,    // behind the slot's header
    kStage = 3,   // in stage `index`, of which this is use `value`
    kArena = 4,   // in segment `index` of the rank's arena, from byte `value` on
  };
  Kind kind = Kind::kNone;
  std::uint32_t index = 0;  // kPlaceIndexBits
  std::uint64_t value = 0;  // kPlaceValueBits
};
constexpr int kPlaceIndexBits = 20;
constexpr int kPlaceValueBits = 40;  // no segment is longer than 1 TiB
constexpr std::uint32_t kPlaceIndexMax = (1u << kPlaceIndexBits) - 1;
constexpr std::uint64_t kPlaceValueMask = (std::uint64_t{1} << kPlaceValueBits) - 1;
constexpr std::uint64_t kSegmentBytesMax = kPlaceValueMask + 1;

constexpr std::uint64_t pack_place(Place place) {
  return std::uint64_t{static_cast<std::uint8_t>(place.kind)} << 60 |
         std::uint64_t{place.index & kPlaceIndexMax} << kPlaceValueBits | (place.value & kPlaceValueMask);
}
constexpr Place unpack_place(std::uint64_t bits) {
  return {static_cast<Place::Kind>(bits >> 60),
          static_cast<std::uint32_t>(bits >> kPlaceValueBits) & kPlaceIndexMax, bits & kPlaceValueMask};
}

}  // namespace muster::shm
