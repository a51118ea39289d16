#include "api/client/units/unit_memory.hpp"

namespace muster::client {

using shard::Arrangement;
using Facts = shard::UnitSchedule::Facts;

UnitMemory::UnitMemory(muster_session* session, const muster_units_options& asked)
    : asked_(asked), buffers_(session) {
  asked_.name = nullptr;  // the caller's text need not live
}

Status UnitMemory::place(std::vector<Facts>& scheduled, std::vector<Unit::Places>& places) {
  MUSTER_RETURN_IF_ERROR(place_whole(scheduled, places));
  return place_gradients(scheduled, places);
}

Status UnitMemory::place_whole(std::vector<Facts>& scheduled, std::vector<Unit::Places>& places) {
  std::vector<Arrangement::Unit> arranged;
  for (const Facts& unit : scheduled)
    arranged.push_back({unit.name, unit.bytes, unit.module,
                        unit.root || unit.after_forward == shard::UnitSchedule::AfterForward::kKeep});
  for (const Facts& unit : scheduled)
    arranged.push_back({"a slice of " + unit.name, unit.slice_bytes, scheduled.back().module + 1, true});
  const auto arrangement = shard::arrange(arranged, asked_.prefetch, asked_.budget_bytes);
  if (!arrangement) {
    if (const auto unbounded = shard::arrange(arranged, asked_.prefetch, 0)) least_bytes_ = unbounded->least;
    return arrangement.error();
  }
  least_bytes_ = arrangement->least;
  place_bytes_ = arrangement->bytes;
  depth_ = static_cast<std::uint32_t>(arrangement->depth);
  MUSTER_ASSIGN_OR_RETURN(const muster_buffer buffer, buffers_.buffer(place_bytes_));
  for (std::size_t i = 0; i < scheduled.size(); ++i) {
    scheduled[i].offset = arrangement->offsets[i];
    places[i].whole = {buffer, arrangement->offsets[i]};
    places[i].slice = {buffer, arrangement->offsets[scheduled.size() + i]};
  }
  return {};
}

Status UnitMemory::place_gradients(std::vector<Facts>& scheduled, std::vector<Unit::Places>& places) {
  std::vector<Arrangement::Unit> arranged;
  for (const Facts& unit : scheduled)
    arranged.push_back({unit.name, unit.gradient_bytes, unit.module,
                        unit.root || (asked_.flags & MUSTER_UNITS_KEEP_GRADIENTS) != 0});
  MUSTER_ASSIGN_OR_RETURN(const Arrangement arrangement, shard::arrange(arranged, asked_.reduce_inputs, 0));
  gradient_bytes_ = arrangement.bytes;
  MUSTER_ASSIGN_OR_RETURN(const muster_buffer buffer, buffers_.buffer(gradient_bytes_));
  for (std::size_t i = 0; i < scheduled.size(); ++i) {
    scheduled[i].gradient_offset = arrangement.offsets[i];
    places[i].gradients = {buffer, arrangement.offsets[i]};
  }
  return {};
}

void UnitMemory::add_to(muster_units_info& info) const {
  info.prefetch = depth_;
  info.budget_bytes = asked_.budget_bytes;
  info.least_bytes = least_bytes_;
  info.place_bytes = place_bytes_;
  info.gradient_bytes = gradient_bytes_;
}

}  // namespace muster::client
