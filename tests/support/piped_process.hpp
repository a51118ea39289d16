// A process that a test talks to by its standard input and output.
#pragma once

#include <cerrno>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::test {

// Owns    the process, which ends with it, and its pipes.
// Thread  one at a time.
// Bound   a line is waited for `patience_ms`.
// Fails   the constructor fails the test.
class PipedProcess {
 public:
  struct Options {
    std::vector<std::string> settings;  // "NAME=value" beside this process's environment
    int patience_ms = 30'000;
    pid_t number = 0;  // that it is to have, free, in a namespace whose numbers this process may set; 0: any
  };
  // `words`: the program's name and its arguments.
  PipedProcess(const std::string& program, std::vector<std::string> words, Options options)
      : patience_ms_(options.patience_ms) {
    int in[2];
    int out[2];
    EXPECT_EQ(pipe2(in, O_CLOEXEC) + pipe2(out, O_CLOEXEC), 0);
    for (char** entry = environ; *entry != nullptr; ++entry) options.settings.emplace_back(*entry);
    const auto arguments = list_of(words);
    const auto environment = list_of(options.settings);
    pid_ = options.number == 0 ? spawn(program.c_str(), arguments.data(), environment.data(), in[0], out[1])
                               : spawn_as(options.number, program.c_str(), arguments.data(),
                                          environment.data(), in[0], out[1]);
    EXPECT_GT(pid_, 0) << program << ": " << std::strerror(errno);
    ::close(in[0]);
    ::close(out[1]);
    input_ = in[1];
    output_ = out[0];
  }
  PipedProcess(const std::string& program, std::vector<std::string> words)
      : PipedProcess(program, std::move(words), Options{}) {}
  ~PipedProcess() {
    if (pid_ > 0) {
      ::kill(pid_, SIGKILL);
      ::kill(pid_, SIGCONT);
      waitpid(pid_, nullptr, 0);
    }
    ::close(input_);
    ::close(output_);
  }
  PipedProcess(const PipedProcess&) = delete;
  PipedProcess& operator=(const PipedProcess&) = delete;

  std::string line() {
    std::string text;
    char c = 0;
    pollfd entry{output_, POLLIN, 0};
    while (poll(&entry, 1, patience_ms_) == 1 && read(output_, &c, 1) == 1 && c != '\n') text += c;
    return text;
  }
  bool silent_for(int ms) const {
    pollfd entry{output_, POLLIN, 0};
    return poll(&entry, 1, ms) == 0;
  }
  // False if it is gone; for that a test ignores SIGPIPE.
  bool tell(const std::string& line) const {
    const std::string whole = line + "\n";
    return write(input_, whole.data(), whole.size()) == static_cast<ssize_t>(whole.size());
  }
  void kill(int signal) const { ::kill(pid_, signal); }
  // Until it has stopped, or ended.
  bool await_stop() const {
    int status = 0;
    return waitpid(pid_, &status, WUNTRACED) == pid_ && WIFSTOPPED(status);
  }
  // Its exit code, or 128 and its signal.
  int wait() {
    int status = 0;
    waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  pid_t pid() const { return pid_; }
  // As the kernel has it: R, S, T, …
  char state() const {
    std::ifstream file(fmt::format("/proc/{}/stat", pid_));
    std::string text;
    std::getline(file, text);
    const auto end = text.rfind(')');
    return end == std::string::npos ? '?' : text[end + 2];
  }

 private:
  static std::vector<char*> list_of(std::vector<std::string>& texts) {
    std::vector<char*> list;
    for (std::string& text : texts) list.push_back(text.data());
    list.push_back(nullptr);
    return list;
  }
  static pid_t spawn(const char* program, char* const* arguments, char* const* environment, int in, int out) {
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, in, 0);
    posix_spawn_file_actions_adddup2(&actions, out, 1);
    pid_t pid = -1;
    errno = posix_spawn(&pid, program, &actions, nullptr, arguments, environment);
    posix_spawn_file_actions_destroy(&actions);
    return errno == 0 ? pid : -1;
  }
  static pid_t spawn_as(pid_t number, const char* program, char* const* arguments, char* const* environment,
                        int in, int out) {
    clone_args how{};
    how.exit_signal = SIGCHLD;
    how.set_tid = reinterpret_cast<std::uintptr_t>(&number);
    how.set_tid_size = 1;
    const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &how, sizeof how));
    if (pid != 0) return pid;
    dup2(in, 0);
    dup2(out, 1);
    execve(program, arguments, environment);
    _exit(127);
  }

  int patience_ms_;
  pid_t pid_ = -1;
  int input_ = -1;
  int output_ = -1;
};

}  // namespace muster::test
