#include "scheduler/run/sequencer.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

const CollectiveWork& work_of(const Sequencer::Arrival& arrival) {
  const CollectiveWork* work = arrival.plan->collective();
  MUSTER_ASSERT(work != nullptr);
  return *work;
}

// What the members that have all arrived, in group order, differ in.
Verdict disagreement(const Group& group, std::span<const Sequencer::Arrival> members) {
  std::vector<Party> parties;
  for (const Sequencer::Arrival& member : members) {
    const CollectiveWork& work = work_of(member);
    parties.push_back(
        {static_cast<std::int32_t>(member.rank.value), &work.collective, &work.share, work.site});
  }
  return {Code::kMismatch, -1,
          fmt::format("group {}: ranks disagree on {}; no data was moved", group.name, difference(parties))};
}

// Whether they mean one operation, by their signatures alone (decision D7).
bool agreed(std::span<const Sequencer::Arrival> members) {
  const Signature& first = work_of(members.front()).signature;
  Hash128 balance;
  bool common = true;
  for (const Sequencer::Arrival& member : members) {
    const Signature& signature = work_of(member).signature;
    common = common && signature.common == first.common;
    balance += signature.balance;
  }
  return common && balance.zero();
}

constexpr std::size_t kPairMembers = 2;

std::size_t side_of(const Meeting& meeting) {
  return meeting.index == meeting.sender ? 0 : 1;
}

}  // namespace

Meeting meeting_of(const CollectiveWork& work, std::uint32_t lane) {
  if (!work.point_to_point()) return {work.group, lane, false, -1, -1, work.index()};
  return {work.group, lane, true, work.collective.root, work.collective.receiver, work.index()};
}

Sequencer::Sequencer(std::vector<Group> groups) : groups_(std::move(groups)) {
  lineups_.resize(groups_.size() * MUSTER_LANE_COUNT);
  group_pairs_.resize(groups_.size(), Untold(0));
  std::size_t members_max = kPairMembers;
  for (const Group& group : groups_) members_max = std::max(members_max, group.ranks.size());
  members_.reserve(members_max);
  pairs_.reserve(members_max * MUSTER_LANE_COUNT);
  for (std::uint32_t g = 0; g < groups_.size(); ++g) open_lineups(GroupId(g));
}

void Sequencer::open_lineups(GroupId group) {
  const std::size_t members = groups_[group.value].ranks.size();
  for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) {
    Lineup& c = lineup(group, lane);
    MUSTER_ASSERT(c.arrived_count == 0);
    c = Lineup(members);
  }
  group_pairs_[group.value] = Untold(members);
  std::erase_if(pairs_untold_, [&](const auto& entry) { return std::get<0>(entry.first) == group.value; });
}

void Sequencer::set_group(GroupId group, Group now) {
  members_.reserve(std::max(members_.capacity(), now.ranks.size()));
  pairs_.reserve(std::max(pairs_.capacity(), now.ranks.size() * MUSTER_LANE_COUNT));
  groups_[group.value] = std::move(now);
  open_lineups(group);
}

Sequencer::Outcome Sequencer::arrive(const Arrival& arrival) {
  const CollectiveWork& work = work_of(arrival);
  MUSTER_ASSERT(work.group.value < groups_.size());
  if (work.point_to_point()) return arrive_pair(arrival);
  Lineup& c = lineup(work.group, arrival.lane);
  const auto member = static_cast<std::size_t>(work.index());
  if (auto untold = c.untold.take(member, arrival.submission, submissions_))
    return {Outcome::Kind::kRefuse, {}, *std::move(untold)};
  auto& slot = c.arrived[member];
  MUSTER_ASSERT(!slot.has_value());  // a lane holds one collective at its head
  slot = arrival;
  if (++c.arrived_count < c.arrived.size()) return {};
  return complete(c, groups_[work.group.value]);
}

Sequencer::Outcome Sequencer::complete(Lineup& c, const Group& group) {
  Outcome outcome{Outcome::Kind::kGo, {}, {}};
  members_.clear();
  for (auto& slot : c.arrived) {
    members_.push_back(*slot);
    slot.reset();
  }
  outcome.members = members_;
  c.arrived_count = 0;
  ++c.operations;
  settle(outcome, group);
  return outcome;
}

Sequencer::Outcome Sequencer::arrive_pair(const Arrival& arrival) {
  const CollectiveWork& work = work_of(arrival);
  if (auto untold = take_untold_of_pair(meeting_of(work, arrival.lane), arrival.submission))
    return {Outcome::Kind::kRefuse, {}, *std::move(untold)};
  const bool sends = work.collective.op == MUSTER_SEND;
  const auto partner = std::find_if(pairs_.begin(), pairs_.end(), [&](const Arrival& other) {
    const CollectiveWork& theirs = work_of(other);
    return theirs.group == work.group && theirs.collective.root == work.collective.root &&
           theirs.collective.receiver == work.collective.receiver &&
           (theirs.collective.op == MUSTER_SEND) != sends;
  });
  if (partner == pairs_.end()) {
    pairs_.push_back(arrival);
    return {};
  }
  members_.assign({*partner, arrival});
  pairs_.erase(partner);
  if (work_of(members_[1]).index() < work_of(members_[0]).index()) std::swap(members_[0], members_[1]);
  Outcome outcome{Outcome::Kind::kGo, members_, {}};
  settle(outcome, groups_[work.group.value]);
  return outcome;
}

void Sequencer::settle(Outcome& outcome, const Group& group) const {
  if (agreed(outcome.members)) return;
  outcome.kind = Outcome::Kind::kDisagree;
  outcome.verdict = disagreement(group, outcome.members);
}

std::vector<Sequencer::Arrival> Sequencer::take_waiting(GroupId group, std::uint32_t lane) {
  Lineup& c = lineup(group, lane);
  std::vector<Arrival> waiting;
  // The number of an operation that was broken off is used up: those who try again begin a new one.
  if (c.arrived_count > 0) ++c.operations;
  for (auto& slot : c.arrived) {
    if (slot) waiting.push_back(*slot);
    slot.reset();
  }
  c.arrived_count = 0;
  return waiting;
}

std::vector<Sequencer::Arrival> Sequencer::take_pairs(const std::function<bool(const Meeting&)>& ours) {
  std::vector<Arrival> waiting;
  for (auto it = pairs_.begin(); it != pairs_.end();) {
    const bool taken = ours(meeting_of(work_of(*it), it->lane));
    if (taken) waiting.push_back(*it);
    it = taken ? pairs_.erase(it) : it + 1;
  }
  return waiting;
}

// ---- failures ----------------------------------------------------------------------------------

std::vector<Sequencer::Arrival> Sequencer::break_up(const Meeting& meeting, const Verdict& verdict) {
  std::vector<Arrival> waiting;
  if (meeting.pair) {
    waiting = take_pairs([&](const Meeting& other) { return meeting.same_place(other); });
    const Pair pair(meeting.group.value, meeting.sender, meeting.receiver);
    Untold& untold = pairs_untold_.try_emplace(pair, kPairMembers).first->second;
    untold.add(verdict, submissions_);
    return waiting;
  }
  waiting = take_waiting(meeting.group, meeting.lane);
  Untold& untold = lineup(meeting.group, meeting.lane).untold;
  untold.add(verdict, submissions_);
  for (const Arrival& one : waiting)
    untold.told(static_cast<std::size_t>(work_of(one).index()), verdict.event, submissions_);
  return waiting;
}

std::vector<Sequencer::Arrival> Sequencer::break_group(GroupId group, const Verdict& verdict) {
  std::vector<Arrival> waiting = take_pairs([&](const Meeting& other) { return other.group == group; });
  group_pairs_[group.value].add(verdict, submissions_);
  for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) {
    const std::vector<Arrival> here = break_up({group, lane}, verdict);
    waiting.insert(waiting.end(), here.begin(), here.end());
  }
  return waiting;
}

bool Sequencer::owes(const Meeting& meeting, std::uint64_t submission) const {
  const auto member = static_cast<std::size_t>(meeting.index);
  if (!meeting.pair) return lineup(meeting.group, meeting.lane).untold.any(member, submission);
  if (group_pairs_[meeting.group.value].any(member, submission)) return true;
  const auto alone = pairs_untold_.find({meeting.group.value, meeting.sender, meeting.receiver});
  return alone != pairs_untold_.end() && alone->second.any(side_of(meeting), submission);
}

bool Sequencer::is_news(const Meeting& meeting, std::uint64_t event, std::uint64_t submission) const {
  if (owes(meeting, submission)) return false;
  if (!meeting.pair) return !lineup(meeting.group, meeting.lane).untold.has(event);
  if (group_pairs_[meeting.group.value].has(event)) return false;
  const auto alone = pairs_untold_.find({meeting.group.value, meeting.sender, meeting.receiver});
  return alone == pairs_untold_.end() || !alone->second.has(event);
}

bool Sequencer::is_over(const Meeting& meeting, std::uint64_t event, std::uint64_t submission) const {
  const auto member = static_cast<std::size_t>(meeting.index);
  if (!meeting.pair) return lineup(meeting.group, meeting.lane).untold.settled(member, event, submission);
  if (group_pairs_[meeting.group.value].settled(member, event, submission)) return true;
  const auto alone = pairs_untold_.find({meeting.group.value, meeting.sender, meeting.receiver});
  return alone != pairs_untold_.end() && alone->second.settled(side_of(meeting), event, submission);
}

std::optional<Verdict> Sequencer::take_untold_of_pair(const Meeting& meeting, std::uint64_t submission) {
  const auto member = static_cast<std::size_t>(meeting.index);
  if (auto told = group_pairs_[meeting.group.value].take(member, submission, Untold::kAll)) return told;
  if (pairs_untold_.empty()) return std::nullopt;
  const auto found = pairs_untold_.find({meeting.group.value, meeting.sender, meeting.receiver});
  if (found == pairs_untold_.end()) return std::nullopt;
  return found->second.take(side_of(meeting), submission, Untold::kAll);
}

void Sequencer::acknowledge(const Meeting& meeting, std::uint64_t event, std::uint64_t since) {
  const auto member = static_cast<std::size_t>(meeting.index);
  if (!meeting.pair) return lineup(meeting.group, meeting.lane).untold.told(member, event, since);
  group_pairs_[meeting.group.value].told(member, event, since);
  const auto alone = pairs_untold_.find({meeting.group.value, meeting.sender, meeting.receiver});
  if (alone != pairs_untold_.end()) alone->second.told(side_of(meeting), event, since);
}

// Calls body(untold, member) for each place where the rank meets others.
template<class Body>
void Sequencer::for_each_place(Rank rank, Body body) {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const auto& ranks = groups_[g].ranks;
    const auto at = std::find(ranks.begin(), ranks.end(), rank);
    if (at == ranks.end()) continue;
    const auto member = static_cast<std::size_t>(at - ranks.begin());
    for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane)
      body(lineup(GroupId(g), lane).untold, member);
    body(group_pairs_[g], member);
  }
  for (auto& [pair, untold] : pairs_untold_) {
    const auto& [group, sender, receiver] = pair;
    const auto& ranks = groups_[group].ranks;
    if (ranks[static_cast<std::size_t>(sender)] == rank) body(untold, 0);
    if (ranks[static_cast<std::size_t>(receiver)] == rank) body(untold, 1);
  }
}

void Sequencer::acknowledge(Rank rank, std::uint64_t event, std::uint64_t since) {
  for_each_place(rank, [&](Untold& untold, std::size_t member) { untold.told(member, event, since); });
}

void Sequencer::forget_owed(Rank rank) {
  for_each_place(rank, [](Untold& untold, std::size_t member) { untold.told_all(member); });
}

Rank Sequencer::partner_of(const Arrival& arrival) const {
  const CollectiveWork& work = work_of(arrival);
  const std::int32_t peer =
      work.collective.op == MUSTER_SEND ? work.collective.receiver : work.collective.root;
  return groups_[work.group.value].ranks[static_cast<std::size_t>(peer)];
}

void Sequencer::withdraw(const Arrival& arrival) {
  const CollectiveWork& work = work_of(arrival);
  if (work.point_to_point()) {
    std::erase_if(pairs_, [&](const Arrival& other) {
      return other.rank == arrival.rank && other.lane == arrival.lane && other.value == arrival.value;
    });
    return;
  }
  Lineup& c = lineup(work.group, arrival.lane);
  auto& slot = c.arrived[static_cast<std::size_t>(work.index())];
  if (slot && slot->value == arrival.value && slot->rank == arrival.rank) {
    slot.reset();
    --c.arrived_count;
  }
}

std::vector<Rank> Sequencer::missing(GroupId group, std::uint32_t lane) const {
  const Lineup& c = lineup(group, lane);
  std::vector<Rank> ranks;
  for (std::size_t i = 0; i < c.arrived.size(); ++i)
    if (!c.arrived[i]) ranks.push_back(groups_[group.value].ranks[i]);
  return ranks;
}

std::vector<Sequencer::Pending> Sequencer::pending() const {
  std::vector<Pending> all;
  for (std::size_t i = 0; i < lineups_.size(); ++i) {
    const Lineup& c = lineups_[i];
    if (c.arrived_count == 0) continue;
    Pending pending{GroupId(static_cast<std::uint32_t>(i / MUSTER_LANE_COUNT)),
                    static_cast<std::uint32_t>(i % MUSTER_LANE_COUNT),
                    c.operations + 1,
                    {},
                    {}};
    for (const auto& slot : c.arrived)
      if (slot) pending.arrived.push_back(*slot);
    pending.missing = missing(pending.group, pending.lane);
    all.push_back(std::move(pending));
  }
  for (const Arrival& arrival : pairs_) {
    const CollectiveWork& work = work_of(arrival);
    all.push_back({work.group, arrival.lane, arrival.value, {arrival}, {partner_of(arrival)}});
  }
  return all;
}

}  // namespace muster::scheduler
