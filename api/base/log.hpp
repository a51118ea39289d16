// Structured log to standard error: one line per fact, bounded in length, rate-limited per call site.
//
//   MUSTER_LOG(kWarning, "engine", "job {} restarted {} times; it is not restarted again", name, count);
//
// Formats: text (a time, a level, the part, the sentence), json (one object per line), journal (sd-daemon's
// <N> prefix).
#pragma once

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

namespace muster::log {

enum class Level : std::uint8_t { kDebug, kInfo, kWarning, kError, kOff };
enum class Format : std::uint8_t { kText, kJson, kJournal };

// Process-wide; set once at start, before threads. Until then, and so always in libmuster, kOff.
void configure(Level level, Format format) noexcept;
bool enabled(Level level) noexcept;

// "debug", "info", "warning", "error", "off"; false for another word.
bool parse_level(std::string_view word, Level* level) noexcept;
// "text", "json", "journal"; false for another word.
bool parse_format(std::string_view word, Format* format) noexcept;

// The rate limit of one call site. The next line that passes says how many were dropped before it.
//
// Owns    its counts.
// Thread  one at a time; write() sees to it.
// Bound   kLinesPerSecond lines in each second of the clock.
// Fails   never.
class Site {
 public:
  static constexpr std::uint32_t kLinesPerSecond = 20;
  // True if the line may be written; *dropped is the number of lines suppressed since the last that passed.
  bool admit(std::int64_t now_ns, std::uint32_t* dropped) noexcept;

 private:
  std::int64_t window_ = -1;
  std::uint32_t used_ = 0;
  std::uint32_t dropped_ = 0;
};

// Writes one line of at most 4096 bytes with one write(2), so lines of several processes do not interleave.
// Control characters and bytes that are no UTF-8 are replaced, and a long message is cut. Any thread. Never
// waits for a reader: a line for which a full pipe has no room is lost. `part` names the subsystem.
void write(Site& site, Level level, std::string_view part, std::string_view message) noexcept;

}  // namespace muster::log

#define MUSTER_LOG(level, part, ...)                                                                      \
  do {                                                                                                    \
    if (::muster::log::enabled(::muster::log::Level::level)) {                                            \
      static ::muster::log::Site muster_log_site;                                                         \
      ::muster::log::write(muster_log_site, ::muster::log::Level::level, part, fmt::format(__VA_ARGS__)); \
    }                                                                                                     \
  } while (false)
