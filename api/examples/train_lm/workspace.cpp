#include "api/examples/train_lm/workspace.hpp"

#include <algorithm>
#include <numeric>

namespace train_lm {

Workspace::Workspace(Runtime& runtime, std::span<const UnitLayout> units, muster_dtype dtype) {
  std::int64_t gathered = 0;
  const std::int64_t bytes = static_cast<std::int64_t>(muster_dtype_bytes(dtype));
  const bool sharded = units.front().shards > 1;
  for (const UnitLayout& unit : units) {
    gathered = std::max(gathered, unit.gathered_elements);
    unit_bytes_.push_back(unit.gathered_elements * bytes);
  }
  if (!sharded) {  // parameters are always whole
    peak_bytes_ = std::accumulate(unit_bytes_.begin(), unit_bytes_.end(), std::int64_t{0});
    return;
  }
  for (Place& place : places_)
    place.gathered = runtime.allocate(static_cast<std::uint64_t>(gathered * bytes));
  for (Outbox& outbox : outboxes_)
    outbox.gradients = runtime.allocate(static_cast<std::uint64_t>(gathered) * sizeof(float));
}

bool Workspace::take(std::size_t unit) {
  Place& place = this->place(unit);
  if (place.unit == unit) return false;
  place.unit = unit;
  std::int64_t held = 0;
  for (const Place& each : places_)
    if (each.unit != kNobody) held += unit_bytes_[each.unit];
  peak_bytes_ = std::max(peak_bytes_, held);
  return true;
}

void Workspace::begin() {
  for (Place& place : places_) place.unit = kNobody;
  for (Outbox& outbox : outboxes_) outbox.sent = {};
}

}  // namespace train_lm
