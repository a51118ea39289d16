#include "daemon/cli/local/doctor_command.hpp"

#include "daemon/control/own_version.hpp"
#include "tests/support/folder.hpp"

#include <filesystem>
#include <fstream>
#include <functional>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

// A machine with nothing to complain of.
MachineFacts sound() {
  MachineFacts f;
  f.open_files = 1024;
  f.open_files_hard = 65536;
  f.sealed_memory = f.noexec_memory = f.pidfd = f.futex = true;
  f.huge_pages = "advise";
  f.memory_bytes = f.machine_memory_bytes = std::uint64_t{8} << 30;
  f.cores = 8;
  f.ranks = 8;
  f.clock_source = "tsc";
  f.kernel = "6.1";
  f.governor = "performance";
  f.runtime_directory = "/run/muster";
  f.daemon_version = control::own_version();
  f.networks = {{"ucx", "UCX 1.13.1", ""}};
  f.cluster = {"eth0 (10.66.0.1, MTU 1500)", "", {{"node02", Check::Verdict::kGood, "256 KiB and back", ""}}};
  return f;
}

TEST(Doctor, FindsNothingOnASoundMachine) {
  for (const Check& check : examine(sound())) {
    EXPECT_EQ(check.verdict, Check::Verdict::kGood) << check.name << ": " << check.says;
    EXPECT_TRUE(check.fix.empty()) << check.name;
  }
}

// Goal:   each fault is found by its check, with its severity and a fix, and by no other.
TEST(Doctor, FindsEachFaultAndSaysWhatToDo) {
  using Verdict = Check::Verdict;
  struct Fault {
    const char* check;
    Verdict verdict;
    std::function<void(MachineFacts&)> make;
  };
  const Fault faults[] = {
      {"open files", Verdict::kWarning, [](MachineFacts& f) { f.open_files_hard = 1024; }},
      {"sealed memory", Verdict::kFailure, [](MachineFacts& f) { f.sealed_memory = false; }},
      {"MFD_NOEXEC_SEAL", Verdict::kWarning, [](MachineFacts& f) { f.noexec_memory = false; }},
      {"huge pages", Verdict::kWarning, [](MachineFacts& f) { f.huge_pages = "never"; }},
      {"huge pages", Verdict::kWarning, [](MachineFacts& f) { f.huge_pages = "deny"; }},
      {"memory", Verdict::kWarning, [](MachineFacts& f) { f.memory_bytes = 1 << 20; }},
      {"cpu quota", Verdict::kWarning, [](MachineFacts& f) { f.cpu_quota = 1.5, f.ranks = 1; }},
      {"cores and ranks", Verdict::kWarning, [](MachineFacts& f) { f.ranks = 9; }},
      {"clock source", Verdict::kWarning, [](MachineFacts& f) { f.clock_source = "hpet"; }},
      {"network ucx", Verdict::kWarning,
       [](MachineFacts& f) { f.networks[0].trouble = "libucp.so.0: no such file"; }},
      {"data interface", Verdict::kFailure,
       [](MachineFacts& f) { f.cluster.trouble = "cluster.interfaces: 'eth7' matches no network device"; }},
      {"path to node02", Verdict::kFailure,
       [](MachineFacts& f) {
         f.cluster.paths[0] = {"node02", Check::Verdict::kFailure, "lost", "mend it"};
       }},
      {"path to node02", Verdict::kWarning,
       [](MachineFacts& f) {
         f.cluster.paths[0] = {"node02", Check::Verdict::kWarning, "away", "start it"};
       }},
      {"pidfd", Verdict::kFailure, [](MachineFacts& f) { f.pidfd = false; }},
      {"futex", Verdict::kFailure, [](MachineFacts& f) { f.futex = false; }},
      {"cpu governor", Verdict::kWarning, [](MachineFacts& f) { f.governor = "powersave"; }},
      {"runtime directory", Verdict::kFailure, [](MachineFacts& f) { f.runtime_trouble = "no"; }},
      {"runtime directory", Verdict::kWarning,
       [](MachineFacts& f) { f.runtime_trouble = "read by all", f.runtime_serves = true; }},
      {"daemon", Verdict::kWarning, [](MachineFacts& f) { f.daemon_trouble = "nobody listens"; }},
      {"daemon", Verdict::kFailure,
       [](MachineFacts& f) { f.daemon_trouble = "nobody listens", f.daemon_named = true; }},
      {"versions", Verdict::kWarning, [](MachineFacts& f) { f.daemon_version = "0.0.9"; }},
      {"versions", Verdict::kFailure,
       [](MachineFacts& f) { f.daemon_trouble = "another version", f.daemon_speaks_other = true; }},
  };
  for (const Fault& fault : faults) {
    MachineFacts facts = sound();
    fault.make(facts);
    int found = 0;
    for (const Check& check : examine(facts)) {
      if (check.verdict == Check::Verdict::kGood) continue;
      ++found;
      EXPECT_EQ(check.name, fault.check);
      EXPECT_EQ(check.verdict, fault.verdict) << check.name;
      EXPECT_FALSE(check.fix.empty()) << check.name;
    }
    EXPECT_EQ(found, 1) << fault.check;
  }
}

// Goal:   a quota at any level above this process binds, also in a container that sees its host's path.
TEST(Doctor, FindsTheQuotaOfAnAncestor) {
  const test::Folder own;
  const std::filesystem::path folder = own.path();
  const auto put = [&](const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder / path).parent_path());
    std::ofstream(folder / path) << text << "\n";
  };
  const shm::Headroom::Files files{folder / "self", folder / "cgroup", folder / "meminfo"};
  put("self", "0::/pod/task");
  put("cgroup/pod/task/cpu.max", "max 100000");
  EXPECT_FALSE(cpu_quota(files));
  put("cgroup/pod/cpu.max", "250000 100000");
  EXPECT_EQ(cpu_quota(files), 2.5);
  put("cgroup/cpu.max", "150000 100000");
  EXPECT_EQ(cpu_quota(files), 1.5) << "the tightest";
  put("self", "0::/host/path/not/here");
  EXPECT_EQ(cpu_quota(files), 1.5);
  put("self", "0::/");
  EXPECT_EQ(cpu_quota(files), 1.5);
  put("self", "4:cpu,cpuacct:/a/b\n3:cpuset:/c");
  EXPECT_FALSE(cpu_quota(files));
  put("cgroup/cpu/a/cpu.cfs_quota_us", "50000");
  put("cgroup/cpu/a/cpu.cfs_period_us", "100000");
  EXPECT_EQ(cpu_quota(files), 0.5);
}

// Goal:   no limit is complained of that nothing needs.
TEST(Doctor, AsksForNoLockedMemory) {
  for (const Check& check : examine(sound())) EXPECT_NE(check.name, "memlock");
}

}  // namespace
}  // namespace muster::cli
