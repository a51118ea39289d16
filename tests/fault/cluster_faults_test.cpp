// Faults of nodes, links and processes of a cluster: cluster_faults.py injects them and judges.
#include <cstdio>
#include <cstdlib>
#include <string>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace {

constexpr int kSkipped = 77;

std::string setting(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : value;
}

// Goal:   whatever fails between nodes, no result is wrong, nothing hangs, all hear of it in time, and all
//         goes on once it is healed.
// Method: seeded faults while two jobs work; their ranks write down what they hear. MUSTER_CLUSTER_FAULTS=500
//         is what `make prove` does; MUSTER_CLUSTER_FAULT_SEED draws others.
TEST(ClusterFaults, AreHeardOfAndHealed) {
  const std::string command = std::string("exec setpriv --pdeathsig TERM '") + MUSTER_PYTHON + "' '" +
                              MUSTER_CLUSTER_FAULTS_SCRIPT + "' --brief --bin '" + MUSTER_PROGRAMS +
                              "' --rank '" + MUSTER_RANK_PROGRAM + "' --count " +
                              setting("MUSTER_CLUSTER_FAULTS", "30") + " --seed " +
                              setting("MUSTER_CLUSTER_FAULT_SEED", "4711") + " 2>&1";
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
