// A job of three ranks (fault_rank.cpp), one of which is to die, stop or be held at a fault point.
#pragma once

#include "daemon/cli/question.hpp"
#include "tests/support/node.hpp"
#include "tests/support/piped_process.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::test {

// On the clock by which ranks and fault points tell their times.
inline std::int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return std::int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

// The commands that `muster run` sends when one of its processes ends, and when it is done itself.
inline void say_absent(const Node& node, const std::string& job, int rank, pid_t pid) {
  const auto answer =
      cli::ask({node.endpoint()}, {{"command", "absent"},
                                   {"job", job},
                                   {"rank", rank},
                                   {"text", fmt::format("rank {} (pid {}) died", rank, pid)}});
  EXPECT_TRUE(answer) << answer.error().text;
}
inline void expect_all(const Node& node, const std::string& job) {
  const auto answer = cli::ask({node.endpoint()}, {{"command", "expect_all"}, {"job", job}});
  EXPECT_TRUE(answer) << answer.error().text;
}

// tests/fault/fault_rank.cpp as a process.
class FaultRank : public PipedProcess {
 public:
  // `fault`: a value of MUSTER_FAULT_AT; empty: none.
  FaultRank(const std::string& endpoint, const std::string& job, int rank, int world, int victim,
            const std::vector<std::string>& steps, const std::string& fault)
      : PipedProcess(MUSTER_RANK_PROGRAM, words_of(endpoint, job, rank, world, victim, steps),
                     {fault.empty() ? std::vector<std::string>{} : std::vector{"MUSTER_FAULT_AT=" + fault},
                      60'000, 0}) {}

  // Lets it begin, if it is still there. This program ignores SIGPIPE: see FaultJob.
  void go() const { static_cast<void>(tell("")); }

 private:
  static std::vector<std::string> words_of(const std::string& endpoint, const std::string& job, int rank,
                                           int world, int victim, const std::vector<std::string>& steps) {
    std::vector<std::string> words = {
        "fault_rank", endpoint, job, std::to_string(rank), std::to_string(world), std::to_string(victim)};
    words.insert(words.end(), steps.begin(), steps.end());
    return words;
  }
};

// The last line of a rank.
struct Ending {
  std::string how;  // "lost", "parted", "left", "wrong", or what else it said
  std::string step, status, text;
  std::int64_t called_ns = 0, heard_ns = 0;
  std::string line;
};
inline Ending ending_of(const std::string& line) {
  Ending e;
  e.line = line;
  std::istringstream words(line);
  words >> e.how;
  if (e.how == "lost") words >> e.step;
  words >> e.status >> e.called_ns >> e.heard_ns;
  std::getline(words, e.text);
  return e;
}

// Owns    the ranks.
// Thread  one.
// Bound   -
// Fails   -
struct FaultJob {
  static constexpr int kWorld = 3;

  // The others attach before the victim does, because a death is reported to attached ranks.
  FaultJob(const Node& node, const std::string& job, int victim, const std::vector<std::string>& steps,
           const std::string& fault)
      : victim_rank(victim), late(steps.front() == "late"), ranks(kWorld) {
    std::signal(SIGPIPE, SIG_IGN);
    const auto start = [&](int rank, const std::string& its) {
      ranks[static_cast<std::size_t>(rank)] =
          std::make_unique<FaultRank>(node.endpoint(), job, rank, kWorld, victim, steps, its);
    };
    for (int rank = 0; rank < kWorld; ++rank)
      if (rank != victim) start(rank, {});
    for (FaultRank* rank : survivors()) EXPECT_EQ(rank->line(), "attached");
    start(victim, fault);
    first_line = this->victim().line();
    for (const auto& rank : ranks) rank->go();
  }
  // "at POINT NANOSECONDS", if the victim has come there.
  std::string at_point() {
    if (late) await_sleep(), victim().go();
    const std::string line = first_line == "attached" ? victim().line() : first_line;
    for (FaultRank* rank : survivors()) rank->go();
    return line;
  }
  // The victim's ending, once it goes on.
  Ending ending_of_victim() {
    const std::string line = victim().line();
    return ending_of(line == "attached" ? victim().line() : line);
  }
  FaultRank& victim() { return *ranks[static_cast<std::size_t>(victim_rank)]; }
  std::vector<FaultRank*> survivors() {
    std::vector<FaultRank*> others;
    for (int rank = 0; rank < kWorld; ++rank)
      if (rank != victim_rank) others.push_back(ranks[static_cast<std::size_t>(rank)].get());
    return others;
  }

  // The others sleep, for three looks in a row.
  void await_sleep() {
    for (int looks = 0, i = 0; looks < 3 && i < 1000; ++i, usleep(10'000)) {
      bool all = true;
      for (const FaultRank* rank : survivors()) all = all && rank->state() == 'S';
      looks = all ? looks + 1 : 0;
    }
  }

  int victim_rank;
  bool late;               // the victim comes last
  std::string first_line;  // of the victim
  std::vector<std::unique_ptr<FaultRank>> ranks;
};

}  // namespace muster::test
