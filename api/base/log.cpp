#include "api/base/log.hpp"

#include <atomic>
#include <ctime>
#include <mutex>
#include <string>
#include <unistd.h>

namespace muster::log {
namespace {

std::atomic<Level> g_level{Level::kOff};
std::atomic<Format> g_format{Format::kText};
std::mutex g_site_mutex;  // sites are touched rarely: a line costs a system call anyway

constexpr std::size_t kLineBytesMax = 4096;

const char* level_word(Level level) {
  switch (level) {
    case Level::kDebug: return "debug";
    case Level::kInfo: return "info";
    case Level::kWarning: return "warning";
    case Level::kError: return "error";
    case Level::kOff: return "off";
  }
  return "off";
}

int journal_priority(Level level) {
  switch (level) {
    case Level::kDebug: return 7;
    case Level::kInfo: return 6;
    case Level::kWarning: return 4;
    case Level::kError:
    case Level::kOff: return 3;
  }
  return 3;
}

std::string escaped(std::string_view text) {
  std::string out;
  out.reserve(text.size() + 2);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20) {
      out += fmt::format("\\u{:04x}", byte);
    } else {
      out += c;
    }
  }
  return out;
}

// Control characters would let a client's text forge a second log line.
std::string one_line(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';
  return out;
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

std::string line_of(Format format, Level level, std::string_view part, std::string_view message, std::uint32_t dropped) {
  const std::string tail = dropped == 0 ? "" : fmt::format(" ({} similar lines dropped)", dropped);
  switch (format) {
    case Format::kJournal:
      return fmt::format("<{}>{}: {}{}\n", journal_priority(level), part, one_line(message), tail);
    case Format::kJson:
      return fmt::format("{{\"time\":\"{}\",\"level\":\"{}\",\"part\":\"{}\",\"pid\":{},\"message\":\"{}{}\"}}\n",
                         wall_time(), level_word(level), escaped(part), getpid(), escaped(message), tail);
    case Format::kText: break;
  }
  return fmt::format("{} {:<7} {}[{}]: {}{}\n", wall_time(), level_word(level), part, getpid(), one_line(message), tail);
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
  if (word == "text") *format = Format::kText;
  else if (word == "json") *format = Format::kJson;
  else if (word == "journal") *format = Format::kJournal;
  else return false;
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
  std::string line = line_of(g_format.load(std::memory_order_relaxed), level, part, message, dropped);
  if (line.size() > kLineBytesMax) {
    line.resize(kLineBytesMax - 1);
    line += '\n';
  }
  // A full pipe or a closed descriptor costs the line, never the program.
  [[maybe_unused]] const auto written = ::write(STDERR_FILENO, line.data(), line.size());
}

}  // namespace muster::log
