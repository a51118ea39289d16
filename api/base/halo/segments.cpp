#include "api/base/halo/halo.hpp"

#include <algorithm>
#include <utility>

namespace muster::halo {
namespace {

using Run = CutDim::Run;

// One of the runs that a segment is the product of, and the cell that gets it.
struct Crossing {
  std::size_t reader;
  Run run;
  bool stays;                                // it is no ghost along this dim
  std::int64_t giver_begins, reader_begins;  // the arrays that they hold
};
using Crossings = std::vector<Crossing>;

// Visits one choice of each list, in row-major order.
template<class Visit>
void each_choice(std::span<const Crossings> lists, Visit visit) {
  if (std::ranges::any_of(lists, &Crossings::empty)) return;
  std::vector<std::size_t> at(lists.size(), 0);
  std::vector<const Crossing*> chosen(lists.size());
  for (std::size_t d = lists.size();;) {
    for (std::size_t i = 0; i < lists.size(); ++i) chosen[i] = &lists[i][at[i]];
    visit(std::span<const Crossing* const>(chosen));
    for (d = lists.size(); d > 0 && ++at[d - 1] == lists[d - 1].size(); --d) at[d - 1] = 0;
    if (d == 0) return;
  }
}

Crossings staying(const Cell& cell, const Extent& extent) {
  if (extent.length() == 0) return {};
  const Run run{cell.number, extent.begin, extent.begin, extent.length(), true};
  return {{cell.number, run, true, cell.held.begin, cell.held.begin}};
}

Crossings read_by(const Cell& cell) {
  Crossings all;
  for (const Run& run : cell.dim->runs(cell.number))
    all.push_back({cell.number, run, run.is_own, cell.dim->held(run.owner).begin, cell.held.begin});
  return all;
}

Crossings read_of(const Cell& cell) {
  Crossings all;
  for (const std::size_t reader : cell.dim->readers(cell.number))
    for (const Run& run : cell.dim->runs(reader))
      if (run.owner == cell.number)
        all.push_back({reader, run, run.is_own, cell.held.begin, cell.dim->held(reader).begin});
  return all;
}

// One of the two lists of a rank.
//
// Owns    nothing.
// Thread  a value; any.
// Bound   kSegmentsMax segments.
// Fails   add() with kNoResource.
class SegmentList {
 public:
  SegmentList(std::int64_t rank, std::span<const Cell> cells, bool gets, std::vector<Segment>& segments)
      : rank_(rank), cells_(cells), gets_(gets), segments_(segments) {}

  Status add_direct() {
    std::vector<Crossings> lists;
    for (const Cell& cell : cells_)
      lists.push_back(cell.dim != nullptr ? crossings(cell) : staying(cell, cell.own));
    return add(lists, 0);
  }
  // Dims before `along` have their ghosts already, and both ends hold the same of them.
  Status add_along(std::size_t along, std::size_t phase) {
    std::vector<Crossings> lists;
    for (std::size_t d = 0; d < cells_.size(); ++d)
      lists.push_back(d == along ? crossings(cells_[d])
                                 : staying(cells_[d], d < along ? cells_[d].needed : cells_[d].own));
    return add(lists, phase);
  }

 private:
  Crossings crossings(const Cell& cell) const { return gets_ ? read_by(cell) : read_of(cell); }

  Status add(std::span<const Crossings> lists, std::size_t phase) {
    bool fits = true;
    each_choice(lists, [&](std::span<const Crossing* const> chosen) {
      if (std::ranges::all_of(chosen, [](const Crossing* c) { return c->stays; })) return;
      fits = fits && segments_.size() < kSegmentsMax;
      if (fits) segments_.push_back(segment(chosen, phase));
    });
    return fits ? Status()
                : failure(Code::kNoResource, "rank {} has more than {} segments", rank_, kSegmentsMax);
  }

  Segment segment(std::span<const Crossing* const> chosen, std::size_t phase) const {
    Segment made;
    made.phase = phase;
    made.peer = rank_;
    for (std::size_t d = 0; d < chosen.size(); ++d) {
      const Crossing& c = *chosen[d];
      const std::size_t other = gets_ ? c.run.owner : c.reader;
      made.peer +=
          (static_cast<std::int64_t>(other) - static_cast<std::int64_t>(cells_[d].number)) * cells_[d].stride;
      made.from[d] = c.run.from - c.giver_begins;
      made.at[d] = c.run.at - c.reader_begins;
      made.length[d] = c.run.length;
    }
    return made;
  }

  std::int64_t rank_;
  std::span<const Cell> cells_;
  bool gets_;
  std::vector<Segment>& segments_;
};

// Sorts them, and counts the elements that go to, or come from, other ranks.
std::int64_t finish(std::int64_t rank, std::size_t dims, std::vector<Segment>& segments) {
  std::ranges::stable_sort(segments, {}, [](const Segment& s) { return std::pair(s.phase, s.peer); });
  std::int64_t before = 0, travelling = 0;
  for (Segment& segment : segments) {
    const std::int64_t elements = segment.elements(dims);
    segment.inbox = before;
    before += elements;
    if (segment.peer != rank) travelling += elements;
  }
  return travelling;
}

}  // namespace

std::int64_t Segment::elements(std::size_t dims) const {
  std::int64_t product = 1;
  for (std::size_t d = 0; d < dims; ++d) product *= length[d];
  return product;
}

Status add_segments(std::int64_t rank, std::span<const Cell> cells, Corners corners, Halo& halo) {
  for (const bool gets : {true, false}) {
    SegmentList list(rank, cells, gets, gets ? halo.gets : halo.gives);
    std::size_t phase = 0;
    if (corners == Corners::kDirect) {
      MUSTER_RETURN_IF_ERROR(list.add_direct());
      continue;
    }
    for (std::size_t along = 0; along < cells.size(); ++along)
      if (cells[along].dim != nullptr) MUSTER_RETURN_IF_ERROR(list.add_along(along, phase++));
  }
  halo.elements_in = finish(rank, cells.size(), halo.gets);
  halo.elements_out = finish(rank, cells.size(), halo.gives);
  return {};
}

}  // namespace muster::halo
