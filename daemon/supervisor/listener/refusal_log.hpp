// RefusalLog: the log lines about refused clients. Clients that try tokens or other users' jobs are seen, and
// cannot fill the disk. A sans-IO core: time is passed in, and the caller writes the line.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "daemon/control/identity.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::supervisor {

// A container is one user here, as its share is one (daemon/control/identity.hpp).
//
// Owns    for each user, when its next line is due, and how many refusals have no line yet.
// Thread  the supervisor's loop.
// Bound   kBurst lines of a user at once, then one each kPeriod; kUsersMax users. All further users share one
//         user's allowance.
// Fails   never.
class RefusalLog {
 public:
  // The refused client.
  struct Refused {
    control::Identity who;
    std::int32_t pid = 0;  // 0: not visible
    std::string origin;    // his container or Slurm step, in words; may be empty
  };
  static constexpr int kBurst = 10;
  static constexpr Nanos kPeriod = std::chrono::seconds(1);
  static constexpr std::size_t kUsersMax = 256;

  // The line for one more refusal. None if its user has had enough lines, or if `why` is no matter of a
  // right, a limit or the protocol. `what` was refused: words of ours, or a client's, which are cut.
  std::optional<std::string> line(const Refused& refused, std::string_view what, const Status& why,
                                  Instant now);
  // One line for each user that may have one and has untold refusals: it says how many.
  std::vector<std::string> due(Instant now);

 private:
  struct User {
    Instant busy_until{0};  // each line takes kPeriod; up to kBurst of them may be ahead
    std::uint64_t untold = 0;
  };
  User& user(const control::Account& account, Instant now);
  static bool take_line(User& of, Instant now);

  std::map<control::Account, User> users_;
};

}  // namespace muster::supervisor
