#include "kernels/device/registry.hpp"

#include "api/base/node_limits.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::device {
namespace {

TEST(Registry, OpensTheHostDevicesOfAPool) {
  const auto pool = Pool::open_manual({});
  for (const std::uint32_t ordinal : {0U, 1U}) {
    const auto device = open({Kind::kHost, ordinal}, *pool);
    ASSERT_TRUE(device.has_value()) << device.error().text();
    EXPECT_EQ((*device)->info().kind, Kind::kHost);
    EXPECT_EQ((*device)->info().ordinal, ordinal);
    EXPECT_TRUE((*device)->info().node_memory);
    EXPECT_FALSE((*device)->info().stream_waits);
  }
  EXPECT_EQ(device_count(Kind::kHost).value(), 1u);
  EXPECT_STREQ(kind_name(Kind::kHost), "host");
  EXPECT_STREQ(kind_name(Kind::kCuda), "cuda");
}

TEST(Registry, RefusesADeviceThatIsNotThere) {
  const auto pool = Pool::open_manual({});
  EXPECT_EQ(open({Kind::kHost, kRanksOnNodeMax}, *pool).error().code(), Code::kBadArgument);
  EXPECT_EQ(open({static_cast<Kind>(9)}, *pool).error().code(), Code::kBadArgument);
}

// Goal:   whatever the build and the node, asking for a GPU is answered by a device or by a sentence with the
//         remedy.
TEST(Registry, AnswersForCudaInEveryBuild) {
  const auto pool = Pool::open_manual({});
  const auto device = open({Kind::kCuda}, *pool);
  if (device) {
    EXPECT_EQ((*device)->info().kind, Kind::kCuda);
    return;
  }
  EXPECT_EQ(device.error().code(), Code::kUnsupported) << device.error().text();
  EXPECT_THAT(device.error().message(), testing::HasSubstr("CUDA"));
}

}  // namespace
}  // namespace muster::device
