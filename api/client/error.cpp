// Statuses and this thread's last error.
#include "api/base/dtype.hpp"
#include "api/client/session.hpp"

namespace {

thread_local std::string t_last_error;

}  // namespace

namespace muster::client {

muster_status_t report(const Status& status) noexcept {
  try {
    if (status.ok() || status.code() == Code::kPending) {
      t_last_error.clear();
    } else {
      t_last_error = status.message().empty() ? code_sentence(status.code()) : status.message();
    }
  } catch (...) {  // out of memory for the words: the number is still right
    t_last_error.clear();
  }
  return static_cast<muster_status_t>(status.code());
}

muster_status_t report(Code code, const char* what) noexcept {
  if (code == Code::kOk || code == Code::kPending) return static_cast<muster_status_t>(code);
  try {
    t_last_error = what;
  } catch (...) {
    t_last_error.clear();
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
  return t_last_error.c_str();
}
uint32_t muster_version(void) {
  return MUSTER_VERSION;
}

size_t muster_dtype_bytes(muster_dtype dtype) {
  return muster::dtype_bytes(dtype);
}
}
