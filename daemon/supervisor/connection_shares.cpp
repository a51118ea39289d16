#include "daemon/supervisor/connection_shares.hpp"

#include "api/base/assert.hpp"

namespace muster::supervisor {

bool ConnectionShares::has_room(std::uint32_t uid) const {
  if (all_ >= limits_.all) return false;
  return governs(uid) || (others_ < limits_.all - limits_.reserved && !share_used(uid));
}

bool ConnectionShares::share_used(std::uint32_t uid) const {
  const auto it = of_.find(uid);
  return !governs(uid) && it != of_.end() && it->second >= limits_.of_one;
}

std::uint32_t ConnectionShares::in_the_way(std::uint32_t uid) const {
  if (share_used(uid)) return uid;
  std::uint32_t most = uid;
  std::size_t count = 0;
  for (const auto& [user, connections] : of_) {
    if (governs(user) && others_ >= limits_.all - limits_.reserved && !governs(uid)) continue;
    if (connections <= count) continue;
    most = user;
    count = connections;
  }
  return most;
}

void ConnectionShares::enter(std::uint32_t uid) {
  ++of_[uid];
  ++all_;
  if (!governs(uid)) ++others_;
}

void ConnectionShares::leave(std::uint32_t uid) {
  const auto it = of_.find(uid);
  MUSTER_ASSERT(it != of_.end());
  if (--it->second == 0) of_.erase(it);
  --all_;
  if (!governs(uid)) --others_;
}

}  // namespace muster::supervisor
