#include "api/base/system_call.hpp"

#include <cerrno>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(SystemCall, ThatReachedALimitNamesTheLimit) {
  EXPECT_EQ(refused_call("eventfd", EMFILE, kRaiseOpenFiles),
            "eventfd: Too many open files; raise the open-files limit (ulimit -n, RLIMIT_NOFILE)");
  EXPECT_EQ(refused_call("fork", EAGAIN, kRaiseProcesses),
            "fork: Resource temporarily unavailable; raise the process limit (ulimit -u)");
  EXPECT_EQ(refused_call("fallocate", ENOSPC, "free memory"),
            "fallocate: No space left on device; free memory");
}

// Goal:   nobody raises a limit where a sandbox has refused the call.
TEST(SystemCall, ThatIsForbiddenSaysSo) {
  for (const int error : {EPERM, EACCES, ENOSYS}) {
    const std::string said = refused_call("eventfd", error, kRaiseOpenFiles);
    EXPECT_THAT(said, HasSubstr("the call is forbidden here, and no limit helps: allow it in the sandbox"));
    EXPECT_THAT(said, Not(HasSubstr("ulimit")));
  }
}

}  // namespace
}  // namespace muster
