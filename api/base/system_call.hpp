// Why the system has refused a call, in words that lead to its cause: a limit, or a rule that forbids it.
#pragma once

#include <string>
#include <string_view>

namespace muster {

// `call`: "eventfd", or what it was for; `remedy` is for the case that a limit was reached or memory ran out.
// "eventfd: Too many open files; REMEDY", but of a sandbox: "eventfd: Operation not permitted; the call is
// forbidden here, ...".
std::string refused_call(std::string_view call, int error, std::string_view remedy);

// Remedies where descriptors or processes ran out.
inline constexpr std::string_view kRaiseOpenFiles = "raise the open-files limit (ulimit -n, RLIMIT_NOFILE)";
inline constexpr std::string_view kRaiseProcesses = "raise the process limit (ulimit -u)";

}  // namespace muster
