#include "api/shm/headroom.hpp"

#include "tests/support/folder.hpp"

#include <filesystem>
#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::shm {
namespace {

constexpr std::uint64_t kMiB = 1 << 20;

// A directory that stands for /proc and /sys/fs/cgroup.
class HeadroomTest : public testing::Test {
 protected:
  void plant(const std::string& path, const std::string& text) {
    const auto file = root_ / path;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }

  const test::Folder folder_;
  const std::filesystem::path root_ = folder_.path();
  Headroom::Files files_{
      .cgroup_of_self = root_ / "self", .cgroup_root = root_ / "cgroup", .meminfo = root_ / "meminfo"};
};

TEST_F(HeadroomTest, AbsentFilesAreNoLimit) {
  EXPECT_EQ(memory_headroom(files_).bytes, UINT64_MAX);
  plant("self", "0::/job\n4:memory:/job\n");
  EXPECT_EQ(memory_headroom(files_).bytes, UINT64_MAX);
}

TEST_F(HeadroomTest, ReadsVersionTwo) {
  plant("self", "0::/slice/job\n");
  plant("cgroup/slice/job/memory.max", "104857600\n");
  plant("cgroup/slice/job/memory.current", "94371840\n");
  const Headroom headroom = memory_headroom(files_);
  EXPECT_EQ(headroom.bytes, 10 * kMiB);
  EXPECT_THAT(headroom.limit, testing::HasSubstr("slice/job/memory.max of 104857600"));
  EXPECT_THAT(headroom.remedy, testing::HasSubstr("raise"));
}

TEST_F(HeadroomTest, CountsFilePagesAsFree) {
  plant("self", "0::/job\n");
  plant("cgroup/job/memory.max", "104857600\n");
  plant("cgroup/job/memory.current", "104857600\n");
  plant("cgroup/job/memory.stat", "anon 1\nfile 999\ninactive_file 20971520\nactive_file 10485760\n");
  EXPECT_EQ(memory_headroom(files_).bytes, 30 * kMiB);
}

TEST_F(HeadroomTest, TakesTheTightestAncestor) {
  plant("self", "0::/a/b\n");
  plant("cgroup/a/b/memory.max", "max\n");
  plant("cgroup/a/b/memory.current", "1\n");
  plant("cgroup/a/memory.max", "3145728\n");
  plant("cgroup/a/memory.current", "1048576\n");
  EXPECT_EQ(memory_headroom(files_).bytes, 2 * kMiB);
}

TEST_F(HeadroomTest, ReadsVersionOneAndARootThatIsTheContainers) {
  plant("self", "9:cpu:/x\n4:hugetlb,memory:/not/visible/here\n0::/\n");
  plant("cgroup/memory/memory.limit_in_bytes", "8388608\n");
  plant("cgroup/memory/memory.usage_in_bytes", "1048576\n");
  EXPECT_EQ(memory_headroom(files_).bytes, 7 * kMiB);
  plant("cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n");
  EXPECT_EQ(memory_headroom(files_).bytes, UINT64_MAX) << "version 1 writes no limit as a large number";
}

TEST_F(HeadroomTest, AFullGroupHasNoRoom) {
  plant("self", "0::/job\n");
  plant("cgroup/job/memory.max", "1048576\n");
  plant("cgroup/job/memory.current", "2097152\n");
  EXPECT_EQ(memory_headroom(files_).bytes, 0u);
}

TEST_F(HeadroomTest, KnowsTheMachine) {
  plant("meminfo", "MemTotal: 999 kB\nMemAvailable:     1024 kB\nSwapFree:  512 kB\n");
  const Headroom headroom = memory_headroom(files_);
  EXPECT_EQ(headroom.bytes, 1536u * 1024u);
  EXPECT_THAT(headroom.limit, testing::HasSubstr("machine"));
}

TEST_F(HeadroomTest, CapacityIsTheLeastOfMachineAndGroups) {
  EXPECT_EQ(memory_capacity(files_), 0u) << "nothing tells";
  plant("meminfo", "MemTotal:       24684084 kB\nMemAvailable:   100 kB\n");
  EXPECT_EQ(memory_capacity(files_), std::uint64_t{24684084} * 1024) << "whatever is free now";
  plant("self", "0::/a/b\n");
  plant("cgroup/a/memory.max", "3145728\n");
  plant("cgroup/a/memory.current", "3145728\n");
  EXPECT_EQ(memory_capacity(files_), 3 * kMiB);
}

TEST(HeadroomParsers, TakeWhatTheKernelWritesAndNothingElse) {
  EXPECT_EQ(parse_cgroup_limit("max\n"), std::nullopt);
  EXPECT_EQ(parse_cgroup_limit(""), std::nullopt);
  EXPECT_EQ(parse_cgroup_limit("-1"), std::nullopt);
  EXPECT_EQ(parse_cgroup_limit("99999999999999999999999"), std::nullopt);
  EXPECT_EQ(parse_cgroup_limit("0\n"), 0u);
  EXPECT_EQ(parse_stat_value("inactive_file 5\n", "inactive"), 0u) << "a key is a whole word";
  EXPECT_EQ(parse_stat_value("a 1\nb 2", "b"), 2u);
  EXPECT_EQ(parse_stat_value("b\nb x\n", "b"), 0u);
  EXPECT_EQ(parse_stat_value("b 99999999999999999999999 kB", "b"), 0u);
  EXPECT_EQ(parse_cgroup_path("garbage\n1:memory\n::\n", "memory"), std::nullopt);
  EXPECT_EQ(parse_cgroup_path("3:memory:/a:b\n", "memory"), "/a:b");
  EXPECT_EQ(parse_cgroup_path("3:memory:/a\n0::/c", ""), "/c");
}

TEST(HeadroomHere, IsSomething) {
  EXPECT_GT(memory_headroom().bytes, 0u);
}

}  // namespace
}  // namespace muster::shm
