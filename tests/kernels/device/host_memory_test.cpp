#include "kernels/device/host/memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <sys/resource.h>
#include <unistd.h>

namespace muster::device::host {
namespace {

// Goal:   a file-size limit is an answer, not the SIGXFSZ with which the kernel kills.
// Method: lower it in this process, ask for more, put it back.
TEST(HostMemoryLimits, RespectsTheFileSizeLimitOfTheProcess) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 1 << 16;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  auto memory = allocate_shared(1 << 20);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code(), Code::kNoResource);
  EXPECT_THAT(memory.error().message(), testing::HasSubstr("RLIMIT_FSIZE"));
}

TEST(HostMemoryLimits, NamesTheDescriptorLimitOfTheProcess) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 4096;
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &low), 0);
  std::vector<int> taken;
  for (int fd = ::dup(0); fd >= 0; fd = ::dup(0)) taken.push_back(fd);
  // The tables under /proc cannot be opened either; what is left is the refusal of the memory itself.
  auto memory = allocate_shared(4096);
  for (int fd : taken) ::close(fd);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &before), 0);
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code(), Code::kNoResource);
  EXPECT_THAT(memory.error().message(), testing::HasSubstr("RLIMIT_NOFILE"));
}

TEST(HostMemoryLimits, LeavesNoDescriptorBehind) {
  const auto open_now = [] {
    std::size_t count = 0;
    for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
    return count;
  };
  const std::size_t before = open_now();
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(allocate_shared(100).has_value());
  EXPECT_FALSE(allocate_shared(std::size_t{1} << 46).has_value());
  EXPECT_EQ(open_now(), before);
}

}  // namespace
}  // namespace muster::device::host
