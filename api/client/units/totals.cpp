#include "api/client/units/norm.hpp"

#include "api/base/dtype.hpp"

#include <algorithm>
#include <array>
#include <string_view>

#include <muster/kernels.h>

namespace muster::client {
namespace {

constexpr std::array kWeightDims{"dp_shard", "cp", "tp"};

// Whether ranks that differ along a basic dim also differ along an axis.
bool covers(std::string_view axis, std::string_view dim) {
  if (axis == dim || axis == "weight") return true;
  return (axis == "dp_shard_cp" || axis == "fsdp") && dim != "tp";
}

bool is_known(std::string_view axis) {
  return std::ranges::any_of(kWeightDims, [&](const char* dim) { return covers(axis, dim); });
}

}  // namespace

Result<bool> GradientNorm::counts(const UnitParameter& parameter) const {
  const auto axes = parameter.places.layout().axes();
  for (const MeshAxis& axis : axes)
    if (axis.placement.kind == PlacementKind::kShard && axis.ranks > 1 && !is_known(axis.name))
      return fail(Code::kUnsupported,
                  "parameter \"{}\" is sharded over \"{}\"; sums of squares are known for dp_shard, cp, tp "
                  "and what is "
                  "made of them",
                  parameter.name, axis.name);
  for (const char* dim : kWeightDims) {
    const bool is_cut = std::ranges::any_of(axes, [&](const MeshAxis& axis) {
      return axis.placement.kind == PlacementKind::kShard && covers(axis.name, dim);
    });
    std::int32_t coordinate = 0;
    MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_coords(session(), dim, &coordinate, nullptr)));
    if (!is_cut && coordinate != 0) return false;
  }
  return true;
}

Status GradientNorm::reduce_over(const char* dim, const muster_tensor& out) {
  muster_group group = MUSTER_GROUP_SELF;
  MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_group(session(), dim, &group)));
  if (group == MUSTER_GROUP_SELF) return {};
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_ALL_REDUCE;
  c.group = group;
  c.dtype = MUSTER_F64;
  c.redop = MUSTER_SUM;
  c.source = c.target = {out.buffer, out.offset_bytes};
  c.count = 1;
  c.site = "gradient norm";
  const auto plan = plans_.plan(c);
  if (!plan) return plan.error();
  steps_.push_back(*plan);
  return {};
}

Status GradientNorm::prepare(std::span<const std::unique_ptr<Unit>> units, const muster_tensor& out,
                             bool shared) {
  MUSTER_RETURN_IF_ERROR(withdraw());
  auto cleared = plans_.plan(muster_fill(out, 0.0));
  if (!cleared) return std::move(cleared).error();
  steps_.push_back(*cleared);
  for (const auto& unit : units) {
    const UnitFacts& facts = unit->facts();
    std::vector<muster_tensor> runs;  // of gradients, end to end
    for (const std::size_t i : facts.trainable) {
      const UnitParameter& p = facts.parameters[i];
      bool does_count = true;
      if (shared) {
        auto counted = counts(p);
        if (!counted) return std::move(counted).error();
        does_count = *counted;
      }
      if (!does_count || p.places.shard_elements() == 0) continue;
      const std::uint64_t at = p.gradient_at * dtype_bytes(facts.dtype);
      if (!runs.empty() && runs.back().offset_bytes + static_cast<std::uint64_t>(runs.back().size[0]) *
                                                          dtype_bytes(facts.dtype) ==
                               at)
        runs.back().size[0] += p.places.shard_elements();
      else
        runs.push_back(
            muster_view1(unit->reduction().gradients(), at, facts.dtype, p.places.shard_elements()));
    }
    for (const muster_tensor& run : runs) {
      auto plan = plans_.plan(muster_sum_squares(run, out, 1.0, 1));
      if (!plan) return std::move(plan).error();
      steps_.push_back(*plan);
    }
  }
  if (shared) {
    MUSTER_RETURN_IF_ERROR(reduce_over("weight", out));
    MUSTER_RETURN_IF_ERROR(reduce_over("pp", out));
  }
  out_ = out;
  return {};
}

Result<muster_point> GradientNorm::start(UnitLanes& lanes, std::span<const std::unique_ptr<Unit>> units,
                                         const muster_tensor& out, bool shared,
                                         std::span<const muster_point> waits) {
  if (steps_.empty() || out.buffer != out_.buffer || out.offset_bytes != out_.offset_bytes)
    MUSTER_RETURN_IF_ERROR(prepare(units, out, shared));
  std::vector<muster_point> before(waits.begin(), waits.end());
  for (const muster_plan step : steps_) {
    MUSTER_ASSIGN_OR_RETURN(const muster_point point, lanes.start(step, UnitLane::kReduce, before));
    before = {point};
  }
  return before.front();
}

Status GradientNorm::withdraw() {
  steps_.clear();
  return plans_.release();
}

}  // namespace muster::client
