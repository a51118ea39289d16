#include "api/client/units/reduction.hpp"

#include "api/base/dtype.hpp"
#include "api/shm/message.hpp"

#include <utility>

#include <muster/kernels.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster::client {

using Segment = UnitFacts::Segment;

using shard::PointSet;

namespace {

// The runs of trainable parameters of a segment for which `is` holds.
template<class Is>
std::vector<Segment> segments_where(Segment all, Is is) {
  std::vector<Segment> segments;
  for (std::size_t k = all.first; k < all.last; ++k) {
    if (!is(k)) continue;
    if (!segments.empty() && segments.back().last == k)
      segments.back().last = k + 1;
    else
      segments.push_back({k, k + 1});
  }
  return segments;
}

// Distinguishes reductions of a unit by their parameters and their turn (D33). Ranks may leave different
// parameters of equal size unused, or one may leave out a backward or a step. They must not take one
// reduction for another.
std::uint32_t tag_of(std::uint32_t unit, Segment segment, std::size_t all, std::uint32_t turn) {
  if (segment.first == 0 && segment.last == all && turn == 0) return unit;
  const std::uint64_t what[] = {unit, segment.first, segment.last, turn};
  return static_cast<std::uint32_t>(XXH3_64bits(what, sizeof what));
}

}  // namespace

Status GradientReduction::allocate() {
  if (facts_.trainable.empty()) return {};
  const auto make = [&](muster_buffer& buffer, muster_dtype dtype) -> Status {
    MUSTER_ASSIGN_OR_RETURN(buffer, memory_.buffer(facts_.gradient_elements * dtype_bytes(dtype)));
    return {};
  };
  MUSTER_RETURN_IF_ERROR(make(gradients_, facts_.dtype));
  if (facts_.keeps_sums) MUSTER_RETURN_IF_ERROR(make(sums_, facts_.reduce_dtype));
  if (facts_.keeps_sums && facts_.replicate.ranks > 1)
    MUSTER_RETURN_IF_ERROR(make(partial_, facts_.reduce_dtype));
  return {};
}

void GradientReduction::prepare(muster_range whole) {
  whole_ = facts_.scheduled().gradient_bytes > 0 ? whole : muster_range{gradients_, 0};
}

Status GradientReduction::withdraw() {
  made_.clear();
  return plans_.release();
}

Status GradientReduction::release() {
  MUSTER_RETURN_IF_ERROR(withdraw());
  return memory_.release();
}

void GradientReduction::reset() {
  latest_ = MUSTER_POINT_NONE;
  unused_.assign(unused_.size(), false);
  kept_ = false;
  step_ = backwards_ = 0;
  since_.fill(0);
  sent_.fill(false);
}

// ---- plans -------------------------------------------------------------------------------------

Result<muster_plan> GradientReduction::plan(Step step, Segment segment) {
  const bool is_collective = step == Step::kScatter || step == Step::kReduce || step == Step::kReduceWhole ||
                             step == Step::kSumOverTp;
  if (is_collective) sent_[collective_of(step)] = true;
  const auto key = std::tuple(step, segment, is_collective ? turn(step) : 0);
  if (const auto made = made_.find(key); made != made_.end()) return made->second;
  MUSTER_ASSIGN_OR_RETURN(const muster_plan plan,
                          is_collective ? make_collective(step, segment) : make_kernel(step, segment));
  made_.emplace(key, plan);
  return plan;
}

Result<muster_plan> GradientReduction::make_collective(Step step, Segment segment) {
  const muster_tensor target = sums(segment);
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.dtype = facts_.reduce_dtype;
  c.redop = step == Step::kScatter ? facts_.division.scatter : facts_.division.reduce;
  c.scale = c.redop == MUSTER_PREMUL_SUM ? facts_.division.scale : 0;
  c.target = {target.buffer, target.offset_bytes};
  c.source = step == Step::kReduce ? c.target : whole(segment);
  c.tag = tag_of(facts_.tag, segment, facts_.trainable.size(), turn(step));
  char site[shm::kSiteBytes];
  shm::set_clipped(site, site_of(segment));
  c.site = site;
  const Blocks blocks(facts_.gradient_pieces(segment));
  if (step == Step::kSumOverTp) {
    c.op = MUSTER_ALL_REDUCE;
    c.group = facts_.tensor.group;
    c.redop = MUSTER_SUM;
    c.scale = 0;
    c.target = c.source = whole(segment);
    c.count = whole_elements(segment);
  } else if (step == Step::kScatter) {
    c.op = MUSTER_REDUCE_SCATTER;
    c.group = facts_.shard.group;
    c.source_blocks = blocks.get();
  } else {
    c.op = MUSTER_ALL_REDUCE;
    c.group = facts_.replicate.group;
    c.count = facts_.elements(segment);
  }
  return plans_.plan(c);
}

Result<muster_plan> GradientReduction::make_kernel(Step step, Segment segment) {
  const muster_tensor gradient = vector(gradients_, facts_.dtype, segment);
  const muster_range unsharded = whole(segment);
  const muster_tensor unsummed = muster_view1(unsharded.buffer, unsharded.offset_bytes, facts_.reduce_dtype,
                                              static_cast<std::int64_t>(facts_.elements(segment)));
  const bool alone = facts_.shard.ranks == 1 && facts_.replicate.ranks == 1;
  const muster_tensor summed = alone ? unsummed : sums(segment);
  switch (step) {
    case Step::kZero:
      return plans_.plan(muster_fill(gradient, 0.0));
    case Step::kZeroWhole:
      return plans_.plan(
          muster_fill(muster_view1(unsharded.buffer, unsharded.offset_bytes, facts_.reduce_dtype,
                                   static_cast<std::int64_t>(whole_elements(segment))),
                      0.0));
    case Step::kTake:
      return plans_.plan(muster_copy(unsummed, sums(segment)));
    case Step::kKeepPartial:
      return plans_.plan(muster_copy(sums(segment), vector(partial_, facts_.reduce_dtype, segment)));
    case Step::kAddPartial:
      return plans_.plan(muster_axpby(1, vector(partial_, facts_.reduce_dtype, segment), 1, sums(segment)));
    default:
      return plans_.plan(
          muster_axpby(1 / facts_.division.after, summed, step == Step::kAdd ? 1 : 0, gradient));
  }
}

// The unit, and its parameters if these are not all.
std::string GradientReduction::site_of(Segment segment) const {
  std::string site = facts_.name;
  if (segment.first == 0 && segment.last == facts_.trainable.size()) return site;
  const auto name_of = [this](std::size_t k) {
    const std::string& name = facts_.parameters[facts_.trainable[k]].name;
    return name.starts_with(facts_.name + ".") ? name.substr(facts_.name.size() + 1) : name;
  };
  site += ": " + name_of(segment.first);
  if (segment.last - segment.first > 1)
    site += (segment.last - segment.first == 2 ? ", " : " to ") + name_of(segment.last - 1);
  return site;
}

muster_range GradientReduction::whole(Segment segment) const {
  const std::uint64_t first = facts_.parameters[facts_.trainable[segment.first]].whole_gradient_at;
  return {whole_.buffer, whole_.offset_bytes + first * dtype_bytes(facts_.reduce_dtype)};
}

std::uint64_t GradientReduction::whole_elements(Segment segment) const {
  std::uint64_t count = 0;
  for (std::size_t k = segment.first; k < segment.last; ++k)
    count += static_cast<std::uint64_t>(facts_.parameters[facts_.trainable[k]].places.whole_elements());
  return count;
}

// The shards of a segment, in a buffer with an element for each of the gradient shard.
muster_tensor GradientReduction::vector(muster_buffer buffer, muster_dtype dtype, Segment segment) const {
  const std::uint64_t first = facts_.parameters[facts_.trainable[segment.first]].gradient_at;
  return muster_view1(buffer, first * dtype_bytes(dtype), dtype,
                      static_cast<std::int64_t>(facts_.elements(segment)));
}

muster_tensor GradientReduction::sums(Segment segment) const {
  return facts_.keeps_sums ? vector(sums_, facts_.reduce_dtype, segment)
                           : vector(gradients_, facts_.dtype, segment);
}

// ---- the reduction -----------------------------------------------------------------------------

Result<muster_point> GradientReduction::keep(SetLanes& lanes, std::span<const muster_point> waits) {
  const auto is_unused = [&](std::size_t k) { return !kept_ && unused_[facts_.trainable[k]]; };
  muster_point zeroed = MUSTER_POINT_NONE;
  for (const Segment segment : segments_where({0, facts_.trainable.size()}, is_unused)) {
    if (whole_elements(segment) == 0) continue;
    MUSTER_ASSIGN_OR_RETURN(const muster_plan zero, plan(Step::kZeroWhole, segment));
    MUSTER_ASSIGN_OR_RETURN(zeroed, lanes.start(zero, MUSTER_LANE_REDUCE, waits));
  }
  kept_ = true;
  unused_.assign(unused_.size(), false);
  return zeroed;
}

Result<GradientReduction::Reduced> GradientReduction::reduce(SetLanes& lanes, Reduction how,
                                                             std::span<const muster_point> waits) {
  if ((how.add || how.add_partial || !how.all_reduce) && !facts_.keeps_sums)
    return fail(Code::kState,
                "unit \"{}\" is reduced twice in a step; make the set with MUSTER_UNITS_ACCUMULATE",
                facts_.name);
  PointSet before;
  before.add(waits);
  before.add(latest_);
  // Where gradients of several backwards come together, all parameters take part.
  if (kept_ || how.add_partial || !how.all_reduce) {
    MUSTER_ASSIGN_OR_RETURN(const muster_point zeroed, keep(lanes, before.points()));
    before.add(zeroed);
  }
  const Segment all{0, facts_.trainable.size()};
  const auto is_used = [&](std::size_t k) { return !unused_[facts_.trainable[k]]; };
  Reduced points;
  for (std::size_t k = 0; k < all.last; ++k) {
    if (is_used(k) || how.add || facts_.elements({k, k + 1}) == 0) continue;
    MUSTER_ASSIGN_OR_RETURN(const muster_plan zero, plan(Step::kZero, {k, k + 1}));
    MUSTER_ASSIGN_OR_RETURN(points.sent, lanes.start(zero, MUSTER_LANE_REDUCE, before.points()));
    points.ready = points.sent;
    before.add(points.sent);  // also where nothing is sent, whoever reads the gradients waits for the zeros
  }
  for (const Segment segment : segments_where(all, is_used)) {
    MUSTER_ASSIGN_OR_RETURN(points, reduce(lanes, how, segment, before.points()));
  }
  unused_.assign(unused_.size(), false);
  kept_ = false;
  for (std::size_t i = 0; i < kCollectives; ++i)
    if (std::exchange(sent_[i], false)) since_[i] = 0;
  latest_ = points.ready == MUSTER_POINT_NONE ? points.sent : points.ready;
  return points;
}

Result<GradientReduction::Reduced> GradientReduction::reduce(SetLanes& lanes, Reduction how, Segment segment,
                                                             std::span<const muster_point> waits) {
  std::vector<muster_point> before(waits.begin(), waits.end());
  const auto start = [&](Step step, muster_lane lane) -> Status {
    MUSTER_ASSIGN_OR_RETURN(const auto made, plan(step, segment));
    MUSTER_ASSIGN_OR_RETURN(const auto point, lanes.start(made, lane, before));
    before = {point};
    return {};
  };
  const auto is_addend = [&](std::size_t k) {
    return facts_.tensor.ranks > 1 && facts_.parameters[facts_.trainable[k]].summed_over_tp;
  };
  for (const Segment summed : segments_where(segment, is_addend)) {
    MUSTER_ASSIGN_OR_RETURN(const muster_plan sum, plan(Step::kSumOverTp, summed));
    MUSTER_ASSIGN_OR_RETURN(const muster_point point, lanes.start(sum, MUSTER_LANE_REDUCE, before));
    before = {point};
  }
  Reduced points;
  const bool is_sharded = facts_.shard.ranks > 1;
  const bool is_replicated = facts_.replicate.ranks > 1;
  const bool is_summed = is_sharded || how.add_partial || !how.all_reduce;  // before the replicas
  if (is_summed) {
    MUSTER_RETURN_IF_ERROR(start(is_sharded ? Step::kScatter : Step::kTake, MUSTER_LANE_REDUCE));
    points.sent = before.front();
  }
  if (how.add_partial) MUSTER_RETURN_IF_ERROR(start(Step::kAddPartial, MUSTER_LANE_REDUCE));
  if (!how.all_reduce) {
    MUSTER_RETURN_IF_ERROR(start(Step::kKeepPartial, MUSTER_LANE_REDUCE));
    points.ready = before.front();
    return points;
  }
  // Whole gradients of all units are sent on one lane, so an all-reduce that reads them runs there.
  const muster_lane last = is_summed && is_replicated ? MUSTER_LANE_ALLREDUCE : MUSTER_LANE_REDUCE;
  if (is_replicated) MUSTER_RETURN_IF_ERROR(start(is_summed ? Step::kReduce : Step::kReduceWhole, last));
  if (facts_.keeps_sums) MUSTER_RETURN_IF_ERROR(start(how.add ? Step::kAdd : Step::kFinish, last));
  MUSTER_ASSIGN_OR_RETURN(points.ready, lanes.join(last, before));
  if (!is_summed) points.sent = points.ready;
  return points;
}

}  // namespace muster::client
