// Points and timelines of the C API.
#include "api/client/checked/checked_calls.hpp"
#include "api/client/session/session.hpp"
#include "api/client/submit/refusal.hpp"

using muster::Code;
using muster::failure;
using muster::Status;

namespace {

// Runs `checked` for a session in check mode, and says why there is none.
template<class Checked>
Status elsewhere(const muster_session& session, Checked checked) {
  MUSTER_RETURN_IF_ERROR(session.in_its_process());
  return checked();
}

}  // namespace

extern "C" {

muster_status_t muster_point_wait(muster_session* session, muster_point point, int64_t timeout_ns) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
    if (!session->is_here())
      return elsewhere(
          *session, [&] { return muster::client::checked_wait(*session, point, muster::Nanos(timeout_ns)); });
    return session->waiting().wait(point, muster::Nanos(timeout_ns));
  });
}

muster_status_t muster_point_wait_any(muster_session* session, const muster_point* points, size_t count,
                                      int64_t timeout_ns, size_t* index) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr || index == nullptr || (points == nullptr && count > 0))
      return muster::client::check_given({{"session", session}, {"points", points}, {"index", index}});
    if (!session->is_here())
      return elsewhere(*session, [&] {
        return muster::client::checked_wait_any(*session, {points, count}, muster::Nanos(timeout_ns), index);
      });
    return session->waiting().wait_any({points, count}, muster::Nanos(timeout_ns), index);
  });
}

muster_status_t muster_point_test(muster_session* session, muster_point point) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr) return failure(Code::kBadArgument, "session must not be NULL");
    if (!session->is_here())
      return elsewhere(*session, [&] { return muster::client::checked_test(*session, point); });
    return session->waiting().test(point);
  });
}

int muster_event_fd(muster_session* session) {
  int descriptor = -1;
  const muster_status_t status = muster::client::with_session(session, [&]() -> Status {
    MUSTER_ASSIGN_OR_RETURN(descriptor, session->waiting().event_descriptor());
    return {};
  });
  return status == MUSTER_OK ? descriptor : -1;
}

muster_status_t muster_timeline_create(muster_session* session, uint32_t* timeline) {
  return muster::client::guarded([&]() -> Status {
    if (session == nullptr || timeline == nullptr)
      return muster::client::check_given({{"session", session}, {"timeline", timeline}});
    MUSTER_RETURN_IF_ERROR(session->in_its_process());
    MUSTER_ASSIGN_OR_RETURN(*timeline, session->submission().create_timeline());
    return {};
  });
}

muster_point muster_timeline_point(uint32_t timeline, uint64_t value) {
  return muster::shm::make_point(timeline, value);
}

muster_status_t muster_timeline_signal(muster_session* session, uint32_t timeline, uint64_t value) {
  return muster::client::with_session(session, [&]() -> Status {
    if (session->check() != nullptr) return muster::client::checked_signal(*session, timeline, value);
    muster::client::Submission& submission = session->submission();
    const Code code = submission.signal(timeline, value);
    if (code == Code::kBadArgument)
      return muster::client::cannot_signal(timeline, value, submission.timelines());
    return code == Code::kOk ? Status() : submission.not_pushed(code);
  });
}
}
