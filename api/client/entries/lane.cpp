// Lanes of the C API.
#include "api/client/session/session.hpp"
#include "api/client/submit/refusal.hpp"

using muster::Code;
using muster::failure;
using muster::Status;
using muster::client::no_such_lane;
namespace shm = muster::shm;

namespace {

// Says in words why a lane was not reset.
Status not_reset(muster_session& session, Code code, muster_lane lane) {
  if (!session.submission().timelines().has_lane(lane)) return no_such_lane("lane", lane);
  if (const std::uint32_t starts = session.completion().quarantined(lane); code == Code::kBusy && starts > 0)
    return failure(
        Code::kBusy,
        "{} start{} of lane {} failed at the deadline, but the network or another device may still "
        "touch its memory; reset the lane again later",
        starts, starts == 1 ? "" : "s", lane);
  return session.submission().not_pushed(code);
}

}  // namespace

extern "C" {

muster_status_t muster_lane_create(muster_session* session, muster_lane lane_class, const char* name,
                                   muster_lane* lane) {
  return muster::client::with_session(session, [&]() -> Status {
    if (lane == nullptr) return failure(Code::kBadArgument, "lane must not be NULL");
    shm::LaneOpen request;
    request.lane_class = lane_class;
    if (name != nullptr) MUSTER_RETURN_IF_ERROR(shm::set_text(request.name, name, "a lane's name"));
    MUSTER_ASSIGN_OR_RETURN(const auto grant,
                            session->connection().ask<shm::LaneGrant>(request, shm::MessageKind::kLaneOpen,
                                                                      shm::MessageKind::kLaneGrant));
    if (grant.lane < MUSTER_LANE_CLASSES || grant.lane >= shm::kLanesMax)
      return failure(Code::kProtocol, "the daemon opened lane {}, which cannot be", grant.lane);
    session->submission().open_lane(grant.lane, request.name[0] == '\0');
    if (session->check() != nullptr) session->check()->name_lane(grant.lane, request.name);
    *lane = grant.lane;
    return {};
  });
}

muster_status_t muster_lane_destroy(muster_session* session, muster_lane lane) {
  return muster::client::with_session(session, [&]() -> Status {
    muster::client::Submission& submission = session->submission();
    if (lane < MUSTER_LANE_CLASSES)
      return failure(Code::kBadArgument, "lane {} is one of those with which a session begins; it stays",
                     lane);
    if (!submission.timelines().has_lane(lane)) return no_such_lane("lane", lane);
    const std::uint64_t started = submission.timelines().started(lane);
    if (session->completion().decided(lane, started) != started)
      return failure(Code::kBusy, "lane {} has starts that are not finished; wait for its latest point",
                     lane);
    if (const Code code = submission.reset(lane); code != Code::kOk) return not_reset(*session, code, lane);
    shm::LaneGrant request;
    request.lane = lane;
    MUSTER_RETURN_IF_ERROR(session->connection().tell(request, shm::MessageKind::kLaneClose));
    submission.close_lane(lane);
    if (session->check() != nullptr) return session->check()->reach(submission.timelines().latest(lane));
    return {};
  });
}

muster_status_t muster_lane_reset(muster_session* session, muster_lane lane) {
  return muster::client::with_session(session, [&]() -> Status {
    muster::client::Submission& submission = session->submission();
    const bool has_failed = session->check() != nullptr && session->completion().failure(lane).has_value();
    const Code code = submission.reset(lane);
    if (code != Code::kOk) return not_reset(*session, code, lane);
    if (has_failed) session->check()->fail(submission.timelines().latest(lane));
    return {};
  });
}
}
