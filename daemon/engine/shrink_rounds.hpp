// ShrinkRounds: who of a group has asked to go on without those who left, and who is still waited for.
//
// A round takes in everybody who was attached when the group last lost a member: they hear of the loss, at
// the latest with their next operation, and ask. Whoever attached after it knows nothing of it: it is not
// waited for, and goes along if it asks in time. So nobody needs to guess, and all who go on go on in one
// group. A sans-IO core: sessions come in, a list of them goes out.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/result.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace muster::engine {

// Owns    who has asked, and answers that were not fetched yet.
// Thread  the conductor, under the engine's lock.
// Bound   one entry a session and group.
// Fails   never.
class ShrinkRounds {
 public:
  // The group to go on in, or why there is none: all of a round hear the same.
  using Answer = Result<std::uint64_t>;

  // A member of the group is gone; `next` is the first session that knows nothing of it.
  void lost(GroupId group, SessionId next) { marks_[group.value] = next; }

  // The session asks, among those that the group's members have now. Whom it waits for; nobody: all have
  // asked, and the round is to be closed.
  std::vector<SessionId> ask(GroupId group, SessionId session, const std::vector<SessionId>& attached);
  // It does not wait any longer.
  void give_up(GroupId group, SessionId session) { asked_[group.value].erase(session); }
  // Those of `attached` that have asked. Each is then owed `answer`, and the next round begins.
  std::vector<SessionId> askers(GroupId group, const std::vector<SessionId>& attached) const;
  void close(GroupId group, const std::vector<SessionId>& askers, const Answer& answer);
  // The answer of a round that was closed, once.
  std::optional<Answer> take_answer(GroupId group, SessionId session);

  void left(SessionId session);
  void forget(GroupId group);

 private:
  std::map<std::uint32_t, SessionId> marks_;  // none: it has lost nobody
  std::map<std::uint32_t, std::set<SessionId>> asked_;
  std::map<std::uint32_t, std::map<SessionId, Answer>> answers_;
};

}  // namespace muster::engine
