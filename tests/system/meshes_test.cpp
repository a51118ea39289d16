// Meshes over real nodes, as network namespaces are: meshes.py makes them, and lets every group reduce.
#include "tests/support/python_script.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace {

class Meshes : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Networks, Meshes, ::testing::Values("ucx", "ofi"),
                         [](const auto& param) { return std::string(param.param); });

// Goal:   each group of a mesh is there on all of its nodes, and its sums are right.
// Method: MUSTER_MESHES=8 tries all meshes, of up to 64 ranks; `make prove` does.
TEST_P(Meshes, AddInEveryGroupOverFourNodes) {
  const char* count = std::getenv("MUSTER_MESHES");
  muster::test::expect_good(MUSTER_MESHES_SCRIPT, std::string("--bin '") + MUSTER_PROGRAMS + "' --rank '" +
                                                      MUSTER_RANK_PROGRAM + "' --network " + GetParam() +
                                                      " --count " + (count == nullptr ? "1" : count));
}

}  // namespace
