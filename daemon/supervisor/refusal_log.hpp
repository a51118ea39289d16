// RefusalLog: what the log says of those who are refused: whoever tries tokens or other users' jobs is seen,
// and cannot fill the disk. A sans-IO core: time is passed in, and the caller writes the line.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace muster::supervisor {

// Owns    for each user, when its next lines are due, and how many refusals no line has told of.
// Thread  the supervisor's loop.
// Bound   kBurst lines of a user at once, and one each kPeriod after; kUsersMax users. All users beyond share
//         one user's allowance.
// Fails   never.
class RefusalLog {
 public:
  static constexpr int kBurst = 10;
  static constexpr Nanos kPeriod = std::chrono::seconds(1);
  static constexpr std::size_t kUsersMax = 256;

  // The line that tells of one more refusal; none where its user has enough of them, or where it is a mere
  // failure: of a right, a limit or the protocol alone somebody else should hear. `what` was refused: words
  // of ours, or a stranger's, which are cut.
  std::optional<std::string> line(std::uint32_t uid, std::int32_t pid, std::string_view what,
                                  const Status& why, Instant now);
  // One line for each user who may have one and has refusals that none has told of: how many they are.
  std::vector<std::string> due(Instant now);

 private:
  struct User {
    Instant busy_until{0};  // each line takes kPeriod, and so many may be ahead
    std::uint64_t untold = 0;
  };
  User& user(std::uint32_t uid, Instant now);
  static bool take_line(User& of, Instant now);

  std::map<std::uint32_t, User> users_;
};

}  // namespace muster::supervisor
