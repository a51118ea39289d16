// Faults of nodes, links and processes of a cluster: cluster_faults.py injects them and judges.
#include "tests/support/python_script.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace {

std::string setting(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : value;
}

// Goal:   whatever fails between nodes, no result is wrong, nothing hangs, all hear of it in time, and all
//         goes on once it is healed.
// Method: seeded faults while two jobs work; their ranks write down what they hear. MUSTER_CLUSTER_FAULTS=500
//         is what `make prove` does; MUSTER_CLUSTER_FAULT_SEED draws others.
TEST(ClusterFaults, AreHeardOfAndHealed) {
  muster::test::expect_good(MUSTER_CLUSTER_FAULTS_SCRIPT,
                            std::string("--brief --bin '") + MUSTER_PROGRAMS + "' --rank '" +
                                MUSTER_RANK_PROGRAM + "' --count " + setting("MUSTER_CLUSTER_FAULTS", "30") +
                                " --seed " + setting("MUSTER_CLUSTER_FAULT_SEED", "4711"));
}

}  // namespace
