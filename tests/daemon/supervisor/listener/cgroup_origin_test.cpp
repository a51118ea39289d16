#include "daemon/supervisor/listener/cgroup_origin.hpp"

#include <fstream>
#include <iterator>

#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

const std::string kId = "3f2a9c1d5e7b80426a9c1d5e7b80423f2a9c1d5e7b80426a9c1d5e7b80423f2a";

// Each as the runtime writes it; the text that people read.
TEST(CgroupOrigin, IsReadFromTheCgroupsOfEachRuntime) {
  const auto text = [](const std::string& cgroups) { return text_of(origin_in(cgroups)); };
  EXPECT_EQ(text("0::/system.slice/docker-" + kId + ".scope\n"), "container 3f2a9c1d5e7b");
  EXPECT_EQ(text("12:memory:/docker/" + kId + "\n11:cpu:/docker/" + kId + "\n"), "container 3f2a9c1d5e7b");
  EXPECT_EQ(text("0::/machine.slice/libpod-" + kId + ".scope/container\n"), "container 3f2a9c1d5e7b");
  EXPECT_EQ(text("9:pids:/libpod_parent/libpod-" + kId + "\n"), "container 3f2a9c1d5e7b");
  EXPECT_EQ(text("0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-"
                 "pod1b4e2d00_7f3c_4a5e_9b1d_2c3d4e5f6071.slice/cri-containerd-" +
                 kId + ".scope\n"),
            "pod 1b4e2d00-7f3c-4a5e-9b1d-2c3d4e5f6071, container 3f2a9c1d5e7b");
  EXPECT_EQ(text("1:name=systemd:/kubepods/besteffort/pod1b4e2d00-7f3c-4a5e-9b1d-2c3d4e5f6071/" + kId),
            "pod 1b4e2d00-7f3c-4a5e-9b1d-2c3d4e5f6071, container 3f2a9c1d5e7b");
  EXPECT_EQ(text("0::/system.slice/slurmstepd.scope/job_1234/step_0/user/task_3\n"),
            "step 0 of Slurm job 1234");
  EXPECT_EQ(text("8:freezer:/slurm/uid_1000/job_77/step_batch\n"), "step batch of Slurm job 77");
  EXPECT_EQ(text("0::/slurm/uid_1000/job_77\n"), "Slurm job 77");
  // Slurm 23 with several slurmd on a node, its other steps, CRI-O, pods with a guarantee, k3s, and both
  // versions of cgroups at once.
  EXPECT_EQ(text("0::/system.slice/node01_slurmstepd.scope/job_4242/step_extern/user/task_special\n"),
            "step extern of Slurm job 4242");
  EXPECT_EQ(text("0::/system.slice/slurmstepd.scope/job_4242/step_interactive/user/task_0"),
            "step interactive of Slurm job 4242")
      << "no newline at its end";
  EXPECT_EQ(text("0::/kubepods.slice/kubepods-pod1b4e2d00_7f3c_4a5e_9b1d_2c3d4e5f6071.slice/crio-" + kId +
                 ".scope/container\n"),
            "pod 1b4e2d00-7f3c-4a5e-9b1d-2c3d4e5f6071, container 3f2a9c1d5e7b");
  EXPECT_EQ(text("0::/../../pod1b4e2d00-7f3c-4a5e-9b1d-2c3d4e5f6071/" + kId + "\n"),
            "pod 1b4e2d00-7f3c-4a5e-9b1d-2c3d4e5f6071, container 3f2a9c1d5e7b");
  EXPECT_EQ(text("9:cpuset:/slurm/uid_0/job_9/step_1\n1:name=systemd:/system.slice\n0::/user.slice\n"),
            "step 1 of Slurm job 9");
  EXPECT_EQ(text("0::/system.slice/slurmstepd.scope/job_8/step_2/user/task_0/libpod-" + kId + ".scope\n"),
            "container 3f2a9c1d5e7b, step 2 of Slurm job 8")
      << "a container of a step";
}

// Goal:   a text that a user has put into his cgroup's name is no more than letters.
TEST(CgroupOrigin, IsEmptyForAnythingElse) {
  for (const std::string& cgroups :
       {std::string(), std::string("0::/user.slice/user-1000.slice/session-2.scope\n"), "0::/x" + kId + "\n",
        "0::/" + kId.substr(1) + "\n", std::string("0::/job_12;rm\n"), std::string("0::/step_0\n"),
        "0::/pod" + kId + "x/\x1b[31m\n", std::string(100000, '/'),
        std::string("0::/job_") + std::string(1000, '1')})
    EXPECT_EQ(text_of(origin_in(cgroups)), "") << cgroups.substr(0, 80);
  EXPECT_EQ(text_of(origin_of(0)), "");
  EXPECT_EQ(text_of(origin_of(-1)), "");
  EXPECT_EQ(text_of(origin_of(1 << 30)), "") << "there is no such process";
}

// Goal:   the process that asks for its own reads the kernel's file, whatever that says here.
TEST(CgroupOrigin, OfAProcessIsReadFromItsFile) {
  std::ifstream file("/proc/self/cgroup");
  const std::string cgroups((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  ASSERT_FALSE(cgroups.empty());
  EXPECT_EQ(origin_of(getpid()), origin_in(cgroups));
}

TEST(CgroupOrigin, KnowsNoPartThatIsOnlyLikeOne) {
  for (const char* cgroups : {"0::/job_\n", "0::/job_/step_0\n", "0::/jobs_12\n", "0::/myjob_12\n",
                              "0::/job-12\n", "0::/job_12x/step_1\n", "0::/job_-1\n", "0::/step_1/job_\n"})
    EXPECT_EQ(text_of(origin_in(cgroups)), "") << cgroups;
  EXPECT_EQ(text_of(origin_in("0::/job_5/step_1;rm\n")), "Slurm job 5") << "the step is no number";
}

// Goal:   a rank's own claim is kept apart from what is seen, and is no more than a number or a name.
TEST(RankOrigin, MarksWhatTheRankSays) {
  const std::int32_t unseen = 0;
  control::Identity foreign(1000);
  foreign.pid_namespace = 4711;
  const RankOrigin rank = origin_of_rank(unseen, foreign, "1234.0", "pod-7");
  EXPECT_EQ(text_of(rank), "as it says itself, step 0 of Slurm job 1234, host pod-7");
  EXPECT_TRUE(rank.is_of_slurm("1234"));
  EXPECT_FALSE(rank.is_of_slurm("123"));
  EXPECT_EQ(text_of(origin_of_rank(unseen, foreign, "1234", "")), "as it says itself, Slurm job 1234");
  EXPECT_EQ(text_of(origin_of_rank(unseen, 1000, "12.batch", "node")),
            "as it says itself, step batch of Slurm job 12")
      << "a rank outside of containers is on this host";
  for (const char* bad : {"", ".0", "batch", "12a", "-1", "1 2",
                          "1234567890123456789012345678901234567890123456789012345678901234567890"})
    EXPECT_TRUE(origin_of_rank(unseen, foreign, bad, "a b").empty()) << bad;
  RankOrigin both;
  both.seen.slurm_job = "7";
  both.said_host = "pod-7";
  EXPECT_EQ(text_of(both), "Slurm job 7; as it says itself, host pod-7");
}

}  // namespace
}  // namespace muster::supervisor
