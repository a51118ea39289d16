#include "api/client/units/totals.hpp"

#include "api/base/dtype.hpp"
#include "api/client/units/mesh_dims.hpp"

#include <utility>

#include <muster/kernels.h>

namespace muster::client {
namespace {

muster_tensor number(muster_range out, std::uint64_t index) {
  return muster_view1(out.buffer, out.offset_bytes + index * sizeof(double), MUSTER_F64, 1);
}

}  // namespace

// All ranks of the stage find the same, for they have agreed on its units.
Status GradientTotal::find_summed(std::span<const std::unique_ptr<Unit>> units) {
  summed_ = {"dp_shard", "cp", "tp"};
  for (const auto& unit : units)
    for (const std::size_t i : unit->facts().trainable) {
      MUSTER_ASSIGN_OR_RETURN(const auto cut, dims_that_cut(session(), unit->facts().parameters[i]));
      for (const std::string_view dim : cut)
        if (!has(summed_, dim)) summed_.push_back(dim);
    }
  return {};
}

Result<bool> GradientTotal::counts(const UnitFacts::Parameter& parameter) const {
  MUSTER_ASSIGN_OR_RETURN(const auto cut, dims_that_cut(session(), parameter));
  for (const char* dim : kStageDims) {
    std::int32_t coordinate = 0;
    MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(session(), dim, &coordinate, nullptr)));
    if (coordinate != 0 && has(summed_, dim) && !has(cut, dim)) return false;
  }
  return true;
}

Result<std::vector<GradientTotal::Run>> GradientTotal::runs(const Unit& unit, bool shared) const {
  const UnitFacts& facts = unit.facts();
  const std::uint64_t bytes = dtype_bytes(facts.dtype);
  std::vector<Run> runs;  // gradients lie end to end
  for (const std::size_t i : facts.trainable) {
    const UnitFacts::Parameter& p = facts.parameters[i];
    bool does_count = true;
    if (shared) {
      MUSTER_ASSIGN_OR_RETURN(does_count, counts(p));
    }
    if (p.places.shard_elements() == 0) continue;
    if (!runs.empty() && runs.back().counts == does_count)
      runs.back().gradients.size[0] += p.places.shard_elements();
    else
      runs.push_back({muster_view1(unit.reduction().gradients(), p.gradient_at * bytes, facts.dtype,
                                   p.places.shard_elements()),
                      does_count});
  }
  return runs;
}

Status GradientTotal::add(const muster_kernel& kernel) {
  MUSTER_ASSIGN_OR_RETURN(const muster_plan plan, plans_.plan(kernel));
  steps_.push_back(plan);
  return {};
}

Status GradientTotal::reduce_over(const char* dim) {
  muster_group group = MUSTER_GROUP_SELF;
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_group(session(), dim, &group)));
  if (group == MUSTER_GROUP_SELF) return {};
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_ALL_REDUCE;
  c.group = group;
  c.dtype = MUSTER_F64;
  c.redop = MUSTER_SUM;
  c.source = c.target = out_;
  c.count = static_cast<std::uint64_t>(numbers());
  c.site = figure_ == Figure::kSquareSum ? "gradient norm" : "zero count";
  MUSTER_ASSIGN_OR_RETURN(const muster_plan plan, plans_.plan(c));
  steps_.push_back(plan);
  return {};
}

Status GradientTotal::prepare(std::span<const std::unique_ptr<Unit>> units, const muster_tensor& out,
                              bool shared) {
  MUSTER_RETURN_IF_ERROR(withdraw());
  out_ = {out.buffer, out.offset_bytes};
  MUSTER_RETURN_IF_ERROR(add(muster_fill(number(out_, 0), 0.0)));
  std::int64_t elements = 0;
  if (shared) MUSTER_RETURN_IF_ERROR(find_summed(units));
  for (const auto& unit : units) {
    MUSTER_ASSIGN_OR_RETURN(const std::vector<Run> all, runs(*unit, shared));
    for (const Run& run : all) {
      if (figure_ == Figure::kSquareSum) {
        const double scale = run.counts ? 1.0 : 0.0;  // nothing, but a NaN if the sum is not finite
        MUSTER_RETURN_IF_ERROR(add(muster_sum_squares(run.gradients, number(out_, 0), scale, 1)));
      } else if (run.counts) {
        elements += run.gradients.size[0];
        MUSTER_RETURN_IF_ERROR(add(muster_count_zeros(run.gradients, number(out_, 0), 1.0, 1)));
      }
    }
  }
  if (figure_ == Figure::kZeroCount)
    MUSTER_RETURN_IF_ERROR(add(muster_fill(number(out_, 1), static_cast<double>(elements))));
  if (!shared) return {};
  for (const std::string_view dim : kDims)
    if (dim == "weight" || dim == "pp" || has(summed_, dim)) MUSTER_RETURN_IF_ERROR(reduce_over(dim.data()));
  return {};
}

Result<muster_point> GradientTotal::start(SetLanes& lanes, std::span<const std::unique_ptr<Unit>> units,
                                          const muster_tensor& out, bool shared,
                                          std::span<const muster_point> waits) {
  if (steps_.empty() || out.buffer != out_.buffer || out.offset_bytes != out_.offset_bytes)
    if (Status prepared = prepare(units, out, shared); !prepared.ok()) {
      steps_.clear();
      return fail(std::move(prepared));
    }
  std::vector<muster_point> before(waits.begin(), waits.end());
  for (const muster_plan step : steps_) {
    MUSTER_ASSIGN_OR_RETURN(const muster_point point, lanes.start(step, MUSTER_LANE_REDUCE, before));
    before = {point};
  }
  return before.front();
}

Status GradientTotal::withdraw() {
  steps_.clear();
  return plans_.release();
}

}  // namespace muster::client
