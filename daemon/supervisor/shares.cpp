#include "daemon/supervisor/shares.hpp"

#include "api/base/assert.hpp"
#include "daemon/control/administrators.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace muster::supervisor {
namespace {

std::uint64_t less(std::uint64_t from, std::uint64_t amount) {
  return from > amount ? from - amount : 0;
}

}  // namespace

std::uint64_t Shares::room(std::uint32_t uid) const {
  const std::uint64_t left = less(limits_.all, all_);
  if (governs(uid)) return left;
  return std::min({left, less(open(), others_), less(limits_.of_one, of(uid))});
}

bool Shares::share_used(std::uint32_t uid) const {
  return !governs(uid) && of(uid) >= limits_.of_one;
}

std::uint32_t Shares::in_the_way(std::uint32_t uid) const {
  if (share_used(uid)) return uid;
  std::uint32_t most = uid;
  std::uint64_t count = 0;
  for (const auto& [user, has] : of_) {
    if (governs(user) && others_ >= open() && !governs(uid)) continue;
    if (has <= count) continue;
    most = user;
    count = has;
  }
  return most;
}

void Shares::enter(std::uint32_t uid, std::uint64_t amount) {
  if (amount == 0) return;
  of_[uid] += amount;
  all_ += amount;
  if (!governs(uid)) others_ += amount;
}

void Shares::leave(std::uint32_t uid, std::uint64_t amount) {
  if (amount == 0) return;
  const auto it = of_.find(uid);
  MUSTER_ASSERT(it != of_.end() && it->second >= amount);
  it->second -= amount;
  if (it->second == 0) of_.erase(it);
  all_ -= amount;
  if (!governs(uid)) others_ -= amount;
}

std::uint64_t Shares::of(std::uint32_t uid) const {
  const auto it = of_.find(uid);
  return it == of_.end() ? 0 : it->second;
}

std::uint64_t Shares::share(std::uint32_t uid) const {
  return governs(uid) ? limits_.all : std::min(open(), limits_.of_one);
}

std::string Shares::raise(std::uint32_t uid) const {
  if (governs(uid)) return "raise it";
  return fmt::format("ask an administrator ({}) to raise it", control::administrators(governor_));
}

Status Shares::refusal(std::uint32_t uid, const Words& words) const {
  if (share_used(uid))
    return failure(Code::kNoResource, "user {} has {} {}, its share ({}); {}, or {}", uid, of(uid),
                   words.things, words.share_key, words.to_do_less, raise(uid));
  if (all_ >= limits_.all)
    return failure(Code::kNoResource, "there are {} {}, the limit ({}); {}, or {}", all_, words.things,
                   words.limit_key, words.to_do_less, raise(uid));
  return failure(Code::kNoResource,
                 "ordinary users have {} {}; {} of {} places {} reserved for {} ({}); {}, or {}", others_,
                 words.things, limits_.reserved, limits_.all, limits_.reserved == 1 ? "is" : "are",
                 control::administrators(governor_), words.limit_key, words.to_do_less, raise(uid));
}

Status Shares::fits(std::uint32_t uid, std::uint64_t amount, const Words& words) const {
  if (amount <= share(uid)) return {};
  const bool own = !governs(uid) && limits_.of_one <= open();
  return failure(Code::kNoResource, "{} {} are too many: user {} may have {} ({}); {}, or {}", amount,
                 words.things, uid, share(uid), own ? words.share_key : words.limit_key, words.to_do_less,
                 raise(uid));
}

}  // namespace muster::supervisor
