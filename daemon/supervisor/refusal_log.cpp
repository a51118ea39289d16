#include "daemon/supervisor/refusal_log.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {
namespace {

constexpr std::size_t kWhatBytes = 48;
constexpr std::uint32_t kAllOthers = UINT32_MAX;  // no user's id: chown(2)

}  // namespace

RefusalLog::User& RefusalLog::user(std::uint32_t uid, Instant now) {
  if (const auto known = users_.find(uid); known != users_.end()) return known->second;
  if (users_.size() >= kUsersMax)
    std::erase_if(users_, [now](const auto& entry) { return entry.second.busy_until <= now; });
  return users_[users_.size() < kUsersMax ? uid : kAllOthers];
}

std::optional<std::string> RefusalLog::line(std::uint32_t uid, std::int32_t pid, std::string_view what,
                                            const Status& why, Instant now) {
  User& of = user(uid, now);
  const Instant from = std::max(of.busy_until, now);
  if (from - now > (kBurst - 1) * kPeriod) {
    ++of.untold;
    return std::nullopt;
  }
  of.busy_until = from + kPeriod;
  const std::uint64_t untold = std::exchange(of.untold, 0);
  const std::string more = untold == 0 ? "" : fmt::format("; and {} more before it", untold);
  return fmt::format("user {}, process {}: {} is refused: {}{}", uid, pid, what.substr(0, kWhatBytes),
                     why.text(), more);
}

}  // namespace muster::supervisor
