// Tensor parallelism of the C API: it computes, and starts nothing.
#include "api/base/shard/tensor_parallel.hpp"
#include "api/client/error.hpp"
#include "api/client/layout_handle.hpp"
#include "api/client/session/mesh_axes.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <muster/tensor_parallel.h>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Layout;
using Axis = muster::Layout::Axis;
using muster::Placement;
using muster::Result;
using muster::Status;
using muster::client::guarded;

namespace {

Result<std::span<const muster_tp_rule>> rules_of(const muster_tp_rule* rules, std::size_t count,
                                                 const char* name) {
  if (name == nullptr) return fail(Code::kBadArgument, "name must not be NULL");
  if (rules == nullptr) return muster::shard::llama_rules();
  for (std::size_t i = 0; i < count; ++i) {
    if (rules[i].pattern == nullptr) return fail(Code::kBadArgument, "rules[{}].pattern must not be NULL", i);
    if (rules[i].style < MUSTER_TP_REPLICATE || rules[i].style > MUSTER_TP_VOCABULARY)
      return fail(Code::kBadArgument, "rules[{}].style is {}, which is no muster_tp_style", i,
                  rules[i].style);
  }
  return std::span(rules, count);
}

Result<Axis> axis_of(muster_session* session, const char* dim, Placement placement) {
  std::int32_t ranks = 0;
  const muster_status_t code = muster_mesh_coords(session, dim, nullptr, &ranks);
  if (code != MUSTER_OK) return fail(static_cast<Code>(code), "{}", muster_last_error());
  return Axis{dim, ranks, std::move(placement)};
}

}  // namespace

extern "C" {

muster_status_t muster_tp_style_of(const muster_tp_rule* rules, size_t count, const char* name,
                                   muster_tp_style* style, size_t* rule) {
  return guarded([&]() -> Status {
    if (style == nullptr) return failure(Code::kBadArgument, "style must not be NULL");
    MUSTER_ASSIGN_OR_RETURN(const auto known, rules_of(rules, count, name));
    const std::optional<std::size_t> found = muster::shard::rule_of(known, name);
    *style = found ? known[*found].style : MUSTER_TP_REPLICATE;
    if (rule != nullptr) *rule = found.value_or(SIZE_MAX);
    return {};
  });
}

muster_status_t muster_tp_layout(muster_session* session, const muster_tp_rule* rules, size_t count,
                                 const char* name, const int64_t* shape, int32_t dims, const char* shard,
                                 const char* tp, muster_layout** layout) {
  if (layout != nullptr) *layout = nullptr;
  return guarded([&]() -> Status {
    if (layout == nullptr || (shape == nullptr && dims > 0))
      return muster::client::check_given({{"layout", layout}, {"shape", shape}});
    if (dims < 0 || dims > MUSTER_TENSOR_DIMS_MAX)
      return failure(Code::kBadArgument, "dims is {}; 0 to {} are possible", dims, MUSTER_TENSOR_DIMS_MAX);
    MUSTER_ASSIGN_OR_RETURN(const auto known, rules_of(rules, count, name));
    const std::optional<std::size_t> found = muster::shard::rule_of(known, name);
    std::vector<Axis> axes;
    if (shard != nullptr) {
      MUSTER_ASSIGN_OR_RETURN(Axis axis, axis_of(session, shard, Placement::shard(0)));
      axes.push_back(std::move(axis));
    }
    if (tp != nullptr) {
      Placement placement = Placement::replicate();
      if (found) {
        auto cut = muster::shard::tp_placement(known[*found], static_cast<std::size_t>(dims));
        if (!cut) return failure(cut.error().code(), "parameter \"{}\": {}", name, cut.error().message());
        placement = *std::move(cut);
      }
      MUSTER_ASSIGN_OR_RETURN(Axis axis, axis_of(session, tp, std::move(placement)));
      axes.push_back(std::move(axis));
    }
    const muster::client::NamedAxis dims_of_mesh[] = {{shard, true}, {tp, true}};
    if (shard != nullptr && tp != nullptr)
      MUSTER_RETURN_IF_ERROR(muster::client::check_apart(session, dims_of_mesh));
    auto made = Layout::make(std::span(shape, static_cast<std::size_t>(dims)), std::move(axes));
    if (!made) return failure(made.error().code(), "parameter \"{}\": {}", name, made.error().message());
    *layout = new muster_layout{*std::move(made)};
    return {};
  });
}

muster_status_t muster_tp_collective(muster_tp_style style, muster_tp_moment moment,
                                     int32_t sequence_parallel, muster_op* op) {
  return guarded([&]() -> Status {
    if (op == nullptr) return failure(Code::kBadArgument, "op must not be NULL");
    if (style < MUSTER_TP_REPLICATE || style > MUSTER_TP_VOCABULARY)
      return failure(Code::kBadArgument, "style is {}, which is none of MUSTER_TP_REPLICATE..VOCABULARY",
                     style);
    if (moment < MUSTER_TP_INPUT || moment > MUSTER_TP_INPUT_GRADIENT)
      return failure(Code::kBadArgument, "moment is {}, which is none of MUSTER_TP_INPUT..INPUT_GRADIENT",
                     moment);
    *op = muster::shard::tp_collective(style, moment, sequence_parallel != 0);
    return {};
  });
}
}
