#include "daemon/cli/attention.hpp"

#include "daemon/cli/child.hpp"

#include <algorithm>
#include <cerrno>

#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace muster::cli {
namespace {

// Whether this process is in the foreground of its terminal.
bool in_foreground() {
  return isatty(STDIN_FILENO) == 1 && tcgetpgrp(STDIN_FILENO) == getpgrp();
}

}  // namespace

Attention::Attention(Keys keys) : keys_(keys) {
  sigset_t heard;
  sigemptyset(&heard);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
    if (!stays_ignored(number)) sigaddset(&heard, number);
  if (keys_ == Keys::kHeard) {
    if (!stays_ignored(SIGTSTP)) sigaddset(&heard, SIGTSTP);
    sigaddset(&heard, SIGCONT);
  }
  signals_.reset(signalfd(-1, &heard, SFD_CLOEXEC | SFD_NONBLOCK));
  sigprocmask(SIG_SETMASK, nullptr, &before_);
  if (signals_.valid()) sigprocmask(SIG_BLOCK, &heard, nullptr);
  take_terminal();
}

Attention::~Attention() {
  give_terminal_back();
  sigprocmask(SIG_SETMASK, &before_, nullptr);
}

// Without signals a Ctrl-C would leave the terminal changed, so it stays unchanged then.
void Attention::take_terminal() {
  if (keys_ == Keys::kIgnored || terminal_ || !signals_.valid() || !in_foreground()) return;
  termios settings{};
  if (tcgetattr(STDIN_FILENO, &settings) != 0) return;
  const termios as_it_was = settings;
  settings.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
  settings.c_cc[VMIN] = 1;
  settings.c_cc[VTIME] = 0;
  if (tcsetattr(STDIN_FILENO, TCSANOW, &settings) == 0) terminal_ = as_it_was;
}

void Attention::give_terminal_back() {
  if (terminal_ && in_foreground()) tcsetattr(STDIN_FILENO, TCSANOW, &*terminal_);
  terminal_.reset();
}

// For Ctrl-Z. Raises the signal again with its default action: if a shell can say `fg`, this process stops
// here, and continues here.
void Attention::stop_for_a_while() {
  give_terminal_back();
  sigset_t stop;
  sigemptyset(&stop);
  sigaddset(&stop, SIGTSTP);
  raise(SIGTSTP);
  sigprocmask(SIG_UNBLOCK, &stop, nullptr);
  sigprocmask(SIG_BLOCK, &stop, nullptr);
  take_terminal();
}

bool Attention::signal_ends() {
  signalfd_siginfo info{};
  if (read(signals_.get(), &info, sizeof info) != sizeof info) return false;
  const auto number = static_cast<int>(info.ssi_signo);
  if (number == SIGTSTP) return stop_for_a_while(), false;
  if (number == SIGCONT) return take_terminal(), false;  // `fg` of a process that began in the background
  exit_code_ = 128 + number;
  return true;
}

bool Attention::key_ends() {
  char key = 0;
  const ssize_t n = read(STDIN_FILENO, &key, 1);
  if (n == 0 || (n < 0 && errno != EINTR && errno != EAGAIN)) keyboard_ended_ = true;
  if (n != 1) return false;
  if (key != 'q' && key != 'Q') {
    if (typed_.size() < kTypedMax) typed_ += key;
    return false;
  }
  exit_code_ = 0;
  return true;
}

// Waits once. Nothing: a signal or a key that ends nothing.
std::optional<Attention::Came> Attention::look(int descriptor, Instant deadline, const Clock& clock) {
  const bool listening = terminal_ && !keyboard_ended_ && in_foreground();
  pollfd entries[] = {{.fd = descriptor, .events = POLLIN, .revents = 0},
                      {.fd = signals_.get(), .events = POLLIN, .revents = 0},
                      {.fd = listening ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0}};
  const Nanos left = std::max(deadline - clock.now(), Nanos(0));
  const timespec time{.tv_sec = static_cast<time_t>(left.count() / 1'000'000'000),
                      .tv_nsec = static_cast<long>(left.count() % 1'000'000'000)};
  const int ready = ppoll(entries, 3, &time, nullptr);
  if (ready > 0 && entries[1].revents != 0 && signal_ends()) return Came::kUserEnds;
  if (ready > 0 && entries[2].revents != 0 && key_ends()) return Came::kUserEnds;
  if (ready > 0 && entries[0].revents != 0) return Came::kReady;
  return clock.now() >= deadline ? std::optional(Came::kDeadline) : std::nullopt;
}

Attention::Came Attention::wait(int descriptor, Instant deadline, const Clock& clock) {
  while (true)
    if (const auto came = look(descriptor, deadline, clock)) return *came;
}

Attention::Came Attention::wait_for_key(Instant deadline, const Clock& clock) {
  while (typed_.empty())
    if (const auto came = look(-1, deadline, clock)) return *came;
  key_ = typed_.front();
  typed_.erase(0, 1);
  return Came::kKey;
}

}  // namespace muster::cli
