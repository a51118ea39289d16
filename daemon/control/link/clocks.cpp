#include "daemon/control/link/clocks.hpp"

#include "daemon/config/table.hpp"

#include <algorithm>
#include <cstdint>
#include <ctime>

namespace muster::control {
namespace {

// To the nearest minute: a text that is made anew each second stays the same, so a log need not repeat it.
std::string duration(std::chrono::seconds span) {
  const auto shown = std::chrono::round<std::chrono::minutes>(std::min(span, kTimeMax.time_since_epoch()));
  if (shown < std::chrono::minutes(1)) return "less than 1m";
  if (shown < std::chrono::hours(1)) return fmt::format("{}m", shown.count());
  return config::duration_text(std::chrono::nanoseconds(shown).count());
}

std::string date(WallTime time) {
  const std::time_t seconds = time.time_since_epoch().count();
  std::tm parts{};
  gmtime_r(&seconds, &parts);
  return fmt::format("{}-{:02}-{:02} {:02}:{:02}:{:02} UTC", 1900 + parts.tm_year, 1 + parts.tm_mon,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

}  // namespace

std::string outside_dates(std::string_view whose, const Validity& validity, WallTime now,
                          std::string_view clock) {
  if (now < validity.from)
    return fmt::format("{} is valid from {} on, which is in {} by {}", whose, date(validity.from),
                       duration(validity.from - now), clock);
  if (now >= validity.until)
    return fmt::format("{} was valid until {}, which is {} ago by {}", whose, date(validity.until),
                       duration(now - validity.until), clock);
  return {};
}

Json said(WallTime now) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, now.time_since_epoch().count()));
}

std::optional<WallTime> time_said(const Json& frame) {
  if (!frame.is_object()) return std::nullopt;
  const auto time = frame.find("time");
  if (time == frame.end() || !time->is_number_unsigned()) return std::nullopt;
  const auto seconds = time->get<std::uint64_t>();
  if (seconds > static_cast<std::uint64_t>(kTimeMax.time_since_epoch().count())) return std::nullopt;
  return WallTime(std::chrono::seconds(seconds));
}

std::string clocks_apart(WallTime ours, WallTime said) {
  const std::chrono::seconds apart = said - ours;
  if (std::chrono::abs(apart) < kClocksAgree) return {};
  return fmt::format("its clock, as it says, is {} {} ours", duration(std::chrono::abs(apart)),
                     apart.count() < 0 ? "behind" : "ahead of");
}

std::string cure_of_dates(WallTime ours, WallTime said) {
  const std::string apart = clocks_apart(ours, said);
  if (apart.empty())
    return "its clock agrees with ours: write a new certificate (`muster certs node`) and send SIGHUP, or "
           "set "
           "both clocks";
  return apart + ": set the clock that is wrong (NTP)";
}

}  // namespace muster::control
