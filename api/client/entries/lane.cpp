// Lanes of the C API.
#include "api/client/session/session.hpp"

using muster::Code;
using muster::failure;
using muster::Status;
namespace shm = muster::shm;

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
    if (!submission.timelines().has_lane(lane)) return submission.not_reset(Code::kBadArgument, lane);
    if (!submission.is_decided(lane))
      return failure(Code::kBusy, "lane {} has starts that are not finished; wait for its latest point",
                     lane);
    if (const Code code = submission.reset(lane); code != Code::kOk) return submission.not_reset(code, lane);
    shm::LaneGrant request;
    request.lane = lane;
    const auto done =
        session->connection().ask<shm::Plain>(request, shm::MessageKind::kLaneClose, shm::MessageKind::kDone);
    if (!done) return done.error();
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
    if (code != Code::kOk) return submission.not_reset(code, lane);
    if (has_failed) session->check()->fail(submission.timelines().latest(lane));
    return {};
  });
}
}
