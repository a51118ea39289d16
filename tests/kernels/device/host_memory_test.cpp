#include "kernels/device/host/memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include <fcntl.h>
#include <sys/mman.h>
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

// Goal:   pages that are there elsewhere in a file are no room for the range that is imported.
// Method: a file whose first half is committed, and a limit far below either half.
TEST(HostMemoryLimits, AsksForRoomForTheRangeThatIsImportedAlone) {
  constexpr std::size_t kHalf = 1 << 20;
  const int file = ::memfd_create("halves", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_GE(file, 0);
  ASSERT_EQ(::ftruncate(file, 2 * kHalf), 0);
  ASSERT_EQ(::fallocate(file, 0, 0, kHalf), 0);
  ASSERT_EQ(::fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK), 0);
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit low = before;
  low.rlim_cur = 1 << 16;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  auto second = import_shared(file, kHalf, kHalf);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code(), Code::kNoResource);
  EXPECT_THAT(second.error().message(), testing::HasSubstr("1048576 bytes of host memory are needed"));

  ASSERT_EQ(::fallocate(file, 0, kHalf, kHalf), 0);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &low), 0);
  auto both = import_shared(file, 0, 2 * kHalf);
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
  EXPECT_TRUE(both.has_value()) << "all of it is committed";
  ::close(file);
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
