// Shares: how much of one quantity each user has, and which users may have more. Quantities are connections
// of one kind, jobs, sessions, bytes of memory. A sans-IO core: the supervisor carries out what it decides.
#pragma once

#include "api/base/result.hpp"
#include "daemon/control/identity.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>

namespace muster::supervisor {

using control::Account;

// A container has an account as a user has (daemon/control/identity.hpp).
//
// Owns    a number for each account that has something.
// Thread  the supervisor's loop.
// Bound   `all` in total. An ordinary user may have `of_one`. Root and the daemon's own user govern: they may
//         have all, and `reserved` is for them alone, so that nobody can lock them out. Amounts entered above
//         a bound count too.
// Fails   never.
class Shares {
 public:
  struct Limits {
    std::uint64_t all = 0;
    std::uint64_t reserved = 0;
    std::uint64_t of_one = 0;
  };
  // Limits from settings. `reserved` is an eighth, rounded up, but never the whole. `of_one` 0: half of the
  // rest, and at least 1.
  static constexpr Limits limits_of(std::uint64_t all, std::uint64_t of_one) {
    const std::uint64_t eighth = all / 8 + (all % 8 != 0 ? 1 : 0);
    const std::uint64_t reserved = all == 0 ? 0 : std::min(eighth, all - 1);
    return {all, reserved, of_one != 0 ? of_one : std::max<std::uint64_t>(1, (all - reserved) / 2)};
  }

  // How a refusal names the quantity.
  struct Words {
    const char* things;      // "jobs"
    const char* limit_key;   // "limits.jobs_max"
    const char* share_key;   // "limits.jobs_per_user_max"
    const char* to_do_less;  // "end one (`muster end`)"
  };

  Shares(Limits limits, std::uint32_t governor) : limits_(limits), governor_(governor) {}

  // How much more the user may have.
  std::uint64_t room(Account who) const;
  bool has_room(Account who) const { return room(who) > 0; }
  // Whether the user's own share is used up, not the total.
  bool share_used(Account who) const;
  // If there is no room: the account whose oldest connection should be dropped. It is the user with most, so
  // a crowd displaces only itself.
  Account in_the_way(Account who) const;
  void enter(Account who, std::uint64_t amount = 1);
  void leave(Account who, std::uint64_t amount = 1);

  std::uint64_t of(Account who) const;
  std::uint64_t all() const { return all_; }
  // Amounts by user; no zeros.
  const std::map<Account, std::uint64_t>& by_user() const { return of_; }
  // The most that the user may ever have.
  std::uint64_t share(Account who) const;
  std::uint32_t governor() const { return governor_; }
  bool governs(Account who) const { return who.container == 0 && (who.uid == 0 || who.uid == governor_); }
  // Why the user has no room: the amounts that users have, and the remedies, with their users. kNoResource.
  Status refusal(Account who, const Words& words) const;
  // Whether `amount` is within the user's share, whatever anybody has now. kNoResource.
  Status fits(Account who, std::uint64_t amount, const Words& words) const;

 private:
  std::uint64_t open() const { return limits_.all - limits_.reserved; }  // for everybody
  std::string raise(Account who) const;

  Limits limits_;
  std::uint32_t governor_;
  std::map<Account, std::uint64_t> of_;
  std::uint64_t all_ = 0;
  std::uint64_t others_ = 0;  // of users who do not govern
};

}  // namespace muster::supervisor
