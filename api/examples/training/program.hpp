// Program: a part of a step as a list of plans, recorded once and replayed as often as wanted.
//
// Recording reads like eager code: kernel() and collective() create a plan each and note what it waits for.
// Replaying is nothing but muster_plan_start, one ring write for each entry.
//
// Four rules give the whole order:
//   1. Kernels run on the compute lane, one after the other.
//   2. A collective runs on its own lane and waits for every kernel recorded before it.
//   3. The next kernel waits for a collective's mark after join(mark); without that they overlap.
//   4. A call starts work of another part of the library, such as a halo. It waits for the kernels before
//      it, and the next kernel waits for it.
// By rule 2 the first collective of a replay waits for the last kernel before the replay, of this program or
// another, so replays may use the same buffers.
#pragma once

#include "api/examples/training/runtime.hpp"

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace training {

// The end of one recorded entry. A default Mark is reached from the start.
struct Mark {
  static constexpr std::int32_t kNothing = -1;
  static constexpr std::int32_t kBeforeReplay = -2;  // the lane's latest start before this replay
  std::int32_t entry = kNothing;
  muster_lane lane = MUSTER_LANE_COMPUTE;
};

// Owns    its list of entries; the plans are the session's.
// Thread  one.
// Bound   an entry waits for at most MUSTER_WAITS_MAX points.
// Fails   with RuntimeError.
class Program {
 public:
  explicit Program(Runtime& runtime) : runtime_(runtime) {}

  void kernel(const muster_kernel& kernel);
  // In a group of one it does nothing, and the mark is reached from the start. `after`: a mark on another
  // lane to wait for as well.
  Mark collective(muster_lane lane, const muster_collective& collective, Mark after = {});
  void join(Mark mark);
  // Starts something after a point, and returns the point at which all of it is over. Its kernels run on the
  // compute lane.
  using Call = std::function<muster_point(muster_point after)>;
  void call(Call start);

  // Starts everything; returns the point of the last kernel. The first kernel waits for `after`, where they
  // are not NONE.
  muster_point replay(std::span<const muster_point> after = {});
  // The point that a mark has reached, or will reach, by the latest replay.
  muster_point point(Mark mark) const;
  std::size_t size() const { return entries_.size(); }

 private:
  struct Entry {
    muster_plan plan = 0;
    muster_lane lane = MUSTER_LANE_COMPUTE;
    std::vector<Mark> waits;
    Call start;  // in place of a plan
  };
  Mark add(muster_plan plan, muster_lane lane, std::vector<Mark> waits);
  muster_point resolve(Mark mark, std::span<const muster_point> before) const;

  Runtime& runtime_;
  std::vector<Entry> entries_;
  std::vector<muster_point> points_;  // of the replay under way, as entries_
  std::vector<Mark> joined_;          // by the next kernel
  Mark newest_kernel_{Mark::kBeforeReplay, MUSTER_LANE_COMPUTE};
};

// ---- collectives as values ---------------------------------------------------------------------

muster_collective all_reduce(muster_group group, muster_redop redop, const muster_tensor& tensor);
muster_collective all_gather(muster_group group, const muster_tensor& own, muster_range target);
// The blocks of all members lie in pieces of `target`, or of `source`; the own block is contiguous.
muster_collective all_gather(muster_group group, const muster_tensor& own, muster_range target,
                             const muster_blocks& blocks);
muster_collective broadcast(muster_group group, std::int32_t root, const muster_tensor& tensor);
muster_collective reduce_scatter(muster_group group, muster_range source, const muster_blocks& blocks,
                                 const muster_tensor& own);

}  // namespace training
