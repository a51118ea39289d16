#include "scheduler/run/lane_table.hpp"

#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster::scheduler {

LaneTable::LaneTable() {
  for (muster_lane c = 0; c < MUSTER_LANE_CLASSES; ++c) add(lane_class_name(c));
  for (muster_lane c = 0; c < MUSTER_LANE_CLASSES; ++c) add(fmt::format("{} (unnamed)", lane_class_name(c)));
}

LaneId LaneTable::add(std::string label) {
  const LaneId id(static_cast<std::uint32_t>(labels_.size()));
  keys_.push_back(XXH3_64bits(label.data(), label.size()));
  labels_.push_back(std::move(label));
  return id;
}

Result<LaneId> LaneTable::id_of(muster_lane lane_class, std::string_view name) {
  std::pair key(lane_class, std::string(name));
  if (const auto found = named_.find(key); found != named_.end()) return found->second;
  if (named_.size() == kLaneNamesMax)
    return fail(Code::kNoResource,
                "the job has used {} names of lanes, and each is kept for its reports; use a name again",
                kLaneNamesMax);
  const LaneId id = add(fmt::format("{}/{}", lane_class_name(lane_class), name));
  named_.emplace(std::move(key), id);
  return id;
}

}  // namespace muster::scheduler
