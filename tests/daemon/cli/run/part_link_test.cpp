#include "daemon/cli/run/part_link.hpp"

#include <csignal>
#include <vector>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;

// Standard input of this process as a pipe, on which a test writes a head's lines.
class StandardInput : public ::testing::Test {
 protected:
  StandardInput() : kept_(dup(STDIN_FILENO)) {
    EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0);
    dup2(ends_[0], STDIN_FILENO);
    close(ends_[0]);
  }
  ~StandardInput() override {
    end();
    kept_ >= 0 ? dup2(kept_, STDIN_FILENO) : close(STDIN_FILENO);
    if (kept_ >= 0) close(kept_);
  }
  void say(const std::string& text) const {
    ASSERT_EQ(write(ends_[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  void end() {
    if (ends_[1] >= 0) close(std::exchange(ends_[1], -1));
  }
  void turn() {
    while (loop_.turn()) {
    }
  }

  int kept_;
  int ends_[2] = {-1, -1};
  control::Loop loop_;
  std::vector<int> heard_;
  int ended_ = 0;
};

TEST_F(StandardInput, SaysSignalsAndItsEnd) {
  const HeadLink link(loop_, {[this](int signal) { heard_.push_back(signal); }, [this] { ++ended_; }});
  say(signal_line(SIGINT) + signal_line(SIGSTOP) + "CO");
  turn();
  EXPECT_THAT(heard_, ElementsAre(SIGINT, SIGSTOP)) << "half a line is none";
  say("NT\nSEGV\n\n-9\nint\n" + std::string(5000, 'x'));
  turn();
  say("\n" + signal_line(SIGKILL));
  turn();
  EXPECT_THAT(heard_, ElementsAre(SIGINT, SIGSTOP, SIGCONT, SIGKILL)) << "what is no word of ours is skipped";
  EXPECT_EQ(ended_, 0);
  end();
  turn();
  turn();
  EXPECT_EQ(ended_, 1);
}

TEST_F(StandardInput, HasEndedIfThereIsNone) {
  close(STDIN_FILENO);
  const HeadLink link(loop_, {[this](int signal) { heard_.push_back(signal); }, [this] { ++ended_; }});
  turn();
  EXPECT_EQ(ended_, 1);
}

TEST(PartLink, AFailureStandsBetweenOtherLines) {
  std::string lines = "[1] before\n" + failure_line({7, 65535}) + "[1] after\n";
  const auto told = take_failure(&lines);
  ASSERT_TRUE(told);
  EXPECT_EQ(told->code, 7);
  EXPECT_EQ(told->rank, 65535u);
  EXPECT_EQ(lines, "[1] before\n[1] after\n");
  EXPECT_FALSE(take_failure(&lines));
}

TEST(PartLink, WhatIsNoFailureStays) {
  const std::string good = failure_line({1, 2});
  const std::string head = good.substr(0, good.size() - 4);
  for (const std::string& text :
       {"[1] " + good, head + "0 1\n", head + "256 1\n", head + "1\n", head + "1 \n", head + "1 2 3\n",
        head + "1 -2\n", head + "1 2", std::string("\x1e\n")}) {
    std::string lines = text;
    EXPECT_FALSE(take_failure(&lines)) << text;
    EXPECT_EQ(lines, text);
  }
}

}  // namespace
}  // namespace muster::cli
