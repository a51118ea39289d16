#include "api/base/layout/redistribution.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

namespace muster {
namespace {

// Items of a dim that two ranks have, and where they are in the array of each.
struct Stretch {
  Split::Interval items;
  std::int64_t taken = 0;
  std::int64_t put = 0;
};

std::int64_t end_of(const Split::Interval& interval) {
  return interval.offset + interval.length;
}

bool meet(std::span<const Split::Interval> a, std::span<const Split::Interval> b) {
  for (std::size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (end_of(a[i]) <= b[j].offset)
      ++i;
    else if (end_of(b[j]) <= a[i].offset)
      ++j;
    else
      return true;
  }
  return false;
}

std::vector<Stretch> stretches(std::span<const Split::Interval> from, std::span<const Split::Interval> to) {
  std::vector<Stretch> found;
  std::int64_t from_before = 0;  // items of the intervals before i
  std::int64_t to_before = 0;    // and before j
  for (std::size_t i = 0, j = 0; i < from.size() && j < to.size();) {
    const std::int64_t first = std::max(from[i].offset, to[j].offset);
    const std::int64_t last = std::min(end_of(from[i]), end_of(to[j]));
    if (first < last)
      found.push_back(
          {{first, last - first}, from_before + first - from[i].offset, to_before + first - to[j].offset});
    if (end_of(from[i]) <= end_of(to[j]))
      from_before += from[i++].length;
    else
      to_before += to[j++].length;
  }
  return found;
}

// The axis of `layout` that is `axis`.
std::optional<std::size_t> same_axis(const Layout& layout, const Layout& other, std::size_t axis) {
  for (std::size_t i = 0; i < layout.axes().size(); ++i)
    if (layout.axes()[i].ranks == other.axes()[axis].ranks && layout.stride(i) == other.stride(axis))
      return i;
  return std::nullopt;
}

bool is_partial(const Layout::Axis& axis) {
  return axis.ranks > 1 && axis.placement.kind == Placement::Kind::kPartial;
}

// Whether it does not matter which of two reductions comes first.
bool commute(muster_redop a, muster_redop b) {
  const auto adds = [](muster_redop redop) { return redop == MUSTER_SUM || redop == MUSTER_AVG; };
  return a == b || (adds(a) && adds(b));
}

}  // namespace

Result<Redistribution> Redistribution::make(Layout from, Layout to, Ranks ranks) {
  const std::span from_shape(from.shape().data(), from.dims());
  const std::span to_shape(to.shape().data(), to.dims());
  if (!std::equal(from_shape.begin(), from_shape.end(), to_shape.begin(), to_shape.end()))
    return fail(Code::kBadArgument, "one layout is of a tensor of shape {}, the other of one of shape {}",
                to_text(from_shape), to_text(to_shape));
  if (ranks == Ranks::kSame && from.ranks() != to.ranks())
    return fail(Code::kBadArgument, "one layout has {} ranks, the other {}", from.ranks(), to.ranks());
  Redistribution redistribution(std::move(from), std::move(to), ranks);
  MUSTER_RETURN_IF_ERROR(redistribution.decide_reductions());
  MUSTER_RETURN_IF_ERROR(redistribution.decide_scale());
  return redistribution;
}

Redistribution::Redistribution(Layout from, Layout to, Ranks ranks)
    : from_(std::move(from)), to_(std::move(to)), reduced_(from_), ranks_(ranks) {}

Status Redistribution::decide_reductions() {
  std::vector<Layout::Axis> axes(from_.axes().begin(), from_.axes().end());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].placement.kind != Placement::Kind::kPartial || stays_partial(i)) continue;
    if (axes[i].ranks > 1) reductions_.push_back({i, axes[i].placement.redop});
    axes[i].placement = Placement::replicate();
  }
  std::reverse(reductions_.begin(), reductions_.end());  // the innermost is reduced first
  MUSTER_ASSIGN_OR_RETURN(
      reduced_, Layout::make(std::span(from_.shape().data(), from_.dims()), std::move(axes), from_.order()));
  return Status();
}

// `reductions_` has the axes outside this one that are reduced.
bool Redistribution::stays_partial(std::size_t axis) const {
  if (ranks_ == Ranks::kOther || !is_partial(from_.axes()[axis])) return false;
  const muster_redop redop = from_.axes()[axis].placement.redop;
  const std::optional<std::size_t> kept = same_axis(to_, from_, axis);
  if (!kept || !is_partial(to_.axes()[*kept]) || to_.axes()[*kept].placement.redop != redop) return false;
  for (const AxisReduction& outer : reductions_)
    if (!commute(outer.redop, redop)) return false;
  // A product of scaled factors is not the scaled product.
  for (std::size_t i = 0; redop == MUSTER_PROD && i < *kept; ++i)
    if (is_partial(to_.axes()[i]) && to_.axes()[i].placement.redop == MUSTER_SUM) return false;
  return true;
}

Status Redistribution::decide_scale() {
  double divisor = 1;
  for (std::size_t i = 0; i < to_.axes().size(); ++i) {
    if (!is_partial(to_.axes()[i])) continue;
    const std::optional<std::size_t> before =
        ranks_ == Ranks::kSame ? same_axis(reduced_, to_, i) : std::nullopt;
    if (before && is_partial(reduced_.axes()[*before])) continue;
    if (before && reduced_.axes()[*before].placement.kind == Placement::Kind::kShard)
      return failure(Code::kBadArgument, "{} is sharded and would become partial; make it replicate first",
                     from_.axis_text(*before));
    const muster_redop redop = to_.axes()[i].placement.redop;
    if (redop != MUSTER_SUM && redop != MUSTER_AVG)
      return failure(Code::kBadArgument, "{} would become partial by {}; only sum and avg are possible",
                     to_.axis_text(i), redop_name(redop));
    if (redop == MUSTER_SUM) divisor *= static_cast<double>(to_.axes()[i].ranks);
  }
  scale_ = 1 / divisor;
  return Status();
}

bool Redistribution::moves() const {
  if (ranks_ == Ranks::kOther) return Box{from_.dims(), {}, from_.shape()}.elements() > 0;
  for (std::int64_t rank = 0; rank < from_.ranks(); ++rank) {
    if (from_.local_elements(rank) == 0 && to_.local_elements(rank) == 0) continue;
    for (std::size_t dim = 0; dim < from_.dims(); ++dim)
      if (!std::ranges::equal(from_.intervals(rank, dim), to_.intervals(rank, dim))) return true;
  }
  return false;
}

Result<std::vector<Redistribution::Overlap>> Redistribution::sends(std::int64_t rank) const {
  std::vector<Overlap> overlaps;
  const std::vector<std::int64_t> replicas = reduced_.replicas(rank);
  const std::int64_t first = replicas.front();
  std::size_t turn = 0;
  for (std::int64_t to = 0; to < to_.ranks(); ++to) {
    if (!can_give(first, to)) continue;
    const std::int64_t giver = has_already(first, to) ? to : replicas[turn++ % replicas.size()];
    if (giver == rank) MUSTER_RETURN_IF_ERROR(add(giver, to, overlaps));
  }
  return overlaps;
}

Result<std::vector<Redistribution::Overlap>> Redistribution::receives(std::int64_t rank) const {
  std::vector<Overlap> overlaps;
  for (std::int64_t first = 0; first < reduced_.ranks(); ++first) {
    if (reduced_.first_replica(first) != first || !can_give(first, rank)) continue;
    std::int64_t giver = rank;
    if (!has_already(first, rank)) {
      const std::vector<std::int64_t> replicas = reduced_.replicas(first);
      giver = replicas.size() == 1 ? first : replicas[turn(first, rank) % replicas.size()];
    }
    MUSTER_RETURN_IF_ERROR(add(giver, rank, overlaps));
  }
  std::stable_sort(overlaps.begin(), overlaps.end(),
                   [](const Overlap& a, const Overlap& b) { return a.from < b.from; });
  return overlaps;
}

// Whether rank `to` needs something of what the replicas of `from` have.
bool Redistribution::can_give(std::int64_t from, std::int64_t to) const {
  for (std::size_t axis = 0; axis < reduced_.axes().size(); ++axis)
    if (is_partial(reduced_.axes()[axis]) && reduced_.coordinate(from, axis) != reduced_.coordinate(to, axis))
      return false;  // another addend
  for (std::size_t dim = 0; dim < reduced_.dims(); ++dim)
    if (!meet(reduced_.intervals(from, dim), to_.intervals(to, dim))) return false;
  return true;
}

// Whether rank `to` of the new layout is a replica of rank `first` of the old one.
bool Redistribution::has_already(std::int64_t first, std::int64_t to) const {
  return ranks_ == Ranks::kSame && reduced_.first_replica(to) == first;
}

// How many ranks before `to` get something from the replicas of `first`, and do not have it already.
std::size_t Redistribution::turn(std::int64_t first, std::int64_t to) const {
  std::size_t before = 0;
  for (std::int64_t other = 0; other < to; ++other)
    if (can_give(first, other) && !has_already(first, other)) ++before;
  return before;
}

// Adds all boxes that `from` gives to `to`, in row-major order.
Status Redistribution::add(std::int64_t from, std::int64_t to, std::vector<Overlap>& overlaps) const {
  std::vector<Overlap> boxes{{from, to, Box{from_.dims(), {}, {}}, {}, {}}};
  for (std::size_t dim = 0; dim < from_.dims(); ++dim) {
    const std::vector<Stretch> common = stretches(reduced_.intervals(from, dim), to_.intervals(to, dim));
    if (boxes.size() * common.size() > kOverlapsMax - overlaps.size())
      return failure(Code::kNoResource, "rank {} gives rank {} too many boxes: a list has at most {}", from,
                     to, kOverlapsMax);
    std::vector<Overlap> divided;
    for (Overlap box : boxes) {
      for (const Stretch& stretch : common) {
        box.box.offset[dim] = stretch.items.offset;
        box.box.length[dim] = stretch.items.length;
        box.taken[dim] = stretch.taken;
        box.put[dim] = stretch.put;
        divided.push_back(box);
      }
    }
    boxes = std::move(divided);
  }
  overlaps.insert(overlaps.end(), boxes.begin(), boxes.end());
  return Status();
}

// ---- how many boxes ----------------------------------------------------------------------------

// At most kOverlapsMax + 1.
std::uint64_t Redistribution::boxes_between(std::int64_t from, std::int64_t to) const {
  std::uint64_t boxes = 1;
  for (std::size_t dim = 0; dim < from_.dims(); ++dim)
    boxes = std::min(boxes * stretches(reduced_.intervals(from, dim), to_.intervals(to, dim)).size(),
                     kOverlapsMax + 1);
  return boxes;
}

// Whether no two ranks have more than one box in common.
bool Redistribution::has_simple_parts() const {
  for (const Layout* layout : {&reduced_, &to_})
    for (std::int64_t rank = 0; rank < layout->ranks(); ++rank)
      for (std::size_t dim = 0; dim < layout->dims(); ++dim)
        if (layout->intervals(rank, dim).size() > 1) return false;
  return true;
}

std::optional<std::int64_t> Redistribution::crowded(std::uint64_t most) const {
  const auto ranks = static_cast<std::uint64_t>(std::max(reduced_.ranks(), to_.ranks()));
  if (2 * ranks <= most && has_simple_parts()) return std::nullopt;
  std::vector<std::uint64_t> boxes(ranks);
  const auto add_boxes = [&](std::int64_t rank, std::uint64_t more) {
    return (boxes[static_cast<std::size_t>(rank)] += more) > most;
  };
  for (std::int64_t first = 0; first < reduced_.ranks(); ++first) {
    if (reduced_.first_replica(first) != first) continue;
    const std::vector<std::int64_t> replicas = reduced_.replicas(first);
    std::size_t turn = 0;
    for (std::int64_t to = 0; to < to_.ranks(); ++to) {
      if (!can_give(first, to)) continue;
      const std::int64_t giver = has_already(first, to) ? to : replicas[turn++ % replicas.size()];
      const std::uint64_t more = boxes_between(giver, to);
      for (const std::int64_t rank : {giver, to})
        if (add_boxes(rank, more)) return rank;
    }
  }
  return std::nullopt;
}

// ---- one reduction -----------------------------------------------------------------------------

bool Redistribution::is_part_reduction() const {
  if (ranks_ != Ranks::kSame || reductions_.empty() || scale_ != 1) return false;
  for (const AxisReduction& reduction : reductions_)
    if (reduction.redop != reductions_[0].redop) return false;
  for (std::int64_t rank = 0; rank < to_.ranks(); ++rank)
    if (!keeps_a_part(rank)) return false;
  return true;
}

bool Redistribution::keeps_a_part(std::int64_t rank) const {
  if (to_.local_elements(rank) == 0) return true;
  for (std::size_t dim = 0; dim < to_.dims(); ++dim) {
    std::int64_t kept = 0;
    for (const Stretch& stretch : stretches(from_.intervals(rank, dim), to_.intervals(rank, dim)))
      kept += stretch.items.length;
    if (kept != to_.local_shape(rank)[dim]) return false;
  }
  return true;
}

// Those whose addends are reduced together with the rank's, itself among them, in rising order.
std::vector<std::int64_t> Redistribution::peers(std::int64_t rank) const {
  std::vector<std::int64_t> found{rank};
  for (const AxisReduction& reduction : reductions_) {
    std::vector<std::int64_t> more;
    for (const std::int64_t one : found)
      for (std::int64_t i = 0; i < from_.axes()[reduction.axis].ranks; ++i)
        more.push_back(one + (i - from_.coordinate(one, reduction.axis)) * from_.stride(reduction.axis));
    found = std::move(more);
  }
  std::sort(found.begin(), found.end());
  return found;
}

Result<Redistribution::PartReduction> Redistribution::part_reduction(std::int64_t rank) const {
  std::map<std::int64_t, std::uint64_t> counts;  // by the first of the ranks that reduce together
  for (std::int64_t other = 0; other < to_.ranks(); ++other)
    if ((counts[peers(other).front()] += block_count(other)) > kPiecesMax)
      return fail(
          Code::kNoResource,
          "what rank {} and those before it keep of a reduction are more than {} pieces, of which one "
          "operation has no more; redistribute the tensor in parts",
          other, kPiecesMax);
  PartReduction reduction{reductions_[0].redop, peers(rank), {}};
  for (const std::int64_t peer : reduction.ranks) reduction.blocks.push_back(blocks(peer));
  return reduction;
}

// How many outer dims the rank's new array cuts its old one in: from there on it has all.
std::size_t Redistribution::cut_dims(std::int64_t rank) const {
  std::size_t dims = to_.dims();
  const Index before = from_.local_shape(rank);
  const Index after = to_.local_shape(rank);
  while (dims > 0 && before[dims - 1] == after[dims - 1]) --dims;
  return dims;
}

// How many blocks there are, if none of one row follows upon the row before.
std::uint64_t Redistribution::block_count(std::int64_t rank) const {
  if (to_.local_elements(rank) == 0) return 0;
  const std::size_t dims = cut_dims(rank);
  if (dims == 0) return 1;
  std::uint64_t count = stretches(from_.intervals(rank, dims - 1), to_.intervals(rank, dims - 1)).size();
  for (std::size_t dim = 0; dim + 1 < dims; ++dim)
    count = std::min<std::uint64_t>(count * static_cast<std::uint64_t>(to_.local_shape(rank)[dim]),
                                    kPiecesMax + 1);
  return count;
}

std::vector<Block> Redistribution::blocks(std::int64_t rank) const {
  if (to_.local_elements(rank) == 0) return {};
  const Index before = from_.local_shape(rank);
  const std::size_t dims = cut_dims(rank);
  std::uint64_t inner = 1;  // elements of an item of the dim that is cut innermost
  for (std::size_t dim = dims; dim < to_.dims(); ++dim) inner *= static_cast<std::uint64_t>(before[dim]);
  std::vector<Block> found{{0, 1}};  // in items of the dims so far
  for (std::size_t dim = 0; dim < dims; ++dim) {
    std::vector<Block> finer;
    for (const Block& block : found)
      for (std::uint64_t i = block.offset; i < block.offset + block.count; ++i)
        for (const Stretch& stretch : stretches(from_.intervals(rank, dim), to_.intervals(rank, dim))) {
          const Block next{
              i * static_cast<std::uint64_t>(before[dim]) + static_cast<std::uint64_t>(stretch.taken),
              static_cast<std::uint64_t>(stretch.items.length)};
          if (!finer.empty() && finer.back().offset + finer.back().count == next.offset)
            finer.back().count += next.count;
          else
            finer.push_back(next);
        }
    found = std::move(finer);
  }
  for (Block& block : found) block = {block.offset * inner, block.count * inner};
  return found;
}

}  // namespace muster
