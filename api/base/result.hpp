// Result<T>: a value or a Status, and two macros that pass a failure up.
#pragma once

#include "api/base/status.hpp"

#include <utility>

#include <tl/expected.hpp>

namespace muster {

template<class T>
using Result = tl::expected<T, Status>;

// The failure side of a Result, with a formatted message: return fail(Code::kBadArgument, "…", …);
template<class... Args>
tl::unexpected<Status> fail(Code code, fmt::format_string<Args...> format, Args&&... args) {
  return tl::unexpected<Status>(Status(code, fmt::format(format, std::forward<Args>(args)...)));
}

inline tl::unexpected<Status> fail(Status status) {
  return tl::unexpected<Status>(std::move(status));
}

}  // namespace muster

#define MUSTER_CONCAT_INNER(a, b) a##b
#define MUSTER_CONCAT(a, b) MUSTER_CONCAT_INNER(a, b)

// If `expression` is not OK, returns its Status from the enclosing function, which returns Status or Result.
#define MUSTER_RETURN_IF_ERROR(expression)                          \
  do {                                                              \
    if (auto muster_status = (expression); !muster_status.ok())     \
      return ::muster::detail::propagate(std::move(muster_status)); \
  } while (false)

// Declares or assigns `target` from a Result, or returns its Status from the enclosing function.
#define MUSTER_ASSIGN_OR_RETURN(target, expression) \
  MUSTER_ASSIGN_OR_RETURN_INNER(MUSTER_CONCAT(muster_result_, __LINE__), target, expression)
#define MUSTER_ASSIGN_OR_RETURN_INNER(result, target, expression)             \
  auto result = (expression);                                                 \
  if (!result) return ::muster::detail::propagate(std::move(result).error()); \
  target = *std::move(result)

namespace muster::detail {

// Converts to Status or to the failure side of any Result, whichever the enclosing function returns.
//
// Owns    the Status, until it is converted.
// Thread  a value; any.
// Bound   lives for one return statement.
// Fails   never.
class propagate {
 public:
  explicit propagate(Status status) : status_(std::move(status)) {}
  // A return statement converts it. NOLINTBEGIN(google-explicit-constructor)
  operator Status() && { return std::move(status_); }
  template<class T>
  operator Result<T>() && {
    return tl::unexpected<Status>(std::move(status_));
  }
  // NOLINTEND(google-explicit-constructor)

 private:
  Status status_;
};

}  // namespace muster::detail
