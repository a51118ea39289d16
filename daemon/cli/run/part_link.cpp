#include "daemon/cli/run/part_link.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace muster::cli {
namespace {

constexpr std::array kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGSTOP, SIGCONT, SIGKILL};
// The record separator of ASCII begins no line that a rank means to print.
constexpr std::string_view kRecord =
    "\x1e"
    "muster-failure ";

// Two numbers with a blank between, and nothing else.
std::optional<ToldFailure> failure_in(std::string_view text) {
  ToldFailure failure;
  const char* const end = text.data() + text.size();
  const auto code = std::from_chars(text.data(), end, failure.code);
  if (code.ec != std::errc() || code.ptr == end || *code.ptr != ' ') return std::nullopt;
  const auto rank = std::from_chars(code.ptr + 1, end, failure.rank);
  if (rank.ec != std::errc() || rank.ptr != end || failure.code < 1 || failure.code > 255)
    return std::nullopt;
  return failure;
}

}  // namespace

std::string signal_line(int signal) {
  return fmt::format("{}\n", sigabbrev_np(signal));
}

std::string failure_line(const ToldFailure& failure) {
  return fmt::format("{}{} {}\n", kRecord, failure.code, failure.rank);
}

std::optional<ToldFailure> take_failure(std::string* lines) {
  for (std::size_t at = 0; (at = lines->find(kRecord, at)) != std::string::npos; ++at) {
    const std::size_t end = lines->find('\n', at);
    if (end == std::string::npos || (at > 0 && (*lines)[at - 1] != '\n')) continue;
    const std::size_t begin = at + kRecord.size();
    const auto failure = failure_in(std::string_view(*lines).substr(begin, end - begin));
    if (!failure) continue;
    lines->erase(at, end + 1 - at);
    return failure;
  }
  return std::nullopt;
}

HeadLink::HeadLink(control::Loop& loop, Events events) : loop_(loop), events_(std::move(events)) {
  const bool open = fcntl(STDIN_FILENO, F_GETFD) >= 0;
  watch_ = open ? loop_.watch(STDIN_FILENO, [this] { on_readable(); })
                : loop_.after(Nanos(0), [this] { events_.on_end(); });
}

void HeadLink::on_readable() {
  std::array<char, 256> bytes{};
  const ssize_t n = read(STDIN_FILENO, bytes.data(), bytes.size());
  if (n < 0 && (errno == EINTR || errno == EAGAIN)) return;
  if (n <= 0) {
    loop_.unwatch(std::exchange(watch_, 0));
    return events_.on_end();
  }
  for (const char c : std::string_view(bytes.data(), static_cast<std::size_t>(n))) {
    if (c != '\n') {
      if (line_.size() <= kLineBytesMax) line_ += c;
      continue;
    }
    const std::string line = std::exchange(line_, {});
    const auto signal = std::find_if(kSignals.begin(), kSignals.end(),
                                     [&line](int number) { return line == sigabbrev_np(number); });
    if (signal != kSignals.end()) events_.on_signal(*signal);
  }
}

}  // namespace muster::cli
