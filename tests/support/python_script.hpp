// A test that is a Python program: it judges, prints what it does, and ends with 0, or with 77 if it cannot
// run.
#pragma once

#include <cstdio>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace muster::test {

// `arguments`: for a shell. The program ends with this process.
inline void expect_good(const std::string& script, const std::string& arguments) {
  constexpr int kSkipped = 77;
  const std::string command = std::string("exec setpriv --pdeathsig TERM '") + MUSTER_PYTHON + "' '" +
                              script + "' " + arguments + " 2>&1";
  std::FILE* run = popen(command.c_str(), "r");
  ASSERT_NE(run, nullptr);
  std::string said;
  char line[4096];
  while (std::fgets(line, sizeof line, run) != nullptr) {
    std::fputs(line, stdout);
    std::fflush(stdout);
    said += line;
  }
  const int status = pclose(run);
  ASSERT_TRUE(WIFEXITED(status)) << status;
  if (WEXITSTATUS(status) == kSkipped) GTEST_SKIP() << said;
  EXPECT_EQ(WEXITSTATUS(status), 0) << "the command was: " << command;
}

}  // namespace muster::test
