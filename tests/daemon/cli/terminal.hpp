// A program on a terminal: what it shows, what is typed, and how it leaves the terminal.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "tests/daemon/cli/program.hpp"

#include <pty.h>
#include <termios.h>

namespace muster::test {

// The program leads a session of its own, whose terminal this is.
class Terminal {
 public:
  explicit Terminal(const Start& start, unsigned short columns = 80) {
    winsize size{};
    size.ws_row = 40;
    size.ws_col = columns;
    std::vector<std::string> environment = clean_environment();
    environment.emplace_back("TERM=xterm");
    environment.insert(environment.end(), start.environment.begin(), start.environment.end());
    std::vector<char*> arguments, variables;
    for (const std::string& text : start.arguments) arguments.push_back(const_cast<char*>(text.c_str()));
    for (const std::string& text : environment) variables.push_back(const_cast<char*>(text.c_str()));
    arguments.push_back(nullptr);
    variables.push_back(nullptr);
    pid_ = forkpty(&master_, nullptr, nullptr, &size);
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTSTP}) std::signal(number, SIG_DFL);
      execve(arguments[0], arguments.data(), variables.data());
      _exit(99);
    }
    fcntl(master_, F_SETFL, O_NONBLOCK);
  }
  ~Terminal() {
    if (!ended_) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    close(master_);
  }
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  void signal(int number) const { kill(pid_, number); }
  void type(const std::string& text) const {
    ASSERT_EQ(write(master_, text.data(), text.size()), static_cast<ssize_t>(text.size()));
  }
  // Whether the text has been shown, since the last call that found its text.
  bool shows(const std::string& text) {
    return comes_to_be([&] {
      read_some();
      const std::size_t at = shown_.find(text, seen_);
      if (at == std::string::npos) return false;
      seen_ = at + text.size();
      return true;
    });
  }
  // Whether it comes to be that what is typed is shown, and taken by lines: how a shell wants its terminal.
  bool is_as_a_shell_wants_it(bool wanted) {
    return comes_to_be([&] {
      read_some();  // a terminal whose output nobody takes stands still
      termios settings{};
      const bool known = tcgetattr(master_, &settings) == 0;
      const auto both = static_cast<tcflag_t>(ECHO | ICANON);
      return known && ((settings.c_lflag & both) == (wanted ? both : 0));
    });
  }
  const std::string& shown() const { return shown_; }

  // Its exit code, 128 + signal.
  int wait() {
    int status = 0;
    const bool ended = comes_to_be([&] {
      read_some();
      return waitpid(pid_, &status, WNOHANG) == pid_;
    });
    EXPECT_TRUE(ended) << "the program does not end; it shows: " << shown_;
    ended_ = ended;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }

 private:
  static bool comes_to_be(const std::function<bool()>& what) {
    for (int waited = 0; waited < kPatienceMs; waited += 5) {
      if (what()) return true;
      usleep(5000);
    }
    return false;
  }
  void read_some() {
    char bytes[4096];
    for (ssize_t n = 0; (n = read(master_, bytes, sizeof bytes)) > 0;)
      shown_.append(bytes, static_cast<std::size_t>(n));
  }

  int master_ = -1;
  pid_t pid_ = -1;
  bool ended_ = false;
  std::string shown_;
  std::size_t seen_ = 0;
};

}  // namespace muster::test
