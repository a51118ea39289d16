// Meshes over real nodes, as network namespaces are: meshes.py makes them, and lets every group reduce.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace {

constexpr int kSkipped = 77;

// Goal:   each group of a mesh is there on all of its nodes, and its sums are right.
// Method: MUSTER_MESHES=8 tries all meshes, of up to 64 ranks; `make prove` does.
TEST(Meshes, AddInEveryGroupOverFourNodes) {
  const char* count = std::getenv("MUSTER_MESHES");
  const std::string command = std::string("exec setpriv --pdeathsig TERM '") + MUSTER_PYTHON + "' '" +
                              MUSTER_MESHES_SCRIPT + "' --bin '" + MUSTER_PROGRAMS + "' --rank '" +
                              MUSTER_RANK_PROGRAM + "' --count " + (count == nullptr ? "1" : count) + " 2>&1";
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

}  // namespace
