// Which step of fault_rank.cpp leads to which fault point.
#pragma once

#include <string>
#include <vector>

#include <sys/types.h>

#include <fmt/format.h>

namespace muster::test {

struct Way {
  std::string point;
  std::string step;
  int hit = 1;
};

// The engine does not know this process yet.
inline bool is_unknown(const Way& way) {
  return way.point == "attach.identified" || way.point == "attach.connected";
}

// The text that the other ranks get about a death.
inline std::string told_of(const Way& way, int victim, pid_t pid) {
  // The engine has reported a failure to the victim, so its end counts as a departure because of that.
  if (way.point == "verdict.taken")
    return way.step == "abort" ? fmt::format("rank {} aborted group world", victim)
                               : "barrier (run directly) passed its deadline";
  const std::string name = fmt::format("rank {} (pid {})", victim, pid);
  if (way.point == "goodbye.said") return name + " detached";             // it had said so, and been answered
  return way.point == "attach.hello_sent" ? name + " " : name + " died";  // or "left before it was welcomed"
}

// Each point has at least one row. A point of the engine has none, since no rank comes there.
struct Row {
  const char* step;
  std::vector<const char*> points;
};
inline const std::vector<Row> kRows = {
    {"inline",
     {"attach.identified",
      "attach.connected",
      "attach.hello_sent",
      "attach.welcomed",
      "attach.submission_mapped",
      "attach.completion_mapped",
      "attach.direct_mapped",
      "attach.groups_mapped",
      "attach.opened",
      "ask.sending",
      "ask.sent",
      "ask.answered",
      "peer.granted",
      "peer.mapped",
      "plan.asking",
      "plan.granted",
      "plan.known",
      "plan.seating",
      "plan.seated",
      "run.chosen",
      "run.counted",
      "word.published",
      "operation.arrived",
      "record.open",
      "operation.recorded",
      "operation.met",
      "operation.agreed",
      "operation.done",
      "record.closed",
      "goodbye.saying",
      "goodbye.said"}},
    {"slot",
     {"payload.prepared", "payload.packed", "slot.filled", "whole.folded", "result.written", "digest.taken",
      "digest.gathered"}},
    {"stage", {"stage.waiting", "stage.taken"}},
    {"gather", {"arena.mapped", "block.copied", "operation.arrived"}},
    {"blocks", {"payload.table_written"}},
    {"blocks_in_place", {"scratch.granted", "block.copied"}},
    {"exchange", {"faces.packed", "faces.taken"}},
    {"read", {"reading.found", "reading.delivered", "phase.set", "operation.arrived"}},
    {"read_in_place", {"reading.chunk_reduced", "reading.chunk_met"}},
    {"slices", {"slices.reduced", "slices.met", "slices.collected", "phase.set"}},
    {"shared", {"shared.written", "shared.met", "buffer.granted", "operation.arrived"}},
    {"pairs",
     {"send.published", "send.received", "receive.awaiting", "receive.came", "receive.copied",
      "receive.acknowledged"}},
    {"early", {"meet.looking", "meet.yielding", "meet.falling_asleep", "meet.woken"}},
    {"late", {"word.waking", "word.published"}},
    {"alloc",
     {"buffer.asking", "buffer.granted", "buffer.mapped", "buffer.known", "buffer.freeing", "buffer.freed"}},
    {"named", {"buffer.describing", "buffer.freeing", "buffer.freed"}},
    {"import", {"buffer.describing", "buffer.freeing", "buffer.freed"}},
    {"plan", {"plan.destroying", "plan.destroyed"}},
    {"start",
     {"ring.slot_begun", "ring.slot_due", "ring.slot_set", "ring.tail_due", "ring.tail_set", "start.checked",
      "start.pushed"}},
    {"late_start", {"bell.due", "bell.rung"}},
    {"early_start", {"point.testing", "point.falling_asleep", "point.woken"}},
    {"batch", {"batch.checked", "batch.pushed", "ring.slot_set", "ring.tail_due"}},
    {"signal", {"signal.pushed"}},
    {"recount", {"recount.checked", "recount.noted", "recount.told"}},
    {"reset", {"reset.pushed"}},
    {"overdue", {"overdue.asking", "overdue.asked", "verdict.asking", "verdict.taken"}},
    {"abort", {"abort.asking", "abort.asked", "verdict.asking", "verdict.taken"}},
    {"disagree", {"disagree.asking"}},
    {"compare", {"digest.taken", "digest.gathered"}},
    {"objects", {"object.length_known", "object.piece_copied"}},
    {"event", {"event.opened"}},
};

inline std::vector<Way> ways() {
  std::vector<Way> all;
  for (const Row& row : kRows)
    for (const char* point : row.points) all.push_back({point, row.step});
  // The first buffer is that of every rank; what a step makes itself comes second.
  for (const char* point : {"buffer.granted", "buffer.mapped", "buffer.known"})
    for (const char* step : {"named", "import", "shared"}) all.push_back({point, step, 2});
  return all;
}

}  // namespace muster::test
