// This thread's last error, and the guard around every C function.
#pragma once

#include "api/base/status.hpp"

#include <muster/muster.h>

#include <exception>
#include <initializer_list>
#include <new>
#include <stdexcept>
#include <utility>

namespace muster::client {

// Keeps a failure as this thread's last error and returns its number. Success and PENDING leave the last
// error as it is.
muster_status_t report(const Status& status) noexcept;
// As above, for a code with a fixed text.
muster_status_t report(Code code, const char* what) noexcept;
// For `body` of guarded(): a number that was reported already, or a success.
inline muster_status_t report(muster_status_t status) noexcept {
  return status;
}

// BAD_ARGUMENT for the first argument that is NULL: "session must not be NULL".
Status check_given(std::initializer_list<std::pair<const char*, const void*>> arguments);

// Runs `body`, which returns a Status or a number that it has reported itself. Catches all exceptions, so
// that none leaves the C API; without an exception that is free. Missing memory is NO_RESOURCE; any other
// exception is our own defect.
template<class F>
muster_status_t guarded(F&& body) noexcept {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(Code::kNoResource,
                  "this process has no memory left for the call; free some and call again");
  } catch (const std::length_error&) {
    return report(Code::kNoResource, "the call needs more memory than a process can have; ask for less");
  } catch (const std::exception& error) {
    return report(Code::kInternal, error.what());
  }
}

}  // namespace muster::client
