// Failures of lanes and calls of the C API, copied to the caller's struct.
#include "api/client/session/session.hpp"
#include "api/client/submit/refusal.hpp"

#include <algorithm>
#include <cstring>
#include <string>

using muster::Code;
using muster::failure;
using muster::Status;

namespace {

// Copies as much of the text as fits, cut between characters and ended by a zero.
template<std::size_t N>
void copy_text(char (&to)[N], const std::string& text) {
  std::size_t length = std::min(text.size(), N - 1);
  if (length < text.size())
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0u) == 0x80u) --length;
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

Status check(const muster_session* session, const muster_failure* given) {
  MUSTER_RETURN_IF_ERROR(muster::client::check_given({{"session", session}, {"failure", given}}));
  if (given->size != sizeof(muster_failure))
    return failure(Code::kBadArgument, "failure.size is {}; initialise it by MUSTER_FAILURE_INIT ({})",
                   given->size, sizeof(muster_failure));
  return session->in_its_process();
}

}  // namespace

extern "C" {

muster_status_t muster_lane_failure(muster_session* session, muster_lane lane, muster_failure* failure_out) {
  return muster::client::guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check(session, failure_out));
    if (!session->submission().timelines().has_lane(lane)) return muster::client::no_such_lane("lane", lane);
    MUSTER_ASSIGN_OR_RETURN(const auto why, session->completion().failure(lane));
    failure_out->status = static_cast<muster_status_t>(why.status);
    failure_out->culprit_rank = why.culprit_rank;
    failure_out->lane = lane;
    failure_out->failed_point = muster::shm::make_point(lane, why.failed_from);
    copy_text(failure_out->text, why.text);
    return {};
  });
}

muster_status_t muster_last_failure(muster_session* session, muster_failure* failure_out) {
  return muster::client::guarded([&]() -> Status {
    MUSTER_RETURN_IF_ERROR(check(session, failure_out));
    const auto& last = session->last_failure().latest();
    if (!last) return failure(Code::kNotFound, "no call of this session has failed by its group");
    failure_out->status = static_cast<muster_status_t>(last->status.code());
    failure_out->culprit_rank = last->status.culprit();
    failure_out->lane = last->lane;
    failure_out->failed_point = last->failed_point;
    copy_text(failure_out->text, last->status.message());
    return {};
  });
}
}
