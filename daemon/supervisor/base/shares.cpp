#include "daemon/supervisor/base/shares.hpp"

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

std::uint64_t Shares::room(Account who) const {
  const std::uint64_t left = less(limits_.all, all_);
  if (governs(who)) return left;
  return std::min({left, less(open(), others_), less(limits_.of_one, of(who))});
}

bool Shares::share_used(Account who) const {
  return !governs(who) && of(who) >= limits_.of_one;
}

Account Shares::in_the_way(Account who) const {
  if (share_used(who)) return who;
  Account most = who;
  std::uint64_t count = 0;
  for (const auto& [user, has] : of_) {
    if (governs(user) && others_ >= open() && !governs(who)) continue;
    if (has <= count) continue;
    most = user;
    count = has;
  }
  return most;
}

void Shares::enter(Account who, std::uint64_t amount) {
  if (amount == 0) return;
  of_[who] += amount;
  all_ += amount;
  if (!governs(who)) others_ += amount;
}

void Shares::leave(Account who, std::uint64_t amount) {
  if (amount == 0) return;
  const auto it = of_.find(who);
  MUSTER_ASSERT(it != of_.end() && it->second >= amount);
  it->second -= amount;
  if (it->second == 0) of_.erase(it);
  all_ -= amount;
  if (!governs(who)) others_ -= amount;
}

std::uint64_t Shares::of(Account who) const {
  const auto it = of_.find(who);
  return it == of_.end() ? 0 : it->second;
}

std::uint64_t Shares::share(Account who) const {
  return governs(who) ? limits_.all : std::min(open(), limits_.of_one);
}

std::string Shares::raise(Account who) const {
  if (governs(who)) return "raise it";
  return fmt::format("ask an administrator ({}) to raise it", control::administrators(governor_));
}

Status Shares::refusal(Account who, const Words& words) const {
  if (share_used(who))
    return failure(Code::kNoResource, "{} has {} {}, its share ({}); {}, or {}", control::text_of(who),
                   of(who), words.things, words.share_key, words.to_do_less, raise(who));
  if (all_ >= limits_.all)
    return failure(Code::kNoResource, "there are {} {}, the limit ({}); {}, or {}", all_, words.things,
                   words.limit_key, words.to_do_less, raise(who));
  return failure(Code::kNoResource,
                 "ordinary users have {} {}; {} of {} places {} reserved for {} ({}); {}, or {}", others_,
                 words.things, limits_.reserved, limits_.all, limits_.reserved == 1 ? "is" : "are",
                 control::administrators(governor_), words.limit_key, words.to_do_less, raise(who));
}

Status Shares::fits(Account who, std::uint64_t amount, const Words& words) const {
  if (amount <= share(who)) return {};
  const bool own = !governs(who) && limits_.of_one <= open();
  return failure(Code::kNoResource, "{} {} are too many: {} may have {} ({}); {}, or {}", amount,
                 words.things, control::text_of(who), share(who), own ? words.share_key : words.limit_key,
                 words.to_do_less, raise(who));
}

}  // namespace muster::supervisor
