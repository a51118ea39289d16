#include "api/base/layout/split.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <span>
#include <utility>

namespace muster {
namespace {

constexpr std::size_t kNumbersShown = 8;

std::string list_text(std::span<const std::int64_t> numbers) {
  const std::size_t shown = std::min(numbers.size(), kNumbersShown);
  std::string text = fmt::format("{}", fmt::join(numbers.first(shown), ", "));
  if (shown < numbers.size()) text += fmt::format(", … {} more", numbers.size() - shown);
  return text;
}

// `what`: "given" or "fused".
Status check_lengths(const char* what, std::span<const std::int64_t> lengths, std::int64_t items) {
  std::int64_t left = items;
  for (std::size_t i = 0; i < lengths.size(); ++i) {
    if (lengths[i] < 0)
      return failure(Code::kBadArgument, "{} length {} is {}; it must be 0 or more", what, i, lengths[i]);
    if (lengths[i] > left)
      return failure(
          Code::kBadArgument,
          "the {} lengths add up to more than the {} items: length {}, which is {}, ends beyond them", what,
          items, i, lengths[i]);
    left -= lengths[i];
  }
  if (left != 0)
    return failure(Code::kBadArgument, "the {} lengths add up to {}, but there are {} items", what,
                   items - left, items);
  return Status();
}

std::int64_t start_balanced(std::int64_t items, std::int64_t ranks, std::int64_t rank) {
  return items / ranks * rank + std::min(rank, items % ranks);
}

}  // namespace

void append(std::vector<Split::Interval>& intervals, Split::Interval interval) {
  if (interval.length == 0) return;
  if (!intervals.empty() && intervals.back().offset + intervals.back().length == interval.offset)
    intervals.back().length += interval.length;
  else
    intervals.push_back(interval);
}

Split Split::ceil() {
  return Split(Rule::kCeil);
}

Split Split::balanced() {
  return Split(Rule::kBalanced);
}

Split Split::aligned(std::int64_t grain) {
  Split split(Rule::kAligned);
  split.grain_ = grain;
  return split;
}

Split Split::given(std::vector<std::int64_t> lengths) {
  Split split(Rule::kGiven);
  split.lengths_ = std::move(lengths);
  std::uint64_t start = 0;  // unsigned, so that lengths which check() will refuse may wrap
  for (const std::int64_t length : split.lengths_) {
    split.starts_.push_back(static_cast<std::int64_t>(start));
    start += static_cast<std::uint64_t>(length);
  }
  split.starts_.push_back(static_cast<std::int64_t>(start));
  return split;
}

Split Split::fused(Split rule, std::vector<std::int64_t> lengths) {
  ++rule.fusions_;
  rule.fused_ = std::move(lengths);
  return rule;
}

Status Split::check(std::int64_t items, std::int64_t ranks) const {
  if (items < 0) return failure(Code::kBadArgument, "{} items; there must be 0 or more", items);
  if (ranks < 1 || ranks > kRanksMax)
    return failure(Code::kBadArgument, "{} ranks; 1 to {} are possible", ranks, kRanksMax);
  if (rule_ == Rule::kAligned && grain_ < 1)
    return failure(Code::kBadArgument, "{}: the grain is {}; it must be 1 or more", name(), grain_);
  if (fusions_ == 0) {
    if (rule_ != Rule::kGiven) return Status();
    if (lengths_.size() != static_cast<std::size_t>(ranks))
      return failure(Code::kBadArgument, "{} given lengths for {} ranks; there must be one for each",
                     lengths_.size(), ranks);
    return check_lengths("given", lengths_, items);
  }
  if (fusions_ > 1 || rule_ == Rule::kGiven)
    return failure(Code::kBadArgument, "{}: each fused tensor is divided by ceil, balanced or aligned",
                   name());
  if (fused_.empty() || fused_.size() > kFusedMax)
    return failure(Code::kBadArgument, "{} fused lengths; 1 to {} are possible", fused_.size(), kFusedMax);
  return check_lengths("fused", fused_, items);
}

std::vector<Split::Interval> Split::intervals(std::int64_t items, std::int64_t ranks,
                                              std::int64_t rank) const {
  MUSTER_ASSERT(ranks >= 1 && rank >= 0 && rank < ranks);
  std::vector<Interval> mine;
  std::int64_t offset = 0;  // of the tensor, in the dim
  for (const std::int64_t tensor : fusions_ == 0 ? std::span(&items, 1) : std::span(std::as_const(fused_))) {
    const std::int64_t first = start(tensor, ranks, rank);
    append(mine, {offset + first, start(tensor, ranks, rank + 1) - first});
    offset += tensor;
  }
  MUSTER_ASSERT(offset == items);
  return mine;
}

// The first item of a rank, where the dim is one tensor. That of rank `ranks` is the number of items.
std::int64_t Split::start(std::int64_t items, std::int64_t ranks, std::int64_t rank) const {
  switch (rule_) {
    case Rule::kCeil: {
      const std::int64_t length = items / ranks + (items % ranks == 0 ? 0 : 1);
      const bool within = length == 0 || rank <= items / length;
      return within ? rank * length : items;
    }
    case Rule::kBalanced:
      return start_balanced(items, ranks, rank);
    case Rule::kAligned:
      return rank == ranks ? items : start_balanced(items / grain_, ranks, rank) * grain_;
    case Rule::kGiven:
      return starts_[static_cast<std::size_t>(rank)];
  }
  return items;
}

std::string Split::name() const {
  std::string rule;
  switch (rule_) {
    case Rule::kCeil:
      rule = "ceil";
      break;
    case Rule::kBalanced:
      rule = "balanced";
      break;
    case Rule::kAligned:
      rule = fmt::format("aligned({})", grain_);
      break;
    case Rule::kGiven:
      rule = fmt::format("given({})", list_text(lengths_));
      break;
  }
  return fusions_ == 0 ? rule : fmt::format("fused({}; {})", rule, list_text(fused_));
}

}  // namespace muster
