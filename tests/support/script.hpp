// A rank as a process of its own that does what a test tells it.
#pragma once

#include "tests/support/piped_process.hpp"

#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace muster::test {

constexpr int kScriptDeadlineMs = 500;

// tests/system/scripted_rank.cpp as a process: its script goes in as arguments and by standard input.
class Script : public PipedProcess {
 public:
  Script(const std::string& endpoint, int rank, int world, const std::string& mesh,
         std::vector<std::string> steps, int deadline_ms = kScriptDeadlineMs, const std::string& job = "job")
      : PipedProcess(MUSTER_RANK_PROGRAM,
                     words_of(endpoint, job, rank, world, mesh, std::move(steps), deadline_ms)) {}

  void go_on() const { tell(""); }
  // A step for one that listens.
  void tell(const std::string& step) const { EXPECT_TRUE(PipedProcess::tell(step)) << step; }

 private:
  static std::vector<std::string> words_of(const std::string& endpoint, const std::string& job, int rank,
                                           int world, const std::string& mesh, std::vector<std::string> steps,
                                           int deadline_ms) {
    steps.insert(steps.begin(), {"scripted_rank", endpoint, job, std::to_string(rank), std::to_string(world),
                                 mesh, std::to_string(deadline_ms)});
    return steps;
  }
};

struct Ended {  // one line of a script
  std::string step, status, text;
  int ms = -1;
};
inline Ended ended(const std::string& line) {
  Ended e;
  std::istringstream words(line);
  words >> e.step >> e.status >> e.ms;
  std::getline(words, e.text);
  return e;
}

}  // namespace muster::test
