#include "kernels/device/registry.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::device {
namespace {

TEST(Registry, OpensTheHostDeviceOfAPool) {
  auto pool = host::Pool::open_manual({});
  auto device = open(Kind::kHost, 0, pool.get());
  ASSERT_TRUE(device.has_value()) << device.error().text();
  EXPECT_EQ((*device)->info().kind, Kind::kHost);
  EXPECT_EQ(device_count(Kind::kHost).value(), 1u);
  EXPECT_STREQ(kind_name(Kind::kHost), "host");
  EXPECT_STREQ(kind_name(Kind::kCuda), "cuda");
}

TEST(Registry, RefusesAHostDeviceThatIsNotThereOrHasNoPool) {
  auto pool = host::Pool::open_manual({});
  EXPECT_EQ(open(Kind::kHost, 1, pool.get()).error().code(), Code::kBadArgument);
  EXPECT_EQ(open(Kind::kHost, 0, nullptr).error().code(), Code::kBadArgument);
  EXPECT_EQ(open(static_cast<Kind>(9), 0, pool.get()).error().code(), Code::kBadArgument);
}

// Goal:   whatever the build and the node, asking for a GPU is answered by a device or by a sentence with the
//         remedy.
TEST(Registry, AnswersForCudaInEveryBuild) {
  auto device = open(Kind::kCuda, 0, nullptr);
  if (device) {
    EXPECT_EQ((*device)->info().kind, Kind::kCuda);
    return;
  }
  EXPECT_EQ(device.error().code(), Code::kUnsupported) << device.error().text();
  EXPECT_THAT(device.error().message(), testing::HasSubstr("CUDA"));
}

}  // namespace
}  // namespace muster::device
