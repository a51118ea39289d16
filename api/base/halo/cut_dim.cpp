#include "api/base/halo/cut_dim.hpp"

#include <algorithm>
#include <utility>

namespace muster::halo {

CutDim::CutDim(Reach reach, std::vector<std::int64_t> starts, std::vector<std::int64_t> boundaries)
    : reach_(std::move(reach)), starts_(std::move(starts)), boundaries_(std::move(boundaries)) {
  for (std::size_t cell = 0; cell < cells(); ++cell)
    if (results(cell).length() > 0) computing_.push_back(cell);
}

Extent CutDim::held(std::size_t cell) const {
  const Extent mine = own(cell), read = needed(cell);
  if (read.length() == 0) return mine;
  if (mine.length() == 0) return read;
  return {std::min(mine.begin, read.begin), std::max(mine.end, read.end)};
}

Extent CutDim::interior(std::size_t cell) const {
  const Extent mine = own(cell), all = results(cell);
  const auto read = [&](std::int64_t result) { return reach_.reads({result, result + 1}); };
  const std::int64_t begin =
      first_where(all.begin, all.end, [&](std::int64_t o) { return read(o).begin >= mine.begin; });
  return {begin, first_where(begin, all.end, [&](std::int64_t o) { return read(o).end > mine.end; })};
}

bool CutDim::has_ghosts() const {
  return std::ranges::any_of(computing_, [&](std::size_t cell) { return !own(cell).has(needed(cell)); });
}

// An empty cell may begin at the item, but does not have it.
std::size_t CutDim::owner_of(std::int64_t item) const {
  return static_cast<std::size_t>(std::ranges::upper_bound(starts_, item) - starts_.begin()) - 1;
}

std::vector<CutDim::Run> CutDim::runs(std::size_t cell) const {
  const Extent read = needed(cell);
  const std::int64_t items = reach_.items();
  std::vector<Run> runs;
  for (std::int64_t at = read.begin; at < read.end;) {
    Run run{0, at, at, 1, false};
    const bool is_pad = at < 0 || at >= items;
    if (is_pad && reach_.pad() == Window::Pad::kReflect) {
      run.from = at < 0 ? -at : 2 * (items - 1) - at;
    } else if (is_pad && reach_.pad() == Window::Pad::kReplicate) {
      run.from = at < 0 ? 0 : items - 1;
    } else {
      if (is_pad) run.from = at < 0 ? at + items : at - items;  // circular
      const std::int64_t end = at < 0 ? std::min<std::int64_t>(read.end, 0) : read.end;
      run.length = std::min(end - at, starts_[owner_of(run.from) + 1] - run.from);
    }
    run.owner = owner_of(run.from);
    run.is_own = run.owner == cell && !is_pad;
    runs.push_back(run);
    at += run.length;
  }
  return runs;
}

// Where the cell's items are read.
std::vector<Extent> CutDim::images(std::size_t cell) const {
  const Extent mine = own(cell);
  const std::int64_t items = reach_.items(), last = items - 1;
  if (mine.length() == 0) return {};
  switch (reach_.pad()) {
    case Window::Pad::kZeros:
      return {mine};
    case Window::Pad::kCircular:
      return {{mine.begin - items, mine.end - items}, mine, {mine.begin + items, mine.end + items}};
    case Window::Pad::kReflect:
      return {{-mine.end + 1, -mine.begin + 1}, mine, {2 * last - mine.end + 1, 2 * last - mine.begin + 1}};
    case Window::Pad::kReplicate:
      return {mine.begin == 0 ? Extent{-Window::kNumberMax, mine.end} : mine,
              mine.end == items ? Extent{mine.begin, items + Window::kNumberMax} : mine};
  }
  return {};
}

std::vector<std::size_t> CutDim::readers(std::size_t cell) const {
  std::vector<std::size_t> readers;
  const auto count = static_cast<std::int64_t>(computing_.size());
  const auto read = [&](std::int64_t i) { return needed(computing_[static_cast<std::size_t>(i)]); };
  for (const Extent& image : images(cell)) {
    const std::int64_t first =
        first_where(0, count, [&](std::int64_t i) { return read(i).end > image.begin; });
    const std::int64_t end =
        first_where(first, count, [&](std::int64_t i) { return read(i).begin >= image.end; });
    for (std::int64_t i = first; i < end; ++i) readers.push_back(computing_[static_cast<std::size_t>(i)]);
  }
  std::ranges::sort(readers);
  readers.erase(std::unique(readers.begin(), readers.end()), readers.end());
  return readers;
}

}  // namespace muster::halo
