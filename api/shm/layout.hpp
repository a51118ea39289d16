// The whole of a session's shared memory, in one place. Two sealed memfds, one writer each:
//
//   submission segment (client writes)              completion segment (engine writes; sealed)
//   +-----------------------------------+ 0         +------------------------------------------+ 0
//   | SubmissionHeader  producer line   |           | CompletionHeader: magic, versions, sizes |
//   |                   sleep, units    |           | consumer line: head, engine asleep       |
//   +-----------------------------------+ 4096      | wake line: futex word                    |
//   | Command[kRingCapacity], 64 B each |           | TimelineWord[kTimelinesMax]              |
//   +-----------------------------------+           | FailureText[kLanesMax]                   |
//                                                   | counters[kCountersMax]                   |
//                                                   +------------------------------------------+
//
// Rules (decision D12): plain data, offsets not pointers, one writer per 128-byte line (the adjacent-line
// prefetcher pairs lines of 64), no locks, no handles to memory. The reader of a word copies it once and
// checks the copy. Sizes are pinned below and by tests/api/shm/layout_test.cpp. A change of any of them
// raises kAbiVersion.
#pragma once

#include "api/shm/command.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::shm {

constexpr std::uint64_t kMagicCompletion = 0x4d55535445524351;  // "MUSTERCQ"
constexpr std::uint32_t kAbiVersion = 12;
constexpr std::uint32_t kRingCapacity = 1024;  // commands; a power of two
constexpr std::uint32_t kLaneDepth = 1024;     // limit of starts in flight on one lane
constexpr std::uint32_t kCountersMax = 64;
constexpr std::size_t kLineBytes = 128;
constexpr std::size_t kFailureTextBytes = 496;
constexpr std::size_t kClosedTextBytes = 120;

// The present figures of a session's sets of units, for `muster top`. They are for display only.
struct UnitFigures {
  std::uint64_t whole_bytes = 0;     // of units that are whole, and of slices
  std::uint64_t place_bytes = 0;     // of the memory in which they can be
  std::uint64_t budget_bytes = 0;    // 0: none was given
  std::uint64_t prefetch = 0;        // how many modules ahead units are gathered
  std::uint64_t prefetch_asked = 0;  // and how many were asked for
  std::uint64_t demands = 0;         // gathers that nobody had prefetched
  std::uint64_t skipped = 0;         // prefetches for which there was no memory
};

struct alignas(kLineBytes) SubmissionHeader {
  alignas(kLineBytes) std::uint64_t tail = 0;  // client: commands written so far; a hint, bound-checked
  alignas(kLineBytes) std::uint32_t client_asleep = 0;  // client: 1 while it sleeps on the wake word
  alignas(kLineBytes) UnitFigures units;                // client
};
static_assert(sizeof(SubmissionHeader) == 3 * kLineBytes);

constexpr std::size_t kRingOffset = 4096;
constexpr std::size_t kSubmissionBytes = kRingOffset + kRingCapacity * sizeof(Command);
static_assert(kSubmissionBytes % 4096 == 0);

// State of one timeline. Fresh memory means "nothing reached". The reader refuses a status of 0 beside
// failed_from != 0, so a failure whose status was never written is an error.
struct alignas(kLineBytes) TimelineWord {
  std::uint64_t reached = 0;  // highest value completed without failure
  std::uint64_t failed_from =
      0;  // 0: the timeline runs; else the first failed value: all from it to failed_to have failed
  std::uint64_t failed_to = 0;  // 0 while the lane is stopped; set by a reset: values above it run again
  std::int32_t status = 0;      // muster_status_t of the failure
  std::int32_t culprit_rank = -1;
  std::uint64_t revision = 0;  // odd while the four fields above, or the failure text, are being changed
  // Starts that have failed but may still touch their memory: their deadline passed while they ran.
  std::uint32_t quarantined = 0;
  std::uint32_t reserved = 0;
  // The latest collective here of a group that spans nodes: the group's number, which is the same on all of
  // its nodes, and the epoch in which all members had met.
  std::uint64_t group = 0;
  std::uint64_t epoch = 0;
};
static_assert(sizeof(TimelineWord) == kLineBytes);

struct FailureText {
  std::uint32_t length = 0;  // bytes of text that count, at most kFailureTextBytes
  std::uint32_t reserved = 0;
  char text[kFailureTextBytes] = {};
  std::uint64_t padding = 0;
};
static_assert(sizeof(FailureText) == 512);

struct CompletionHeader {
  std::uint64_t magic = 0;
  std::uint32_t abi_version = 0;
  std::uint32_t header_bytes = 0;      // sizeof(CompletionSegment)
  std::uint64_t completion_bytes = 0;  // of the whole segment
  std::uint64_t submission_bytes = 0;
  std::uint32_t ring_capacity = 0;
  std::uint32_t timelines = 0;
  std::uint32_t counters = 0;
  std::uint32_t session = 0;
  std::uint64_t epoch = 0;  // of the job: changes when the job is created anew
};

struct CompletionSegment {
  alignas(kLineBytes) CompletionHeader header;
  alignas(kLineBytes) std::uint64_t head = 0;           // engine: commands consumed
  alignas(kLineBytes) std::uint32_t engine_asleep = 0;  // engine: 0 while it polls the ring, else the nap's
                                                        // number: the client rings once for each nap
  alignas(kLineBytes) std::uint32_t wake = 0;           // futex word: raised at each completion
  alignas(kLineBytes) std::uint64_t heartbeat_ns = 0;   // engine: monotonic time of its last turn
  // engine: 0, or the negated status with which it closed the session; closed_text is written before it
  alignas(kLineBytes) std::uint32_t closed = 0;
  std::uint32_t reserved = 0;
  char closed_text[kClosedTextBytes] = {};
  alignas(kLineBytes) TimelineWord timelines[kTimelinesMax];
  alignas(kLineBytes) FailureText failures[kLanesMax];
  alignas(kLineBytes) std::uint64_t counters[kCountersMax];
};
constexpr std::size_t kCompletionBytes = (sizeof(CompletionSegment) + 4095) / 4096 * 4096;
static_assert(offsetof(CompletionSegment, timelines) ==
              6 * kLineBytes + (sizeof(CompletionHeader) > kLineBytes ? kLineBytes : 0));

}  // namespace muster::shm
