// Statuses, this thread's last error, and a session's last failure.
#include "api/base/dtype.hpp"
#include "api/client/session.hpp"

#include <algorithm>
#include <cstring>

namespace {

thread_local std::string t_text;
thread_local const char* t_last_error = "";

bool is_failure(muster::Code code) {
  return code != muster::Code::kOk && code != muster::Code::kPending;
}

// As much of it as fits, ended at a character's border and by a zero.
template<std::size_t N>
void copy_text(char (&to)[N], const std::string& text) {
  std::size_t length = std::min(text.size(), N - 1);
  if (length < text.size())
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xc0u) == 0x80u) --length;
  std::memcpy(to, text.data(), length);
  to[length] = '\0';
}

}  // namespace

namespace muster::client {

muster_status_t report(const Status& status) noexcept {
  const Code code = status.code();
  if (!is_failure(code)) return static_cast<muster_status_t>(code);
  return report(code, status.message().empty() ? code_sentence(code) : status.message().c_str());
}

muster_status_t report(Code code, const char* what) noexcept {
  if (!is_failure(code)) return static_cast<muster_status_t>(code);
  try {
    t_text = what;
    t_last_error = t_text.c_str();
  } catch (...) {  // out of memory for the words: the number is still right, and so is its sentence
    t_last_error = code_sentence(code);
  }
  return static_cast<muster_status_t>(code);
}

}  // namespace muster::client

extern "C" {

const char* muster_status_name(muster_status_t status) {
  return muster::code_name(static_cast<muster::Code>(status));
}
const char* muster_status_sentence(muster_status_t status) {
  return muster::code_sentence(static_cast<muster::Code>(status));
}
const char* muster_last_error(void) {
  return t_last_error;
}
uint32_t muster_version(void) {
  return MUSTER_VERSION;
}

muster_status_t muster_last_failure(muster_session* session, muster_failure* failure_out) {
  return muster::client::guarded([&]() -> muster::Status {
    using muster::Code;
    if (session == nullptr || failure_out == nullptr || failure_out->size != sizeof(muster_failure))
      return muster::failure(Code::kBadArgument,
                             "session or failure (initialise it by MUSTER_FAILURE_INIT) is not right");
    MUSTER_RETURN_IF_ERROR(session->in_its_process());
    const auto& last = session->last_failure();
    if (!last) return muster::failure(Code::kNotFound, "no call of this session has failed by its group");
    failure_out->status = static_cast<muster_status_t>(last->status.code());
    failure_out->culprit_rank = last->status.culprit();
    failure_out->lane = last->lane;
    failure_out->failed_point = last->failed_point;
    copy_text(failure_out->text, last->status.message());
    return {};
  });
}

size_t muster_dtype_bytes(muster_dtype dtype) {
  return muster::dtype_bytes(dtype);
}
}
