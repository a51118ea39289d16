// LaneTable: the lanes of a job by class and name. Lanes of equal class and name meet, whatever their numbers
// in their sessions, so they have one LaneId.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/result.hpp"

#include <muster/muster.h>

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace muster::scheduler {

constexpr const char* lane_class_name(muster_lane lane_class) noexcept {  // "gather"
  constexpr const char* kNames[MUSTER_LANE_CLASSES] = {"compute", "halo",      "small", "gather",
                                                       "reduce",  "allreduce", "copy"};
  return lane_class < MUSTER_LANE_CLASSES ? kNames[lane_class] : "unknown";
}

// Owns    the names. An id keeps its name for the life of the job, so that records of the past stay true.
// Thread  the one that holds the engine lock.
// Bound   kLaneNamesMax names.
// Fails   id_of with kNoResource when they are used up.
class LaneTable {
 public:
  static constexpr std::size_t kLaneNamesMax = 4096;

  LaneTable();

  // The lane of a class with which every session begins.
  static LaneId first_of(muster_lane lane_class) { return LaneId(lane_class); }
  // The lanes of a class that have no name; they do not meet.
  static LaneId unnamed_of(muster_lane lane_class) { return LaneId(MUSTER_LANE_CLASSES + lane_class); }
  Result<LaneId> id_of(muster_lane lane_class, std::string_view name);

  // Whether collectives match there.
  static bool meets(LaneId lane) {
    return lane.value < MUSTER_LANE_CLASSES || lane.value >= 2 * MUSTER_LANE_CLASSES;
  }
  // A number of class and name, the same on all nodes.
  std::uint64_t key(LaneId lane) const { return keys_[lane.value]; }
  // For reports: "gather", "gather/evaluation", "compute (unnamed)".
  const std::string& label(LaneId lane) const { return labels_[lane.value]; }

 private:
  LaneId add(std::string label);

  std::vector<std::string> labels_;  // by id
  std::vector<std::uint64_t> keys_;  // by id
  std::map<std::pair<muster_lane, std::string>, LaneId, std::less<>> named_;
};

}  // namespace muster::scheduler
