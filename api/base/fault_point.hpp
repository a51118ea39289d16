// Fault points: named places in the code at which a test ends, stops or holds the process that reaches them.
//
//   MUSTER_FAULT_POINT("ring.tail_due");
//
// compiles to nothing unless MUSTER_FAULT_POINTS is defined. tests/fault defines it in a second build of
// libmuster for its own programs; the installed library has no points. In that build
//
//   MUSTER_FAULT_AT=ring.tail_due:3=kill
//
// ends the process when it comes to that point for the third time: see tests/fault/fault_point.cpp. A point
// that shows memory,
//
//   MUSTER_FAULT_MEMORY("result.written", data, bytes);
//
// lets a test change what lies there as well. One list has all names, so that a test can go through them. A
// point whose name is not in the list does not compile; a name without a point fails that test, because the
// point is never reached.
#pragma once

#if !defined(MUSTER_FAULT_POINTS)

#define MUSTER_FAULT_POINT(name) static_cast<void>(0)
#define MUSTER_FAULT_MEMORY(name, data, bytes) static_cast<void>(0)

#else

#include <cstddef>
#include <span>
#include <string_view>

namespace muster::fault {

inline constexpr std::string_view kPoints[] = {
    // becoming a client
    "attach.identified",
    "attach.connected",
    "attach.hello_sent",
    "attach.welcomed",
    "attach.submission_mapped",
    "attach.completion_mapped",
    "attach.direct_mapped",
    "attach.groups_mapped",
    "attach.opened",
    // questions to the engine
    "ask.sending",
    "ask.sent",
    "ask.answered",
    // memory
    "buffer.asking",
    "buffer.granted",
    "buffer.mapped",
    "buffer.known",
    "buffer.describing",
    "buffer.freeing",
    "buffer.freed",
    "peer.granted",
    "peer.mapped",
    "arena.mapped",
    // plans
    "plan.asking",
    "plan.granted",
    "plan.known",
    "plan.destroying",
    "plan.destroyed",
    "plan.seating",
    "plan.seated",
    "recount.checked",
    "recount.noted",
    "recount.told",
    // the ring
    "ring.slot_begun",
    "ring.slot_due",
    "ring.slot_set",
    "ring.tail_due",
    "ring.tail_set",
    "bell.due",
    "bell.rung",
    // starts
    "start.checked",
    "start.pushed",
    "batch.checked",
    "batch.pushed",
    "signal.pushed",
    "reset.pushed",
    // waiting for the engine
    "point.testing",
    "point.falling_asleep",
    "point.woken",
    // the direct path: arriving
    "run.chosen",
    "run.counted",
    "stage.waiting",
    "stage.taken",
    "scratch.granted",
    "payload.prepared",
    "payload.packed",
    "payload.table_written",
    "faces.packed",
    "slot.filled",
    "word.published",
    "word.waking",
    "operation.arrived",
    "record.open",
    "operation.recorded",
    // and meeting
    "meet.looking",
    "meet.yielding",
    "meet.falling_asleep",
    "meet.woken",
    "operation.met",
    "operation.agreed",
    "phase.set",
    // and moving bytes
    "whole.folded",
    "block.copied",
    "faces.taken",
    "slices.reduced",
    "slices.met",
    "slices.collected",
    "reading.found",
    "reading.delivered",
    "reading.chunk_reduced",
    "reading.chunk_met",
    "shared.written",
    "shared.met",
    "operation.done",
    "record.closed",
    // pairs
    "send.published",
    "send.received",
    "receive.awaiting",
    "receive.came",
    "receive.copied",
    "receive.acknowledged",
    // failing
    "overdue.asking",
    "overdue.asked",
    "verdict.asking",
    "verdict.taken",
    "disagree.asking",
    "abort.asking",
    "abort.asked",
    // comparing what members hold
    "result.written",
    "digest.taken",
    "digest.gathered",
    // objects, events, the end
    "object.length_known",
    "object.piece_copied",
    "event.opened",
    "goodbye.saying",
    "goodbye.said",
    // checkpoints: in the writer, which is a child, and in the member that commits
    "checkpoint.chunk_due",
    "checkpoint.sync_due",
    "checkpoint.record_due",
    "checkpoint.record_written",
    "checkpoint.record_named",
    "checkpoint.named",
    "checkpoint.old_renamed",
    // the engine, with its lock
    "engine.drained",
};

consteval std::size_t index_of(std::string_view name) {
  for (std::size_t i = 0; i < std::size(kPoints); ++i)
    if (kPoints[i] == name) return i;
  throw "a fault point that is not in the list";
}

// The process has reached the point; the test may change `memory` there.
void come_to(std::size_t point, std::span<std::byte> memory = {}) noexcept;

}  // namespace muster::fault

#define MUSTER_FAULT_POINT(name)                                                \
  do {                                                                          \
    constexpr std::size_t muster_fault_point = ::muster::fault::index_of(name); \
    ::muster::fault::come_to(muster_fault_point);                               \
  } while (false)
#define MUSTER_FAULT_MEMORY(name, data, bytes)                                           \
  do {                                                                                   \
    constexpr std::size_t muster_fault_point = ::muster::fault::index_of(name);          \
    ::muster::fault::come_to(muster_fault_point, std::span<std::byte>((data), (bytes))); \
  } while (false)

#endif
