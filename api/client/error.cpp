#include "api/client/error.hpp"

#include "api/base/dtype.hpp"
#include "api/base/utf8.hpp"
#include "api/shm/message.hpp"

#include <string>

namespace {

thread_local std::string t_text;
thread_local const char* t_last_error = "";

bool is_failure(muster::Code code) {
  return code != muster::Code::kOk && code != muster::Code::kPending;
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
    // Programs print the text, and names in it may come from other users.
    if (shm::has_control(t_text)) t_text = printable(t_text, Lines::kSeveral);
    t_last_error = t_text.c_str();
  } catch (...) {  // no memory for the text: number and sentence are still right
    t_last_error = code_sentence(code);
  }
  return static_cast<muster_status_t>(code);
}

Status check_given(std::initializer_list<std::pair<const char*, const void*>> arguments) {
  for (const auto& [name, value] : arguments)
    if (value == nullptr) return failure(Code::kBadArgument, "{} must not be NULL", name);
  return {};
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

size_t muster_dtype_bytes(muster_dtype dtype) {
  return muster::dtype_bytes(dtype);
}
}
