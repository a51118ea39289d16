// Two ranks of an innocent job who reduce and check every result while others misbehave.
#pragma once

#include "tests/support/contract.hpp"
#include "tests/support/cores.hpp"
#include "tests/support/holdings.hpp"
#include "tests/support/node.hpp"
#include "tests/support/piped_process.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster::test {

// Owns    the process of both ranks (bystander_ranks.cpp). SIGPIPE is ignored from the first one on.
// Thread  the test's.
// Bound   an answer of theirs is waited for half a minute.
// Fails   a failed or wrong operation of theirs fails the test.
class Bystanders {
 public:
  enum Path { kStart, kRun, kPaths };
  struct Options {
    const char* job = "bystander";
    std::uint64_t count = 4096;
    muster_lane lane = MUSTER_LANE_ALLREDUCE;
    bool runs = false;                   // they run each operation too
    int operations = 16;                 // in a row, on each path: a round, whose times are one time
    std::chrono::milliseconds pause{0};  // before each round, as there is between the steps of a training
    int core = -1;                       // to which they and their engine keep; -1: any
  };

  explicit Bystanders(const Node& node) : Bystanders(node, Options{}) {}
  // Both have come, and done their first round.
  Bystanders(const Node& node, const Options& options)
      : operations_(options.operations),
        before_(engines()),
        ranks_(MUSTER_BYSTANDER_PROGRAM, words_of(node, options)) {
    std::signal(SIGPIPE, SIG_IGN);  // if they are gone, the answer that is missing says so
    EXPECT_EQ(ranks_.line(), "ready");
    if (options.core < 0) return;
    for (const pid_t engine : engines())
      if (std::find(before_.begin(), before_.end(), engine) == before_.end())
        keep_process_to({options.core}, engine);
  }
  ~Bystanders() { stop(); }
  Bystanders(const Bystanders&) = delete;
  Bystanders& operator=(const Bystanders&) = delete;

  // Whether what they do from now on is beside a storm.
  void storm(bool on) { ask(on ? "storm 1" : "storm 0"); }
  // Each rank has done so many more rounds since now.
  void await(std::uint64_t rounds) { ask(fmt::format("await {}", rounds)); }
  std::uint64_t stop() {
    if (!stopped_) rounds_ = number_of("stop");
    stopped_ = true;
    return rounds_;
  }
  // Prints what a storm did to both paths, and holds the p99 of their rounds to what is promised of it. After
  // stop().
  void expect_undisturbed(double promised_ratio, const char* what) {
    for (const Path path : {kRun, kStart}) expect_promised(ratio(path, 0.99), promised_ratio, what);
  }
  // The time of an operation below which so large a part of the rounds stayed, beside a storm to that without
  // one, both of which there must be; printed. After stop().
  double ratio(Path path, double of) {
    const Quantile quiet = quantile(false, path, of);
    const Quantile stormy = quantile(true, path, of);
    EXPECT_GT(quiet.rounds, 0u) << "nothing was done without a storm";
    EXPECT_GT(stormy.rounds, 0u) << "nothing was done beside the storm";
    if (holds_to_contract()) {
      EXPECT_GE(std::min(quiet.rounds, stormy.rounds), kRoundsLeast) << "too few for what is promised";
    }
    const double times = stormy.ns / quiet.ns;
    std::printf(
        "an all-reduce of two ranks, %s, p%.0f of rounds of %d: %.1f us (%llu), beside the storm %.1f us "
        "(%llu), ratio %.2f\n",
        path == kRun ? "run" : "started", of * 100, operations_, quiet.ns / 1e3,
        static_cast<unsigned long long>(quiet.rounds), stormy.ns / 1e3,
        static_cast<unsigned long long>(stormy.rounds), times);
    return times;
  }

 private:
  static std::vector<std::string> words_of(const Node& node, const Options& o) {
    return {"bystander_ranks",
            node.endpoint(),
            o.job,
            std::to_string(o.count),
            std::to_string(o.lane),
            o.runs ? "1" : "0",
            std::to_string(o.operations),
            std::to_string(o.pause.count()),
            std::to_string(o.core)};
  }
  std::string ask(const std::string& line) {
    EXPECT_TRUE(ranks_.tell(line)) << line;
    const std::string answer = ranks_.line();
    EXPECT_FALSE(answer.empty() || answer.starts_with("failed")) << line << ": " << answer;
    return answer;
  }
  std::uint64_t number_of(const std::string& line) { return std::strtoull(ask(line).c_str(), nullptr, 10); }
  static constexpr std::uint64_t kRoundsLeast = 100;
  struct Quantile {
    double ns = 0;
    std::uint64_t rounds = 0;
  };
  Quantile quantile(bool stormy, Path path, double of) {
    std::istringstream words(
        ask(fmt::format("quantile {} {} {}", stormy ? 1 : 0, static_cast<int>(path), of)));
    Quantile found;
    words >> found.ns >> found.rounds;
    return found;
  }

  int operations_;             // a round
  std::vector<pid_t> before_;  // engines of others
  PipedProcess ranks_;
  bool stopped_ = false;
  std::uint64_t rounds_ = 0;
};

}  // namespace muster::test
