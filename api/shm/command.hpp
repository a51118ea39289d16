// Commands: what a client writes into its submission ring. Plain data, 64 bytes, copied out and then checked.
#pragma once

#include <muster/muster.h>

#include <array>
#include <bit>
#include <cstdint>

namespace muster::shm {

constexpr std::size_t kCountLists = 4;
constexpr std::size_t kNumbersPerCommand = MUSTER_WAITS_MAX + 1;
static_assert(kCountLists == MUSTER_WAITS_MAX, "a kRecount says the length of each in its waits");

// Where kStartAt has its offsets among `waits`.
constexpr std::size_t kSourceOffsetAt = MUSTER_WAITS_WITH_OFFSETS_MAX;
constexpr std::size_t kTargetOffsetAt = MUSTER_WAITS_WITH_OFFSETS_MAX + 1;
static_assert(kTargetOffsetAt < MUSTER_WAITS_MAX);

// One slot of the ring. The reader loads each word once, atomically, and checks the copy.
struct Command {
  enum class Kind : std::uint16_t {
    kNone = 0,       // an unwritten slot reads as this and is refused
    kStart = 1,      // start `plan` on `lane`
    kSignal = 2,     // raise client timeline `lane` to `value`
    kResetLane = 3,  // let `lane` run again
    kNumbers = 4,    // `waits` and `deadline_ns` are entries of list `lane` (CountList) from entry `first` on
    kRecount = 5,  // `plan` has new counts, in the lists that kNumbers filled before; `waits` has the length
                   // of each CountList, `deadline_ns` the count of every block without a list
    kStartAt = 6,  // as kStart, but the last two of `waits` are the offsets in bytes at which the source and
                   // the target begin in their buffers
    kStep = 7,     // the starts that follow belong to step `plan` of their units
  };

  // The lists of a plan's counts, in the order of PlanCollective.
  enum class CountList : std::uint16_t {
    kSourceCounts = 0,
    kSourceOffsets = 1,
    kTargetCounts = 2,
    kTargetOffsets = 3,
  };

  std::uint64_t sequence = 0;  // position in the ring plus 1; written last: the slot's own publication
  Kind kind = Kind::kNone;
  std::uint16_t lane = 0;   // muster_lane, or a client timeline for kSignal
  std::uint32_t first = 0;  // kNumbers; else zero
  std::uint64_t plan = 0;   // Handle bits; kSignal: the new value; kStep: the step
  std::uint64_t waits[MUSTER_WAITS_MAX] = {0, 0, 0, 0};  // muster_point each, 0: none
  std::uint64_t deadline_ns = 0;                         // 0: the job's default
};
static_assert(sizeof(Command) == 64);

// The slot as words. The compiler keeps these in registers; a copied struct it would put on the stack.
constexpr std::array<std::uint64_t, 8> slot_words(const Command& command) {
  return {command.sequence,
          std::uint64_t{static_cast<std::uint16_t>(command.kind)} | std::uint64_t{command.lane} << 16 |
              std::uint64_t{command.first} << 32,
          command.plan,
          command.waits[0],
          command.waits[1],
          command.waits[2],
          command.waits[3],
          command.deadline_ns};
}
static_assert(slot_words({1, Command::Kind::kRecount, 3, 4, 5, {6, 7, 8, 9}, 10}) ==
              std::bit_cast<std::array<std::uint64_t, 8>>(Command{
                  1, Command::Kind::kRecount, 3, 4, 5, {6, 7, 8, 9}, 10}));

// A point packs a timeline (top 16 bits, plus one so that no point is 0) and a value.
constexpr int kPointValueBits = 48;
constexpr std::uint64_t kPointValueMask = (std::uint64_t{1} << kPointValueBits) - 1;
// Timelines: those of lanes, those that clients raise, those of what the engine starts by itself.
constexpr std::uint32_t kLanesMax = MUSTER_LANES_MAX;
constexpr std::uint32_t kClientTimelineFirst = kLanesMax;
constexpr std::uint32_t kClientTimelinesMax = 16;
constexpr std::uint32_t kTimelinesMax = kClientTimelineFirst + kClientTimelinesMax;

constexpr std::uint64_t make_point(std::uint32_t timeline, std::uint64_t value) {
  return (std::uint64_t{timeline + 1} << kPointValueBits) | (value & kPointValueMask);
}
constexpr std::uint32_t point_timeline(std::uint64_t point) {
  return static_cast<std::uint32_t>(point >> kPointValueBits) - 1;
}
constexpr std::uint64_t point_value(std::uint64_t point) {
  return point & kPointValueMask;
}

}  // namespace muster::shm
