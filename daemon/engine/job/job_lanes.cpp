#include "daemon/engine/job/job_lanes.hpp"

#include <mutex>

namespace muster::engine {

Result<std::uint32_t> JobLanes::open(const Session& session, std::uint32_t lane_class,
                                     std::string_view name) {
  if (lane_class >= MUSTER_LANE_CLASSES)
    return fail(Code::kBadArgument,
                "lane class {} does not exist: classes are MUSTER_LANE_COMPUTE..COPY ({}..{})", lane_class,
                static_cast<int>(MUSTER_LANE_COMPUTE), static_cast<int>(MUSTER_LANE_COPY));
  const std::lock_guard lock(lock_);
  const Rank rank = session.options().rank;
  MUSTER_ASSIGN_OR_RETURN(const std::uint32_t lane, graph_.open_lanes().open(rank, lane_class, name));
  if (Status opened = executor_.open_lane(rank, lane, lane_class); !opened.ok()) {
    MUSTER_RETURN_IF_ERROR(graph_.open_lanes().close(rank, lane));
    return fail(std::move(opened));
  }
  metrics_.expect_lane(rank, lane);
  return lane;
}

// Starts and resets that the client has pushed before this call are taken out of the ring first.
Status JobLanes::close(Session& session, std::uint32_t lane) {
  const std::lock_guard lock(lock_);
  const Rank rank = session.options().rank;
  slots_.drain_all(rank);
  if (session.intake().has_backlog())
    return failure(Code::kBusy, "starts before this call wait for room on their lane; wait for their points");
  MUSTER_RETURN_IF_ERROR(graph_.open_lanes().close(rank, lane));
  executor_.close_lane(rank, lane);
  return {};
}

Result<shm::Descriptor> JobLanes::open_events(Session& session) {
  const std::lock_guard lock(lock_);
  return session.publication().open_events();
}

}  // namespace muster::engine
