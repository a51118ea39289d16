// Saves in which a rank or a writer is killed, or the disk is full: the former checkpoint stays, and none is
// half read.
#include "api/base/store/checkpoint_list.hpp"
#include "api/base/store/saved_folder.hpp"
#include "tests/support/folder.hpp"
#include "tests/support/node.hpp"
#include "tests/support/piped_process.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>

namespace muster::test {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;
using ::testing::StartsWith;

class CheckpointKill : public ::testing::Test {
 protected:
  void SetUp() override {
    std::signal(SIGPIPE, SIG_IGN);
    node_.options.jobs_max = 64;  // each run is one
    node_.start();
  }

  // The reports of the ranks on their loads and their saves.
  struct Said {
    std::vector<std::string> loaded, saved;
  };
  // A job that loads the latest checkpoint, if any, and saves `step`. `fault`: of `victim`.
  Said run(const std::string& folder, int world, int step, const std::string& fault = {}, int victim = 0) {
    const std::string job = "job-" + std::to_string(++jobs_);
    std::vector<std::unique_ptr<PipedProcess>> ranks;
    for (int rank = 0; rank < world; ++rank) {
      PipedProcess::Options options;
      if (!fault.empty() && rank == victim) options.settings = {"MUSTER_FAULT_AT=" + fault};
      ranks.push_back(std::make_unique<PipedProcess>(
          MUSTER_RANK_PROGRAM,
          std::vector<std::string>{"saving_rank", node_.endpoint(), job, std::to_string(rank),
                                   std::to_string(world), folder, std::to_string(step), keep_},
          std::move(options)));
    }
    Said said;
    for (auto& rank : ranks) said.loaded.push_back(rank->line());
    for (auto& rank : ranks) said.saved.push_back(rank->line());
    for (auto& rank : ranks) rank->wait();
    return said;
  }

  // All that is complete is right, to the last byte. The step of the newest.
  static std::uint64_t sound_newest(const std::string& folder) {
    std::vector<Status> refused;
    const auto entries = store::list_checkpoints(folder, &refused);
    EXPECT_TRUE(entries);
    EXPECT_TRUE(refused.empty()) << refused.front().message();
    for (const store::CheckpointEntry& entry : *entries) {
      auto saved = store::SavedFolder::open(folder + "/" + entry.name);
      EXPECT_TRUE(saved);
      const Status status = saved->verify();
      EXPECT_TRUE(status.ok()) << status.message();
    }
    return entries->empty() ? 0 : entries->back().step;
  }
  static std::size_t entries_in(const std::string& folder) {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
  }

  std::string keep_ = "2";
  const Folder folder_;
  Node node_;

 private:
  int jobs_ = 0;
};

struct KillCase {
  const char* point;
  int hit;
  int victim;
  bool complete;  // the save that was interrupted
};
constexpr KillCase kCases[] = {
    {"checkpoint.chunk_due", 1, 0, false},      {"checkpoint.chunk_due", 2, 1, false},
    {"checkpoint.chunk_due", 2, 2, false},      {"checkpoint.sync_due", 1, 0, false},
    {"checkpoint.sync_due", 1, 1, false},       {"checkpoint.record_due", 1, 0, false},
    {"checkpoint.record_written", 1, 0, false}, {"checkpoint.record_named", 1, 0, false},
    {"checkpoint.named", 1, 0, true},           {"checkpoint.old_renamed", 1, 0, true},
};

// Goal:   case C4: a kill at any write or rename leaves the former checkpoint, or the new one, whole; the
//         next job goes on from it, and removes what the dead one has left.
// Method: a job saves step 1; another one, which is killed somewhere, step 2; a third one of another size
//         loads the newest and saves step 3.
TEST_F(CheckpointKill, AtEachPointTheFormerCheckpointStays) {
  for (const KillCase& c : kCases) {
    SCOPED_TRACE(fmt::format("{} of rank {}, {}", c.point, c.victim, c.hit));
    keep_ = std::strcmp(c.point, "checkpoint.old_renamed") == 0 ? "1" : "2";
    const std::string run_folder = fmt::format("{}/{}-{}-{}", folder_.path(), c.point, c.hit, c.victim);
    for (const std::string& saved : run(run_folder, 3, 1).saved) ASSERT_EQ(saved, "saved");
    const Said killed = run(run_folder, 3, 2, fmt::format("{}:{}=kill", c.point, c.hit), c.victim);
    for (const std::string& loaded : killed.loaded) EXPECT_EQ(loaded, "loaded 1");
    const bool writer =
        std::strstr(c.point, "chunk_due") != nullptr || std::strstr(c.point, "sync_due") != nullptr;
    for (int rank = 0; rank < 3; ++rank) {
      const std::string& saved = killed.saved[static_cast<std::size_t>(rank)];
      const std::string text = fmt::format("rank {}: the process that writes", c.victim);
      if (writer) {
        EXPECT_THAT(saved, StartsWith("failed MUSTER_ERR_NO_RESOURCE " + text));
      } else if (rank != c.victim && std::strcmp(c.point, "checkpoint.old_renamed") == 0) {
        EXPECT_EQ(saved, "saved") << "all know that it is complete, before an old one is removed";
      } else if (rank != c.victim) {
        EXPECT_THAT(saved, StartsWith("failed MUSTER_ERR_PEER_LOST"));
      }
    }
    EXPECT_EQ(sound_newest(run_folder), c.complete ? 2U : 1U);
    const Said next = run(run_folder, 2, 3);
    for (const std::string& loaded : next.loaded) EXPECT_EQ(loaded, c.complete ? "loaded 2" : "loaded 1");
    for (const std::string& saved : next.saved) EXPECT_EQ(saved, "saved");
    EXPECT_EQ(sound_newest(run_folder), 3U);
    EXPECT_EQ(entries_in(run_folder), keep_ == "1" ? 1U : 2U) << "something was left behind";
  }
}

// Goal: a full disk is an error at all ranks that names the file, and the former checkpoint stays.
TEST_F(CheckpointKill, AFullDiskIsAnErrorAtAll) {
  const std::string folder = folder_.path() + "/disk";
  fs::create_directory(folder);
  // In a mount namespace of this process, so that it goes with it however it ends.
  if (unshare(CLONE_NEWNS) != 0 || mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0 ||
      mount("muster-test", folder.c_str(), "tmpfs", 0, "size=8m") != 0)
    GTEST_SKIP() << "no file system can be mounted here: " << std::strerror(errno);
  for (const std::string& saved : run(folder, 2, 1).saved) EXPECT_EQ(saved, "saved");
  for (const std::string& saved : run(folder, 2, 2).saved) {
    EXPECT_THAT(saved, StartsWith("failed MUSTER_ERR_NO_RESOURCE rank "));
    EXPECT_THAT(saved, HasSubstr("cannot write " + folder + "/step-000000000002.partial-"));
    EXPECT_THAT(saved, HasSubstr(".bin: No space left on device"));
  }
  EXPECT_EQ(sound_newest(folder), 1U);
  EXPECT_EQ(entries_in(folder), 1U);
  EXPECT_EQ(umount2(folder.c_str(), MNT_DETACH), 0);
}

}  // namespace
}  // namespace muster::test
