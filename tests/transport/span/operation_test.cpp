// Operations that a communicator between nodes refuses to launch.
#include "transport/span/operation.hpp"

#include "kernels/math/reduce.hpp"

#include <cstdint>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::transport::span {
namespace {

using ::testing::HasSubstr;

// The refusal of a reduction of `ranks` ranks on two nodes; empty: it is allowed.
std::string refusal_of(std::size_t ranks, muster_dtype dtype, bool reproducible) {
  Span wide{7, {NodeIndex(0), NodeIndex(1)}, std::vector<std::uint32_t>(ranks, 0), 1};
  Collective c;
  c.op = MUSTER_ALL_REDUCE;
  c.dtype = dtype;
  c.redop = MUSTER_SUM;
  c.count = 1;
  const Status refused = check_launch(wide, c, {}, reproducible);
  if (!refused.ok()) EXPECT_EQ(refused.code(), Code::kUnsupported);
  return refused.message();
}

// Goal:   no group is so large that a fold of its contributions ends the engine.
TEST(CheckLaunch, RefusesMoreContributionsThanOneFoldTakes) {
  constexpr std::size_t kMost = math::kReduceSourcesMax;
  EXPECT_EQ(refusal_of(kMost, MUSTER_BF16, false), "");
  EXPECT_THAT(refusal_of(kMost + 1, MUSTER_BF16, false), HasSubstr("4097 contributions, one of each rank"));
  EXPECT_EQ(refusal_of(kMost + 1, MUSTER_F32, false), "") << "each node adds its own up first";
  EXPECT_THAT(refusal_of(kMost + 1, MUSTER_F32, true), HasSubstr("4097 contributions"));
}

}  // namespace
}  // namespace muster::transport::span
