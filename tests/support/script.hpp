// A rank as a process of its own that does what a test tells it.
#pragma once

#include <csignal>
#include <sstream>
#include <string>
#include <vector>

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::test {

constexpr int kScriptDeadlineMs = 500;

// tests/system/scripted_rank.cpp as a process: its script goes in as arguments and by standard input.
class Script {
 public:
  Script(const std::string& endpoint, int rank, int world, const std::string& mesh,
         std::vector<std::string> steps, int deadline_ms = kScriptDeadlineMs) {
    int in[2];
    int out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC), 0);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in[0], 0);
    posix_spawn_file_actions_adddup2(&actions, out[1], 1);
    steps.insert(steps.begin(), {"scripted_rank", endpoint, "job", std::to_string(rank),
                                 std::to_string(world), mesh, std::to_string(deadline_ms)});
    std::vector<char*> arguments;
    for (std::string& step : steps) arguments.push_back(step.data());
    arguments.push_back(nullptr);
    EXPECT_EQ(posix_spawn(&pid_, MUSTER_RANK_PROGRAM, &actions, nullptr, arguments.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    output_ = out[0];
  }
  ~Script() {
    ::kill(pid_, SIGKILL);
    ::kill(pid_, SIGCONT);
    waitpid(pid_, nullptr, 0);
    ::close(input_);
    ::close(output_);
  }
  Script(const Script&) = delete;
  Script& operator=(const Script&) = delete;

  std::string line() {
    std::string text;
    char c = 0;
    pollfd entry{output_, POLLIN, 0};
    while (poll(&entry, 1, 30'000) == 1 && read(output_, &c, 1) == 1 && c != '\n') text += c;
    return text;
  }
  bool silent_for(int ms) const {
    pollfd entry{output_, POLLIN, 0};
    return poll(&entry, 1, ms) == 0;
  }
  void go_on() const { tell(""); }
  // A step for one that listens.
  void tell(const std::string& step) const {
    const std::string line = step + "\n";
    EXPECT_EQ(write(input_, line.data(), line.size()), static_cast<ssize_t>(line.size()));
  }
  void kill(int signal) const { ::kill(pid_, signal); }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
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
