#include "daemon/engine/nodes/shrink_rounds.hpp"

#include <algorithm>

namespace muster::engine {

std::vector<SessionId> ShrinkRounds::ask(GroupId group, SessionId session,
                                         const std::vector<SessionId>& attached) {
  asked_[group.value].insert(session);
  return waited(group, attached);
}

std::vector<SessionId> ShrinkRounds::waited(GroupId group, const std::vector<SessionId>& attached) const {
  const auto asked = asked_.find(group.value);
  const auto mark = marks_.find(group.value);
  std::vector<SessionId> waited;
  std::copy_if(attached.begin(), attached.end(), std::back_inserter(waited), [&](SessionId member) {
    const bool knows = mark == marks_.end() || member < mark->second;
    return knows && (asked == asked_.end() || asked->second.count(member) == 0);
  });
  return waited;
}

std::vector<SessionId> ShrinkRounds::askers(GroupId group, const std::vector<SessionId>& attached) const {
  const auto asked = asked_.find(group.value);
  std::vector<SessionId> askers;
  if (asked == asked_.end()) return askers;
  std::copy_if(attached.begin(), attached.end(), std::back_inserter(askers),
               [&](SessionId member) { return asked->second.count(member) > 0; });
  return askers;
}

void ShrinkRounds::close(GroupId group, const std::vector<SessionId>& askers, const Answer& answer) {
  for (const SessionId session : askers) answers_[group.value].insert_or_assign(session, answer);
  asked_.erase(group.value);
}

std::optional<ShrinkRounds::Answer> ShrinkRounds::take_answer(GroupId group, SessionId session) {
  const auto answers = answers_.find(group.value);
  if (answers == answers_.end()) return std::nullopt;
  const auto answer = answers->second.find(session);
  if (answer == answers->second.end()) return std::nullopt;
  Answer found = std::move(answer->second);
  answers->second.erase(answer);
  return found;
}

void ShrinkRounds::left(SessionId session) {
  for (auto& [group, asked] : asked_) asked.erase(session);
  for (auto& [group, answers] : answers_) answers.erase(session);
}

void ShrinkRounds::forget(GroupId group) {
  marks_.erase(group.value);
  asked_.erase(group.value);
  answers_.erase(group.value);
}

}  // namespace muster::engine
