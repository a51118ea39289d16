// The algorithms of the direct path, a row each: its name, its cost for an operation, and why it is chosen. A
// new one needs a row and an estimate here, and its body run_NAME in a file of api/client/direct (and in the
// CMakeLists.txt there).
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/collective/node_costs.hpp"

#include <cstdint>
#include <iterator>
#include <limits>

namespace muster {

// Up to here a member's contribution travels with its arrival: what the line of a slot has room for.
constexpr std::uint64_t kSmallBytesMax = 32;
// Up to here a contribution is copied to where peers can read it later, though every rank has a core.
constexpr std::uint64_t kCopiedBytesMax = 1 << 10;

// An operation, as an estimate sees it.
struct Terms {
  const Collective& what;
  const OperationRow& row;
  NodeCosts costs;
  double bytes = 0;  // of the vector, or of a block
  double members = 1;
  double cores = 1;             // on which the members run
  double ranks_per_core = 1;    // of the job
  bool crowded = false;         // ranks outnumber cores
  std::uint64_t given_max = 0;  // bytes that one member gives at most; UINT64_MAX: members do not agree on it
  double touched = 0;           // bytes of all sources and targets of a reduction

  static constexpr double kCachedBytesMax = 8 << 20;  // touched by all members together

  double members_per_core() const { return crowded ? members / cores : 1.0; }
  double meeting() const { return crowded ? costs.turn_ns * ranks_per_core : costs.meeting_ns; }
  // Each member reads and writes so many bytes.
  double moving(double moved) const {
    const bool cached = touched <= kCachedBytesMax;
    const double rate = (cached ? costs.cached_bytes_per_us : costs.memory_bytes_per_us) / 1000.0;
    return moved * members_per_core() / rate;
  }
  bool reduces_vectors() const { return muster::reduces_vectors(what.op); }
  // Bytes of what members give that each one reads.
  double read() const {
    const bool all = reduces_vectors() || row.gives == Portion::kBlocks || row.gets == Portion::kBlocks;
    return all ? bytes * members : bytes;
  }
  bool shared() const { return what.shared_memory != 0; }
};

// Nanoseconds from the last arrival to the end at all members, and one sentence.
struct Estimate {
  double ns = std::numeric_limits<double>::infinity();  // it cannot carry the operation out
  const char* why = "";
};

namespace estimate {

// Each member's contribution travels with its arrival, and each member finishes alone: one meeting.
inline Estimate small(const Terms& t) {
  if (t.shared() || t.given_max > kSmallBytesMax) return {};
  return {t.meeting() + t.moving(t.read()), "what each rank gives travels with its arrival"};
}

// The same where ranks take turns on a core: a rank that waits for other cores alone keeps its own, which
// saves a quarter of the turns.
inline Estimate turns(const Terms& t) {
  Estimate of_small = small(t);
  if (!t.crowded || of_small.why[0] == 0) return {};
  return {of_small.ns - t.meeting() / 4,
          "what each rank gives travels with its arrival; ranks take turns on a core"};
}

// Each member reads the contributions it needs and finishes alone. One meeting, and a second one if they are
// read in place; where ranks take turns on a core they are copied instead, and read by cores whose caches
// hold another rank's lines. Factors: fitted to 2, 3, 4 and 8 ranks on two cores.
inline Estimate whole(const Terms& t) {
  if (t.shared() || has_faces(t.row.op)) return {};
  const char* const why = "a meeting, and each rank finishes alone";
  if (!t.reduces_vectors()) return {t.meeting() + t.moving(t.read() + t.bytes), why};
  const double alone = t.row.same_for_all ? 1 : t.members_per_core();  // the root reads while others are done
  const double read = (t.crowded && t.row.same_for_all ? 1.3 * t.members : 1.1 * (t.members + 1)) / alone;
  const double meetings = !t.crowded && t.bytes > static_cast<double>(kCopiedBytesMax) ? 2 : 1;
  return {meetings * t.meeting() + t.moving(t.bytes * (read + (t.crowded ? 7 : 0))), why};
}

// ALL_REDUCE: each member reduces the whole vector from everybody's source in place, and waits for its
// readers. No line that a peer will read is written.
inline Estimate read(const Terms& t) {
  if (t.shared() || !t.reduces_vectors() || !t.row.same_for_all || t.given_max <= kSmallBytesMax) return {};
  return {(t.crowded ? 2.3 : 2) * t.meeting() + t.moving(t.bytes * (t.members + 1)),
          "among so few, reading all sources in place moves least between cores"};
}

// One result for all in node-shared memory: each member brings its part of it, and all meet.
inline Estimate shared(const Terms& t) {
  if (!t.shared()) return {};
  if (t.row.gets == Portion::kBlocks)
    return {t.meeting(), "one result for all: shards that lie in it are not moved"};
  const double read = t.row.reduces ? t.bytes * t.members : t.bytes;
  return {2 * t.meeting() + t.moving((read + t.bytes) / t.members),
          "one result for all, of which each rank writes its part"};
}

// Each member reduces its slice of a chunk, then collects the others' slices. Lines that another core has
// just written cost twice as much; where ranks take turns on a core, half of them come from the same core.
inline Estimate sliced(const Terms& t) {
  if (t.shared() || !t.reduces_vectors() || t.given_max <= kSmallBytesMax) return {};
  const double moved = (t.row.same_for_all ? 4 : 2.5) * (t.crowded ? 1 : 1.65);
  return {(t.crowded ? 2.3 : 3) * t.meeting() + t.moving(t.bytes * moved),
          "every source is read once, by the rank that reduces the slice"};
}

// EXCHANGE: each member reads its inboxes' faces from the list of their sender.
inline Estimate faces(const Terms& t) {
  if (!has_faces(t.row.op)) return {};
  return {t.meeting(), "a meeting, and each rank takes the faces that are for it"};
}

}  // namespace estimate

#define MUSTER_ALGORITHMS(ROW) \
  ROW(kSmall, small, kInLine)  \
  ROW(kTurns, turns, kInLine)  \
  ROW(kWhole, whole, kApart)   \
  ROW(kRead, read, kApart)     \
  ROW(kShared, shared, kApart) \
  ROW(kSliced, sliced, kApart) \
  ROW(kFaces, faces, kApart)

enum class Algorithm : std::uint8_t {
#define MUSTER_ROW(id, name, payload) id,
  MUSTER_ALGORITHMS(MUSTER_ROW)
#undef MUSTER_ROW
};

struct AlgorithmRow {
  // Whether what a member gives stands in the line of its slot.
  enum class Payload : std::uint8_t { kInLine, kApart };

  const char* name;
  Payload payload;
  Estimate (*estimate)(const Terms& terms);
};
inline constexpr AlgorithmRow kAlgorithmRows[] = {
#define MUSTER_ROW(id, name, payload) {#name, AlgorithmRow::Payload::payload, estimate::name},
    MUSTER_ALGORITHMS(MUSTER_ROW)
#undef MUSTER_ROW
};
constexpr std::size_t kAlgorithms = std::size(kAlgorithmRows);

constexpr const AlgorithmRow& row_of(Algorithm algorithm) noexcept {
  return kAlgorithmRows[static_cast<std::size_t>(algorithm)];
}

}  // namespace muster
