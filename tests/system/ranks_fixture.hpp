// Ranks that work all the time, on both paths, while the daemon has its adventures: three that attach
// themselves, and two of a `muster run`.
#pragma once

#include "tests/support/contract.hpp"
#include "tests/system/restart_fixture.hpp"
#include "tests/system/steady_rank.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

namespace muster::test {

inline constexpr int kWorld = 3;
inline constexpr std::size_t kRanks = kWorld + 2;  // those of `muster run` too
inline constexpr double kPromisedOperationMs = 1000;
inline constexpr double kOperationMsMax = 20'000;  // however busy the machine is: a third of its deadline

class RanksTest : public RestartTest {
 protected:
  void start_ranks() {
    for (int rank = 0; rank < kWorld; ++rank)
      ranks_.push_back(std::make_unique<Running>(Start{{MUSTER_RANK_PROGRAM, stop_file(), socket(), "steady",
                                                        std::to_string(rank), std::to_string(kWorld)},
                                                       {},
                                                       {}}));
    run_ = std::make_unique<Running>(Start{{program("muster"), "run", "-n", "2", "--endpoint", socket(),
                                            "--timeout", "60", "--", MUSTER_RANK_PROGRAM, stop_file()},
                                           {},
                                           {}});
    run_job_ = run_job_of(run_->pid());
    ASSERT_TRUE(await_ranks("steady", kWorld)) << status();
    ASSERT_TRUE(await_ranks(run_job_, 2)) << status() << run_->err();
  }
  std::string stop_file() const { return folder_.path() + "/stop"; }

  void watch_ranks() {
    ASSERT_TRUE(within(std::chrono::seconds(30),
                       [this] {
                         progress_.clear();
                         for (const auto& file : std::filesystem::directory_iterator(folder_.path()))
                           if (file.path().string().ends_with(kProgressSuffix)) watch(file.path());
                         return progress_.size() == kRanks;
                       }))
        << progress_.size() << " ranks show how far they are";
  }
  void watch(const std::string& path) {
    const shm::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    struct stat what {};
    if (file.get() < 0 || fstat(file.get(), &what) != 0 || what.st_size < off_t{sizeof(Progress)}) return;
    void* address = mmap(nullptr, sizeof(Progress), PROT_READ, MAP_SHARED, file.get(), 0);
    ASSERT_NE(address, MAP_FAILED);
    progress_.emplace_back(static_cast<const Progress*>(address), [](const Progress* progress) {
      munmap(const_cast<Progress*>(progress), sizeof(Progress));
    });
  }
  std::vector<std::uint64_t> operations() const {
    std::vector<std::uint64_t> all;
    for (const auto& progress : progress_) all.push_back(progress->operations);
    return all;
  }
  // Each rank has gone on since a restart; it did so all the time, so that this does not wait for long.
  void expect_more_than(const std::vector<std::uint64_t>& before,
                        std::chrono::seconds time = std::chrono::seconds(2)) {
    EXPECT_TRUE(within(time,
                       [&] {
                         const auto now = operations();
                         for (std::size_t i = 0; i < now.size(); ++i)
                           if (now[i] <= before.at(i)) return false;
                         return true;
                       }))
        << "from " << ::testing::PrintToString(before) << " to " << ::testing::PrintToString(operations());
  }
  // Each says that it has done its operations, `least` of them or more.
  void end_ranks(int least) {
    folder_.write("stop", "");
    for (auto& rank : ranks_) {
      const Ran ran = rank->wait();
      EXPECT_EQ(ran.code, 0) << ran.err;
      EXPECT_GE(std::atoll(ran.out.c_str()), least) << ran.out;
      std::printf("a rank: %s", ran.out.c_str());
    }
    const Ran ran = run_->wait();
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, ::testing::HasSubstr("operations"));
    expect_short_operations();
  }
  void expect_short_operations() {
    double longest_ms = 0;
    for (const auto& progress : progress_)
      longest_ms = std::max(longest_ms, static_cast<double>(progress->longest_ns) / 1e6);
    std::printf("the longest operation: %.1f ms\n", longest_ms);
    EXPECT_LE(longest_ms, kOperationMsMax);
    expect_promised(longest_ms, kPromisedOperationMs, "ms that the longest operation took");
  }

  std::vector<std::unique_ptr<Running>> ranks_;
  std::unique_ptr<Running> run_;
  std::string run_job_;
  std::vector<std::shared_ptr<const Progress>> progress_;  // of each rank
};

}  // namespace muster::test
