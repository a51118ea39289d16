#include "kernels/device/host/memory.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include <sys/resource.h>
#include <unistd.h>

namespace muster::device::host {
namespace {

// A kernel's tables in a temporary folder.
class FakeKernel : public testing::Test {
 protected:
  FakeKernel() {
    std::string pattern = testing::TempDir() + "muster-cgroup-XXXXXX";
    root_ = ::mkdtemp(pattern.data());
    files_.cgroup = root_ + "/self";
    files_.cgroup_root = root_ + "/fs";
    files_.meminfo = root_ + "/meminfo";
  }
  ~FakeKernel() override { std::filesystem::remove_all(root_); }
  void put(const std::string& path, const std::string& text) {
    const std::filesystem::path file = root_ + "/" + path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::string root_;
  KernelFiles files_;
};

TEST_F(FakeKernel, FindsTheTightestCgroupOfVersion2AmongAncestors) {
  put("self", "0::/slurm/job_7/step_0\n");
  put("fs/slurm/memory.max", "1000000\n");
  put("fs/slurm/memory.current", "900000\n");
  put("fs/slurm/memory.stat", "anon 800000\ninactive_file 30000\nactive_file 20000\n");
  put("fs/slurm/job_7/memory.max", "500000\n");
  put("fs/slurm/job_7/memory.current", "100000\n");
  put("fs/slurm/job_7/step_0/memory.max", "max\n");
  put("fs/slurm/job_7/step_0/memory.current", "100000\n");
  const auto room = cgroup_room(files_);
  ASSERT_TRUE(room.has_value());
  EXPECT_EQ(room->limit, 1000000u);
  EXPECT_EQ(room->free, 150000u) << "file pages that the kernel can drop are free";
  EXPECT_THAT(room->where, testing::EndsWith("/fs/slurm/memory.max"));
}

TEST_F(FakeKernel, ReadsVersion1WithItsOwnNames) {
  put("self", "9:name=systemd:/\n4:cpu,memory:/box\n0::/\n");
  put("fs/memory/box/memory.limit_in_bytes", "4096000\n");
  put("fs/memory/box/memory.usage_in_bytes", "5000000\n");
  put("fs/memory/box/memory.stat", "total_inactive_file 1000000\ntotal_active_file 0\ninactive_file 7\n");
  put("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("fs/memory/memory.usage_in_bytes", "5000000\n");
  const auto room = cgroup_room(files_);
  ASSERT_TRUE(room.has_value());
  EXPECT_EQ(room->free, 96000u);
}

TEST_F(FakeKernel, TakesTheRootForThePathInAContainerWithoutItsOwnNamespace) {
  put("self", "0::/kubepods/pod1/abc\n");
  put("fs/memory.max", "2000000\n");
  put("fs/memory.current", "500000\n");
  const auto room = cgroup_room(files_);
  ASSERT_TRUE(room.has_value());
  EXPECT_EQ(room->free, 1500000u);
}

TEST_F(FakeKernel, SaysNothingWhereNothingLimits) {
  put("self", "0::/\n4:memory:/\nnonsense\n");
  put("fs/memory/memory.limit_in_bytes", "9223372036854771712\n");
  put("fs/memory/memory.usage_in_bytes", "1\n");
  EXPECT_FALSE(cgroup_room(files_).has_value());
  EXPECT_FALSE(node_room(files_).has_value());
}

TEST_F(FakeKernel, ReadsTheNodesMemoryInKibibytes) {
  put("meminfo", "MemTotal:       24684084 kB\nMemFree: 1 kB\nMemAvailable:   100 kB\n");
  const auto room = node_room(files_);
  ASSERT_TRUE(room.has_value());
  EXPECT_EQ(room->limit, std::uint64_t{24684084} * 1024);
  EXPECT_EQ(room->free, 102400u);
}

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
