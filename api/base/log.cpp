#include "api/base/log.hpp"

#include "api/base/utf8.hpp"

#include <algorithm>
#include <atomic>
#include <climits>
#include <ctime>
#include <mutex>
#include <string>

#include <poll.h>
#include <unistd.h>

namespace muster::log {
namespace {

std::atomic<Level> g_level{Level::kOff};
std::atomic<Format> g_format{Format::kText};
std::mutex g_site_mutex;  // of all sites: a line costs a system call anyway

constexpr std::size_t kLineBytesMax = 4096;
static_assert(kLineBytesMax <= PIPE_BUF, "a line is written whole or not at all");

const char* level_word(Level level) {
  switch (level) {
    case Level::kDebug:
      return "debug";
    case Level::kInfo:
      return "info";
    case Level::kWarning:
      return "warning";
    case Level::kError:
      return "error";
    case Level::kOff:
      return "off";
  }
  return "off";
}

int journal_priority(Level level) {
  switch (level) {
    case Level::kDebug:
      return 7;
    case Level::kInfo:
      return 6;
    case Level::kWarning:
      return 4;
    case Level::kError:
    case Level::kOff:
      return 3;
  }
  return 3;
}

// Appends text until `line` has bytes_max bytes, cut between characters. Replaces control characters and line
// separators, with which a client's text could forge a second line or drive a terminal. Replaces bytes that
// are no UTF-8 too: they would make a JSON line unreadable.
void append(std::string& line, std::string_view text, Format format, std::size_t bytes_max) {
  while (!text.empty()) {
    const std::size_t count = utf8_length(text, 0);
    const std::string_view character = text.substr(0, std::max<std::size_t>(count, 1));
    const auto first = static_cast<unsigned char>(character[0]);
    std::string piece(character);
    if (count == 0) {
      piece = "?";
    } else if (first < 0x80 && control_bytes(character, 0) > 0) {
      piece = format == Format::kJson ? fmt::format("\\u{:04x}", first) : " ";
    } else if (control_bytes(character, 0) > 0 || character == "\u2028" || character == "\u2029") {
      piece = " ";
    } else if (format == Format::kJson && (first == '"' || first == '\\')) {
      piece.insert(piece.begin(), '\\');
    }
    if (line.size() + piece.size() > bytes_max) return;
    line += piece;
    text.remove_prefix(character.size());
  }
}

std::string wall_time() {
  timespec ts{};
  clock_gettime(CLOCK_REALTIME, &ts);
  tm parts{};
  gmtime_r(&ts.tv_sec, &parts);
  char text[32];
  const std::size_t n = std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &parts);
  return fmt::format("{}.{:03d}Z", std::string_view(text, n), ts.tv_nsec / 1000000);
}

std::string line_of(Format format, Level level, std::string_view part, std::string_view message,
                    std::uint32_t dropped) {
  std::string line;
  std::string end = dropped == 0 ? "" : fmt::format(" ({} similar lines dropped)", dropped);
  switch (format) {
    case Format::kJournal:
      line = fmt::format("<{}>{}: ", journal_priority(level), part);
      break;
    case Format::kJson:
      line = fmt::format(R"({{"time":"{}","level":"{}","part":"{}","pid":{},"message":")", wall_time(),
                         level_word(level), part, getpid());
      end += "\"}";
      break;
    case Format::kText:
      line = fmt::format("{} {:<7} {}[{}]: ", wall_time(), level_word(level), part, getpid());
      break;
  }
  end += '\n';
  append(line, message, format, kLineBytesMax - end.size());
  return line + end;
}

// True if a line can be written now. poll(2) calls a pipe writable only if a whole line fits. A pipe without
// a reader is refused here: a write would raise SIGPIPE.
bool writable(int descriptor) {
  pollfd poller{.fd = descriptor, .events = POLLOUT, .revents = 0};
  return poll(&poller, 1, 0) == 1 && (poller.revents & (POLLERR | POLLHUP | POLLNVAL)) == 0;
}

}  // namespace

void configure(Level level, Format format) noexcept {
  g_level.store(level, std::memory_order_relaxed);
  g_format.store(format, std::memory_order_relaxed);
}

bool enabled(Level level) noexcept {
  return level != Level::kOff && level >= g_level.load(std::memory_order_relaxed);
}

bool parse_level(std::string_view word, Level* level) noexcept {
  for (const Level candidate : {Level::kDebug, Level::kInfo, Level::kWarning, Level::kError, Level::kOff}) {
    if (word == level_word(candidate)) {
      *level = candidate;
      return true;
    }
  }
  return false;
}

bool parse_format(std::string_view word, Format* format) noexcept {
  if (word == "text")
    *format = Format::kText;
  else if (word == "json")
    *format = Format::kJson;
  else if (word == "journal")
    *format = Format::kJournal;
  else
    return false;
  return true;
}

bool Site::admit(std::int64_t now_ns, std::uint32_t* dropped) noexcept {
  const std::int64_t window = now_ns / 1000000000;
  if (window != window_) {
    window_ = window;
    used_ = 0;
  }
  if (used_ == kLinesPerSecond) {
    ++dropped_;
    return false;
  }
  ++used_;
  *dropped = dropped_;
  dropped_ = 0;
  return true;
}

void write(Site& site, Level level, std::string_view part, std::string_view message) noexcept {
  timespec ts{};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  std::uint32_t dropped = 0;
  {
    const std::lock_guard lock(g_site_mutex);
    if (!site.admit(ts.tv_sec * std::int64_t{1000000000} + ts.tv_nsec, &dropped)) return;
  }
  const std::string line = line_of(g_format.load(std::memory_order_relaxed), level, part, message, dropped);
  // A full pipe or a closed descriptor costs the line, never the program.
  if (!writable(STDERR_FILENO)) return;
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace muster::log
