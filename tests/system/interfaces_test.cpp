// Jobs of two nodes whose interfaces are not alike, as network namespaces: interfaces.py makes them.
#include "tests/support/python_script.hpp"

#include <cstdlib>
#include <string>

#include <gtest/gtest.h>

namespace {

class Interfaces : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Networks, Interfaces, ::testing::Values("ucx", "ofi"),
                         [](const auto& param) { return std::string(param.param); });

// Goal:   a second interface that leads nowhere or has a larger MTU, IPv6 alone and both versions of IP keep
//         no job from being ready; a wrong setting is named.
// Method: MUSTER_INTERFACE_RUNS=20 makes each job so often, and each must be ready within 2 s; `make prove`
//         does.
TEST_P(Interfaces, AreThoseThatWereMeant) {
  const char* runs = std::getenv("MUSTER_INTERFACE_RUNS");
  muster::test::expect_good(MUSTER_INTERFACES_SCRIPT,
                            std::string("--bin '") + MUSTER_PROGRAMS + "' --rank '" + MUSTER_RANK_PROGRAM +
                                "' --network " + GetParam() +
                                (runs == nullptr ? "" : std::string(" --strict --runs ") + runs));
}

}  // namespace
