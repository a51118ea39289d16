// ShrinkRounds: the members of a group that have asked to go on without lost ones, and the members for which
// they wait.
//
// A round waits for all sessions that were attached when the group last lost a member. Each learns of the
// loss, at the latest with its next operation, and asks. A later session does not know of the loss. The round
// does not wait for it, but takes it in if it asks in time. So all that go on do so in one group, and none
// guesses. A sans-IO core: sessions come in, a list of them goes out.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/result.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

namespace muster::engine {

// Owns    which sessions have asked, and answers that were not fetched yet.
// Thread  the conductor, under the engine's lock.
// Bound   one entry a session and group.
// Fails   never.
class ShrinkRounds {
 public:
  // The group to go on in, or why there is none: the same for all sessions of a round.
  using Answer = Result<std::uint64_t>;

  // A member of the group is gone; `next` is the first session that does not know of the loss.
  void lost(GroupId group, SessionId next) { marks_[group.value] = next; }

  // The session asks; `attached`: the sessions of the group's members now. Returns those it waits for. If
  // empty, all have asked, and the caller closes the round.
  std::vector<SessionId> ask(GroupId group, SessionId session, const std::vector<SessionId>& attached);
  // Those of `attached` that ask() would wait for.
  std::vector<SessionId> waited(GroupId group, const std::vector<SessionId>& attached) const;
  // The session does not wait any longer.
  void give_up(GroupId group, SessionId session) { asked_[group.value].erase(session); }
  // askers(): those of `attached` that have asked. close(): each is owed `answer`; the next round begins.
  std::vector<SessionId> askers(GroupId group, const std::vector<SessionId>& attached) const;
  void close(GroupId group, const std::vector<SessionId>& askers, const Answer& answer);
  // The session's answer of a closed round, once.
  std::optional<Answer> take_answer(GroupId group, SessionId session);

  void left(SessionId session);
  void forget(GroupId group);

 private:
  std::map<std::uint32_t, SessionId> marks_;  // no entry: the group has lost no member
  std::map<std::uint32_t, std::set<SessionId>> asked_;
  std::map<std::uint32_t, std::map<SessionId, Answer>> answers_;
};

}  // namespace muster::engine
