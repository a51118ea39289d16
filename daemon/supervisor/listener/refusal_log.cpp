#include "daemon/supervisor/listener/refusal_log.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {
namespace {

constexpr std::size_t kWhatBytes = 48;
constexpr control::Account kAllOthers = UINT32_MAX;  // never a user's id: chown(2)

bool is_told(Code code) {
  return code == Code::kDenied || code == Code::kNoResource || code == Code::kProtocol;
}

}  // namespace

RefusalLog::User& RefusalLog::user(const control::Account& account, Instant now) {
  if (const auto known = users_.find(account); known != users_.end()) return known->second;
  if (users_.size() >= kUsersMax)
    std::erase_if(users_, [now](const auto& entry) {
      return entry.second.busy_until <= now && entry.second.untold == 0;
    });
  return users_[users_.size() < kUsersMax ? account : kAllOthers];
}

std::optional<std::string> RefusalLog::line(const Refused& refused, std::string_view what, const Status& why,
                                            Instant now) {
  if (!is_told(why.code())) return std::nullopt;
  User& of = user(refused.who.account, now);
  if (!take_line(of, now)) {
    ++of.untold;
    return std::nullopt;
  }
  const std::uint64_t untold = std::exchange(of.untold, 0);
  const std::string more = untold == 0 ? "" : fmt::format("; and {} more before it", untold);
  const std::string origin = refused.origin.empty() ? "" : fmt::format(" ({})", refused.origin);
  return fmt::format("{}, process {}{}: {} is refused: {}{}", control::text_of(refused.who), refused.pid,
                     origin, what.substr(0, kWhatBytes), why.text(), more);
}

std::vector<std::string> RefusalLog::due(Instant now) {
  std::vector<std::string> lines;
  for (auto& [account, of] : users_) {
    if (of.untold == 0 || !take_line(of, now)) continue;
    const std::string who = account == kAllOthers ? "other users" : control::text_of(account);
    lines.push_back(fmt::format("{}: and {} more are refused", who, std::exchange(of.untold, 0)));
  }
  return lines;
}

// Takes a line if the user may have one now.
bool RefusalLog::take_line(User& of, Instant now) {
  const Instant from = std::max(of.busy_until, now);
  if (from - now > (kBurst - 1) * kPeriod) return false;
  of.busy_until = from + kPeriod;
  return true;
}

}  // namespace muster::supervisor
