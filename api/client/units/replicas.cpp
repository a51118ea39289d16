#include "api/client/units/replicas.hpp"

#include "api/base/dtype.hpp"
#include "api/client/units/mesh_dims.hpp"

#include <algorithm>
#include <utility>

namespace muster::client {

namespace {

// Whether all ranks of the layout have equally many elements of it.
bool is_even(const Layout& layout) {
  for (std::int64_t rank = 1; rank < layout.ranks(); ++rank)
    if (layout.local_elements(rank) != layout.local_elements(0)) return false;
  return true;
}

bool is_even(const UnitFacts& unit) {
  return std::ranges::all_of(unit.parameters, [](const UnitFacts::Parameter& p) {
    return is_even(p.places.layout()) && is_even(p.places.whole());
  });
}

// The pieces of the parameters that the dim does not cut, in runs. In a run all ranks of the dim have equal
// pieces at equal distances. The beginning of a run is each rank's own: the dim may cut parameters before it
// unevenly, and the gaps that align wider elements may differ then.
Result<UnitFacts::Pieces> runs_of(muster_session* session, const UnitFacts& unit, const char* dim) {
  const bool even = is_even(unit);
  UnitFacts::Pieces runs(1);
  const UnitFacts::Parameter* before = nullptr;
  for (const std::size_t i : unit.order) {
    const UnitFacts::Parameter& p = unit.parameters[i];
    MUSTER_ASSIGN_OR_RETURN(const auto dims, dims_that_cut(session, p));
    const bool is_cut = has(dims, dim);
    const bool is_wider = before != nullptr && dtype_bytes(before->dtype) != dtype_bytes(p.dtype);
    if (!even && (is_cut || is_wider) && !runs.back().empty()) runs.emplace_back();
    before = &p;
    if (is_cut) continue;
    const std::vector<muster_piece> shard = unit.shard_pieces(p);
    runs.back().insert(runs.back().end(), shard.begin(), shard.end());
  }
  if (runs.back().empty()) runs.pop_back();
  return runs;
}

}  // namespace

// A broadcast has no pieces. So it is an all-gather in place, of which the first member alone gives anything.
Status ReplicaBroadcast::plan(const Unit& unit, const char* dim) {
  const UnitFacts& facts = unit.facts();
  std::int32_t ranks = 1;
  muster_group group = MUSTER_GROUP_SELF;
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(plans_.session(), dim, nullptr, &ranks)));
  if (ranks == 1) return {};
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_group(plans_.session(), dim, &group)));
  MUSTER_ASSIGN_OR_RETURN(UnitFacts::Pieces runs, runs_of(plans_.session(), facts, dim));
  for (std::vector<muster_piece>& run : runs) {
    const std::uint64_t first = run.front().offset;
    for (muster_piece& piece : run) piece.offset -= first;
    UnitFacts::Pieces pieces(static_cast<std::size_t>(ranks));
    pieces.front() = std::move(run);
    const Blocks blocks(pieces);
    muster_collective c = MUSTER_COLLECTIVE_INIT;
    c.op = MUSTER_ALL_GATHER;
    c.group = group;
    c.dtype = MUSTER_U8;
    c.source = c.target = {unit.shards(), first};
    c.target_blocks = blocks.get();
    c.site = facts.name.c_str();
    MUSTER_ASSIGN_OR_RETURN(const muster_plan made, plans_.plan(c));
    steps_.push_back(made);
  }
  return {};
}

Status ReplicaBroadcast::prepare(std::span<const std::unique_ptr<Unit>> units) {
  for (const auto& unit : units)  // along all dims alike, so that all ranks are refused alike
    for (const UnitFacts::Parameter& parameter : unit->facts().parameters)
      if (auto dims = dims_that_cut(plans_.session(), parameter); !dims) return std::move(dims).error();
  for (const char* dim : kStageDims)
    for (const auto& unit : units) MUSTER_RETURN_IF_ERROR(plan(*unit, dim));
  is_prepared_ = true;
  return {};
}

Result<muster_point> ReplicaBroadcast::start(SetLanes& lanes, std::span<const std::unique_ptr<Unit>> units,
                                             bool shared, muster_point after) {
  if (shared && !is_prepared_) {
    MUSTER_RETURN_IF_ERROR(withdraw());  // the plans that a failed call has left
    MUSTER_RETURN_IF_ERROR(prepare(units));
  }
  muster_point done = after;
  for (const muster_plan step : steps_) {
    MUSTER_ASSIGN_OR_RETURN(done, lanes.start(step, MUSTER_LANE_GATHER, std::span(&after, 1)));
  }
  return done;
}

Status ReplicaBroadcast::withdraw() {
  steps_.clear();
  is_prepared_ = false;
  return plans_.release();
}

}  // namespace muster::client
