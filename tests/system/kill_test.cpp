// kill -9 of a rank in mid-step, many times over, on a job that stays warm.
#include "tests/support/holdings.hpp"
#include "tests/support/node.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster {
namespace {

using ::testing::HasSubstr;
using Steady = std::chrono::steady_clock;

#if defined(MUSTER_SANITIZED)
constexpr int kCycles = 10;
#else
constexpr int kCycles = 100;
#endif
constexpr int kWorld = 4;

// What the ranks do: "start" their all-reduces, or "run" them, of so many elements.
struct Work {
  const char* verb;
  std::uint64_t count;
};

// A rank as its own process, with its output on a pipe.
class RankProcess {
 public:
  RankProcess(const std::string& endpoint, const char* job, int rank, int world, const Work& work) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
    const std::string rank_text = std::to_string(rank);
    const std::string world_text = std::to_string(world);
    const std::string count_text = std::to_string(work.count);
    const char* arguments[] = {
        "reducing_rank", endpoint.c_str(),   job,    rank_text.c_str(), world_text.c_str(),
        work.verb,       count_text.c_str(), nullptr};
    EXPECT_EQ(
        posix_spawn(&pid_, MUSTER_RANK_PROGRAM, &actions, nullptr, const_cast<char**>(arguments), environ),
        0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(ends[1]);
    output_ = ends[0];
  }
  ~RankProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    ::close(output_);
  }
  RankProcess(const RankProcess&) = delete;
  RankProcess& operator=(const RankProcess&) = delete;

  std::string line() {
    std::string text;
    char c = 0;
    pollfd entry{output_, POLLIN, 0};
    while (poll(&entry, 1, 20'000) == 1 && read(output_, &c, 1) == 1 && c != '\n') text += c;
    return text;
  }
  void kill(int signal) const { ::kill(pid_, signal); }
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int output_ = -1;
};

std::vector<std::unique_ptr<RankProcess>> start(const test::Node& node, const char* job, int world,
                                                const Work& work) {
  std::vector<std::unique_ptr<RankProcess>> ranks;
  for (int rank = 0; rank < world; ++rank)
    ranks.push_back(std::make_unique<RankProcess>(node.endpoint(), job, rank, world, work));
  for (auto& rank : ranks) EXPECT_EQ(rank->line(), "ready");
  return ranks;
}

class Kill : public ::testing::TestWithParam<Work> {};

INSTANTIATE_TEST_SUITE_P(Paths, Kill,
                         ::testing::Values(Work{"start", 4096}, Work{"run", 2}, Work{"run", 300'000}),
                         [](const auto& of) { return fmt::format("{}{}", of.param.verb, of.param.count); });

TEST_P(Kill, TellsTheSurvivorsLeaksNothingAndLeavesOtherJobsAlone) {
  const Work work = GetParam();
  test::Node node;
  node.start();
  const auto bystanders = start(node, "bystander", 2, work);
  std::mt19937_64 random(99);
  std::vector<Steady::duration> verdicts;
  std::vector<Steady::duration> attaches;
  std::vector<std::pair<pid_t, test::Holdings>> baseline;
  for (int cycle = 0; cycle < kCycles; ++cycle) {
    SCOPED_TRACE(::testing::Message() << "cycle " << cycle);
    const auto opening = Steady::now();
    auto ranks = start(node, "victim", kWorld, work);
    attaches.push_back(Steady::now() - opening);
    usleep(static_cast<useconds_t>(random() % 3000));
    const std::size_t dead = random() % kWorld;
    const auto killed = Steady::now();
    ranks[dead]->kill(SIGKILL);
    for (std::size_t rank = 0; rank < kWorld; ++rank) {
      if (rank == dead) continue;
      EXPECT_THAT(ranks[rank]->line(),
                  HasSubstr(fmt::format("rank {} (pid {}) died", dead, ranks[dead]->pid())));
      EXPECT_EQ(ranks[rank]->wait(), 42);
    }
    verdicts.push_back(Steady::now() - killed);
    if (cycle == kCycles / 4)
      for (const pid_t engine : test::engines()) baseline.emplace_back(engine, test::holdings_of(engine));
  }
  // What a session held goes back once its last step has run; the next timer of the engine sees to it.
  usleep(300'000);
  ASSERT_EQ(baseline.size(), 2u);
  for (const auto& [engine, before] : baseline) {
    const test::Holdings after = test::holdings_of(engine);
    EXPECT_LE(after.descriptors, before.descriptors) << "descriptors of engine " << engine;
    EXPECT_LE(after.mappings, before.mappings) << "mappings of engine " << engine;
  }
  for (const auto& bystander : bystanders) bystander->kill(SIGTERM);
  // One of them may leave while the other waits for it.
  std::array codes{bystanders[0]->wait(), bystanders[1]->wait()};
  EXPECT_TRUE(std::count(codes.begin(), codes.end(), 0) >= 1) << codes[0] << " " << codes[1];
  for (const int code : codes) EXPECT_TRUE(code == 0 || code == 42) << code;

  const auto report = [](const char* what, std::vector<Steady::duration>& times) {
    std::sort(times.begin(), times.end());
    const auto ms = [](Steady::duration d) { return std::chrono::duration<double, std::milli>(d).count(); };
    std::printf("%s: median %.1f ms, p99 %.1f ms, max %.1f ms over %zu\n", what, ms(times[times.size() / 2]),
                ms(times[times.size() * 99 / 100]), ms(times.back()), times.size());
  };
  report("kill to the last survivor's exit", verdicts);
  report("start of 4 processes to all attached to the warm job", attaches);
}

}  // namespace
}  // namespace muster
