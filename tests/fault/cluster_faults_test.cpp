// Faults of nodes, links and processes of a cluster of network namespaces. Python programs inject them and
// judge.
#include "tests/support/contract.hpp"
#include "tests/support/python_script.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace {

std::string setting(const char* name, const char* fallback) {
  const char* value = std::getenv(name);
  return value == nullptr ? fallback : value;
}

void expect_good(const std::string& script, const char* rank_program, const std::string& more) {
  muster::test::expect_good(std::string(MUSTER_FAULT_SCRIPTS) + "/" + script,
                            std::string("--bin '") + MUSTER_PROGRAMS + "' --rank '" + rank_program + "' " +
                                more + " --seed " + setting("MUSTER_CLUSTER_FAULT_SEED", "4711"));
}

// Goal:   whatever fails between nodes, no result is wrong, nothing hangs, all hear of it in time, and all
//         goes on once it is healed.
// Method: seeded faults while two jobs work; their ranks write down what they hear. MUSTER_CLUSTER_FAULTS=500
//         is what `make prove` does; MUSTER_CLUSTER_FAULT_SEED draws others.
TEST(ClusterFaults, AreHeardOfAndHealed) {
  expect_good("cluster_faults.py", MUSTER_ENDURING_RANK,
              std::string("--brief --count ") + setting("MUSTER_CLUSTER_FAULTS", "30") +
                  (muster::test::holds_to_contract() ? " --promised" : ""));
}

// Goal:   a job that loses a node while it is made is there on all of its nodes, or on none: its maker hears
//         which node is lost, nothing hangs, nothing is left behind, and the next job works.
// Method: seeded moments; MUSTER_MAKING_FAULTS=150 is what `make prove` does.
TEST(ClusterFaults, LeaveNoJobHalfMade) {
  expect_good("making_faults.py", MUSTER_STEADY_RANK,
              "--brief --count " + setting("MUSTER_MAKING_FAULTS", "3"));
}

// Goal:   no node, engine or operation is given up because packets are lost.
// Method: one in twenty, everywhere, for MUSTER_LOSSY_SECONDS; `make prove` does it for ten minutes.
TEST(ClusterFaults, AreNotSeenInLostPackets) {
  expect_good("lossy_cluster.py", MUSTER_ENDURING_RANK,
              "--seconds " + setting("MUSTER_LOSSY_SECONDS", "4") + " --network " +
                  setting("MUSTER_LOSSY_NETWORK", "ofi"));
}

}  // namespace
