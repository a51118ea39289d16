// The histories find the bug that is planted into this program (planted.py), or the product's own assertions
// do.
#include "tests/history/jobs.hpp"

#include <csignal>
#include <cstdio>

#include <gtest/gtest.h>

#include <sys/wait.h>
#include <unistd.h>

namespace muster::test {
namespace {

constexpr std::uint64_t kHistoriesMax = 1000;

std::string find() {
  std::string wrong;
  Happened happened;
  for (std::uint64_t first = 1; wrong.empty() && first <= kHistoriesMax; first += kHistoriesOfAJob)
    wrong = run_job(first, first + kHistoriesOfAJob - 1, &happened);
  return wrong;
}

TEST(Planted, IsFound) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const std::string wrong = find();
    std::fprintf(stderr, "%s\n", wrong.c_str());
    _exit(wrong.empty() ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  const bool failed_assertion = WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT;
  EXPECT_TRUE(failed_assertion || (WIFEXITED(status) && WEXITSTATUS(status) == 1)) << status;
}

}  // namespace
}  // namespace muster::test
