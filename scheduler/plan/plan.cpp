#include "scheduler/plan/plan.hpp"

namespace muster::scheduler {

const char* Plan::label() const {
  if (const auto* k = kernel()) return k->kernel->name;
  return op_name(collective()->collective.op);
}

const char* lane_name(std::uint32_t lane) noexcept {
  switch (lane) {
    case MUSTER_LANE_COMPUTE:
      return "compute";
    case MUSTER_LANE_HALO:
      return "halo";
    case MUSTER_LANE_SMALL:
      return "small";
    case MUSTER_LANE_GATHER:
      return "gather";
    case MUSTER_LANE_REDUCE:
      return "reduce";
    case MUSTER_LANE_ALLREDUCE:
      return "allreduce";
    case MUSTER_LANE_COPY:
      return "copy";
    default:
      return "unknown_lane";
  }
}

}  // namespace muster::scheduler
