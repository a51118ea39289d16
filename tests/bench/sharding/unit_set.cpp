#include "tests/bench/sharding/unit_set.hpp"

namespace muster::bench::sharding {
namespace {

using LayoutHandle = std::unique_ptr<muster_layout, muster_status_t (*)(muster_layout*)>;

constexpr const char* kShard = "dp_shard_cp";

LayoutHandle layout_of(Rank& rank, const Shape& shape) {
  muster_layout_options said = MUSTER_LAYOUT_OPTIONS_INIT;
  said.dims = shape.columns == 0 ? 1 : 2;
  said.shape[0] = shape.rows;
  said.shape[1] = shape.columns;
  said.axis_count = 1;
  said.axes[0].name = kShard;
  said.axes[0].placement = MUSTER_SHARD;
  muster_layout* layout = nullptr;
  must(muster_layout_create(rank.session(), &said, &layout), "muster_layout_create");
  return {layout, &muster_layout_destroy};
}

}  // namespace

UnitSet::UnitSet(Rank& rank, const char* name) : rank_(rank) {
  muster_units_options options = MUSTER_UNITS_OPTIONS_INIT;
  options.name = name;
  muster_units* units = nullptr;
  must(muster_units_create(rank.session(), &options, &units), "muster_units_create");
  units_.reset(units);
}

muster_unit UnitSet::add(const std::string& name, const std::vector<Shape>& shapes,
                         muster_unit_options options) {
  std::vector<LayoutHandle> layouts;
  std::vector<muster_parameter> parameters;
  for (const Shape& shape : shapes) {
    layouts.push_back(layout_of(rank_, shape));
    parameters.push_back({shape.name.c_str(), layouts.back().get(), MUSTER_F32, 0});
  }
  options.name = name.c_str();
  options.shard = kShard;
  options.parameters = parameters.data();
  options.parameter_count = static_cast<std::uint32_t>(parameters.size());
  muster_unit unit = 0;
  must(muster_unit_create(units_.get(), &options, &unit), "muster_unit_create");
  return unit;
}

muster_tensor UnitSet::view(muster_unit unit, std::uint32_t parameter, std::int32_t which) const {
  muster_tensor tensor{};
  must(muster_unit_tensor(units_.get(), unit, parameter, which, &tensor), "muster_unit_tensor");
  return tensor;
}

muster_units_info UnitSet::info() const {
  muster_units_info info = MUSTER_UNITS_INFO_INIT;
  must(muster_units_query(units_.get(), &info), "muster_units_query");
  return info;
}

muster_point UnitSet::begin_forward(muster_unit unit) {
  muster_point ready = MUSTER_POINT_NONE;
  must(muster_unit_forward_begin(units_.get(), unit, &ready), "muster_unit_forward_begin");
  return ready;
}

void UnitSet::end_forward(muster_unit unit, std::uint32_t part, muster_point after) {
  must(muster_unit_forward_end(units_.get(), unit, part, after), "muster_unit_forward_end");
}

std::array<muster_point, 2> UnitSet::begin_backward(muster_unit unit) {
  std::array<muster_point, 2> ready{};
  must(muster_unit_backward_begin(units_.get(), unit, ready.data()), "muster_unit_backward_begin");
  return ready;
}

void UnitSet::end_backward(muster_unit unit, std::uint32_t part, muster_point after) {
  must(muster_unit_backward_end(units_.get(), unit, part, after, 0, nullptr), "muster_unit_backward_end");
}

std::array<muster_point, 2> UnitSet::end_step(muster_point after) {
  std::array<muster_point, 2> done{};
  must(muster_step_end(units_.get(), after, done.data()), "muster_step_end");
  return done;
}

}  // namespace muster::bench::sharding
