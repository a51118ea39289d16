#include "api/examples/training/program.hpp"

#include <algorithm>
#include <utility>

namespace training {

void Program::kernel(const muster_kernel& kernel) {
  newest_kernel_ = add(runtime_.plan(kernel), MUSTER_LANE_COMPUTE, std::exchange(joined_, {}));
}

Mark Program::collective(muster_lane lane, const muster_collective& collective, Mark after) {
  if (collective.group == MUSTER_GROUP_SELF) return after;
  std::vector<Mark> waits{newest_kernel_};
  if (after.entry != Mark::kNothing) waits.push_back(after);
  return add(runtime_.plan(collective), lane, std::move(waits));
}

// Lanes are ordered: of two marks on one lane the later one is enough.
void Program::join(Mark mark) {
  if (mark.entry == Mark::kNothing) return;
  const auto same = std::ranges::find(joined_, mark.lane, &Mark::lane);
  if (same == joined_.end())
    joined_.push_back(mark);
  else
    same->entry = std::max(same->entry, mark.entry);
}

// A kernel in front takes what a first kernel, or one after a join, would wait for.
void Program::call(Call start) {
  if (entries_.empty() || !joined_.empty()) kernel(runtime_.nothing());
  const Mark done = add(0, MUSTER_LANE_COMPUTE, {newest_kernel_});
  entries_.back().start = std::move(start);
  newest_kernel_ = done;
  joined_ = {done};
}

Mark Program::add(muster_plan plan, muster_lane lane, std::vector<Mark> waits) {
  if (waits.size() > MUSTER_WAITS_MAX)
    throw std::logic_error("an entry waits for more points than a start can name");
  entries_.push_back({plan, lane, std::move(waits), {}});
  return {static_cast<std::int32_t>(entries_.size() - 1), lane};
}

muster_point Program::resolve(Mark mark, std::span<const muster_point> before) const {
  return mark.entry == Mark::kBeforeReplay ? before[mark.lane]
                                           : points_[static_cast<std::size_t>(mark.entry)];
}

muster_point Program::point(Mark mark) const {
  return mark.entry < 0 ? MUSTER_POINT_NONE : points_[static_cast<std::size_t>(mark.entry)];
}

muster_point Program::replay(std::span<const muster_point> after) {
  std::array<muster_point, MUSTER_LANE_CLASSES> before{};
  for (muster_lane lane = 0; lane < MUSTER_LANE_CLASSES; ++lane) before[lane] = runtime_.newest(lane);
  points_.clear();
  for (const Entry& entry : entries_) {
    std::vector<muster_point> waits;
    const auto add = [&](muster_point point) {
      if (point != MUSTER_POINT_NONE) waits.push_back(point);
    };
    for (const Mark mark : entry.waits) add(resolve(mark, before));
    if (entry.lane == MUSTER_LANE_COMPUTE)
      for (const muster_point point : std::exchange(after, {})) add(point);
    if (entry.start != nullptr) {
      points_.push_back(entry.start(waits.front()));
      runtime_.note(entry.lane, points_.back());
      continue;
    }
    points_.push_back(runtime_.start(entry.plan, entry.lane, waits));
  }
  return runtime_.newest(MUSTER_LANE_COMPUTE);
}

namespace {

std::uint64_t count_of(const muster_tensor& tensor) {
  std::int64_t count = 1;
  for (std::int32_t i = 0; i < tensor.dims; ++i) count *= tensor.size[i];
  return static_cast<std::uint64_t>(count);
}

muster_collective collective_of(muster_op op, muster_group group, const muster_tensor& own) {
  muster_collective collective = MUSTER_COLLECTIVE_INIT;
  collective.op = op;
  collective.group = group;
  collective.dtype = own.dtype;
  collective.count = count_of(own);
  return collective;
}

}  // namespace

muster_collective all_reduce(muster_group group, muster_redop redop, const muster_tensor& tensor) {
  muster_collective collective = collective_of(MUSTER_ALL_REDUCE, group, tensor);
  collective.redop = redop;
  collective.source = {tensor.buffer, tensor.offset_bytes};
  collective.target = collective.source;
  return collective;
}

muster_collective all_gather(muster_group group, const muster_tensor& own, muster_range target) {
  muster_collective collective = collective_of(MUSTER_ALL_GATHER, group, own);
  collective.source = {own.buffer, own.offset_bytes};
  collective.target = target;
  return collective;
}

muster_collective all_gather(muster_group group, const muster_tensor& own, muster_range target,
                             const muster_blocks& blocks) {
  muster_collective collective = all_gather(group, own, target);
  collective.count = 0;
  collective.target_blocks = blocks;
  return collective;
}

muster_collective broadcast(muster_group group, std::int32_t root, const muster_tensor& tensor) {
  muster_collective collective = collective_of(MUSTER_BROADCAST, group, tensor);
  collective.peer = root;
  collective.source = {tensor.buffer, tensor.offset_bytes};
  collective.target = collective.source;
  return collective;
}

muster_collective reduce_scatter(muster_group group, muster_range source, const muster_blocks& blocks,
                                 const muster_tensor& own) {
  muster_collective collective = collective_of(MUSTER_REDUCE_SCATTER, group, own);
  collective.count = 0;
  collective.redop = MUSTER_SUM;
  collective.source = source;
  collective.source_blocks = blocks;
  collective.target = {own.buffer, own.offset_bytes};
  return collective;
}

}  // namespace training
