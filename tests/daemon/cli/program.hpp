// Runs our programs as a user would: with arguments, a clean environment, and their output in hand.
#pragma once

#include "tests/support/folder.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <grp.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace muster::test {

using Json = nlohmann::json;

constexpr int kPatienceMs = 60000;  // a bound for a machine under load, not an expectation

inline std::string program(const std::string& name) {
  return std::string(MUSTER_PROGRAMS) + "/" + name;
}

// A copy of a program of ours that any user may run: the tree may lie in a home that is closed to others.
class PublicProgram {
 public:
  explicit PublicProgram(const std::string& name) : path_(folder_.path() + "/" + name) {
    std::filesystem::copy_file(program(name), path_);
    std::filesystem::permissions(folder_.path(), std::filesystem::perms(0755));
  }
  const std::string& path() const { return path_; }

 private:
  Folder folder_;
  std::string path_;
};

// In a child, before it runs a program: root may do everything, so it becomes somebody else.
inline void give_up_root() {
  if (geteuid() == 0 && (setgroups(0, nullptr) != 0 || setgid(65534) != 0 || setuid(65534) != 0)) _exit(98);
}

struct Ran {
  int code = -1;  // 128 + signal for a killed program, as a shell says
  std::string out;
  std::string err;
  Json json() const { return Json::parse(out, nullptr, false); }
};

struct Start {
  std::vector<std::string> arguments;
  std::vector<std::string> environment;  // besides PATH
  std::function<void()> in_child;        // before exec
};

// However this test was started; but a mutant goes along (tests/mutants).
inline std::vector<std::string> clean_environment() {
  std::vector<std::string> environment{"PATH=/usr/bin:/bin"};
  if (const char* mutant = std::getenv("MUSTER_MUTANT"))
    environment.push_back(std::string("MUSTER_MUTANT=") + mutant);
  return environment;
}

// A program that runs, its output in memory files.
class Running {
 public:
  explicit Running(const Start& start) {
    out_ = memfd_create("out", MFD_CLOEXEC);
    err_ = memfd_create("err", MFD_CLOEXEC);
    std::vector<std::string> environment = clean_environment();
    environment.insert(environment.end(), start.environment.begin(), start.environment.end());
    const auto arguments = pointers(start.arguments);
    const auto variables = pointers(environment);
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
      dup2(out_, STDOUT_FILENO);
      dup2(err_, STDERR_FILENO);
      // However this test was started.
      for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTSTP}) std::signal(number, SIG_DFL);
      if (start.in_child) start.in_child();
      execve(arguments[0], arguments.data(), variables.data());
      _exit(99);
    }
    pidfd_ = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
  }
  ~Running() {
    if (!ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    for (const int fd : {out_, err_, pidfd_}) close(fd);
  }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

  pid_t pid() const { return pid_; }
  void signal(int number) const { kill(pid_, number); }
  std::string out() const { return contents(out_); }
  std::string err() const { return contents(err_); }

  // Until the text has been printed; false if the program ends first or takes too long.
  bool printed(const std::string& text) const {
    for (int waited = 0; waited < kPatienceMs; waited += 5) {
      if (out().find(text) != std::string::npos) return true;
      pollfd entry{pidfd_, POLLIN, 0};
      if (poll(&entry, 1, 5) == 1) return out().find(text) != std::string::npos;
    }
    return false;
  }

  Ran wait() {
    pollfd entry{pidfd_, POLLIN, 0};
    if (poll(&entry, 1, kPatienceMs) != 1) {
      ADD_FAILURE() << "the program does not end; it said: " << out() << err();
      kill(pid_, SIGKILL);
    }
    int status = 0;
    waitpid(pid_, &status, 0);
    ended_ = true;
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), out(), err()};
  }

 private:
  static std::vector<char*> pointers(const std::vector<std::string>& texts) {
    std::vector<char*> all;
    for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
    all.push_back(nullptr);
    return all;
  }
  static std::string contents(int fd) {
    const off_t size =
        lseek(fd, 0, SEEK_END) >= 0 ? std::filesystem::file_size("/proc/self/fd/" + std::to_string(fd)) : 0;
    std::string text(static_cast<std::size_t>(size), '\0');
    const ssize_t n = pread(fd, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
    return text;
  }

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  int pidfd_ = -1;
  bool ended_ = false;
};

inline Ran run(const Start& start) {
  return Running(start).wait();
}

inline Ran muster(std::vector<std::string> arguments, std::vector<std::string> environment = {}) {
  arguments.insert(arguments.begin(), program("muster"));
  return run({std::move(arguments), std::move(environment), {}});
}

// A musterd at a socket of its own.
class Daemon {
 public:
  explicit Daemon(std::vector<std::string> more = {}, std::function<void()> in_child = {})
      : socket_(folder_.path() + "/run/ranks/musterd.sock") {
    std::vector<std::string> arguments{program("musterd"), "--transient", "--directory",
                                       folder_.path() + "/run"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    running_ = std::make_unique<Running>(Start{arguments, {}, std::move(in_child)});
    for (int waited = 0; waited < kPatienceMs; waited += 10) {
      if (muster({"status", "--endpoint", socket_}).code == 0) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    ADD_FAILURE() << "musterd does not answer: " << running_->err();
  }
  ~Daemon() {
    if (running_) stop();
  }
  Ran stop() {
    running_->signal(SIGTERM);
    const Ran ran = running_->wait();
    running_.reset();
    return ran;
  }
  const std::string& socket() const { return socket_; }
  const Folder& folder() const { return folder_; }
  Running& running() { return *running_; }

 private:
  Folder folder_;
  std::string socket_;
  std::unique_ptr<Running> running_;
};

}  // namespace muster::test
