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
  const Difference found = difference(parties);
  return {Code::kMismatch, found.culprit,
          fmt::format("group {}: members disagree on {}; no data was moved", group.name, found.text)};
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

bool is_loss(const Verdict& verdict) {
  return verdict.code == Code::kPeerLost;
}

constexpr std::size_t kPairMembers = 2;

}  // namespace

Sequencer::Sequencer(std::vector<Group> groups) : groups_(std::move(groups)) {
  channels_.resize(groups_.size() * MUSTER_LANE_COUNT);
  std::size_t members_max = kPairMembers;
  for (const Group& group : groups_) members_max = std::max(members_max, group.ranks.size());
  members_.reserve(members_max);
  pairs_.reserve(members_max * MUSTER_LANE_COUNT);
  for (std::uint32_t g = 0; g < groups_.size(); ++g) open_channels(GroupId(g));
}

void Sequencer::open_channels(GroupId group) {
  const std::size_t members = groups_[group.value].ranks.size();
  for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) {
    Channel& c = channel(group, lane);
    MUSTER_ASSERT(c.arrived_count == 0);
    c = Channel{};
    c.arrived.resize(members);
    c.heard.resize(members, 0);
  }
}

void Sequencer::set_group(GroupId group, Group now) {
  members_.reserve(std::max(members_.capacity(), now.ranks.size()));
  pairs_.reserve(std::max(pairs_.capacity(), now.ranks.size() * MUSTER_LANE_COUNT));
  groups_[group.value] = std::move(now);
  open_channels(group);
}

Sequencer::Outcome Sequencer::arrive(const Arrival& arrival) {
  const CollectiveWork& work = work_of(arrival);
  MUSTER_ASSERT(work.group.value < groups_.size());
  Channel& c = channel(work.group, arrival.lane);
  if (auto untold = take_untold(c, static_cast<std::size_t>(work.index())))
    return {Outcome::Kind::kRefuse, {}, *std::move(untold)};
  if (work.point_to_point()) return arrive_pair(arrival);
  auto& slot = c.arrived[static_cast<std::size_t>(work.index())];
  MUSTER_ASSERT(!slot.has_value());  // a lane holds one collective at its head
  slot = arrival;
  if (++c.arrived_count < c.arrived.size()) return {};
  return complete(c, groups_[work.group.value]);
}

Sequencer::Outcome Sequencer::complete(Channel& c, const Group& group) {
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
  Channel& c = channel(group, lane);
  std::vector<Arrival> waiting;
  // The number of an operation that was broken off is used up: those who try again begin a new one.
  if (c.arrived_count > 0) ++c.operations;
  for (auto& slot : c.arrived) {
    if (slot) waiting.push_back(*slot);
    slot.reset();
  }
  c.arrived_count = 0;
  for (auto it = pairs_.begin(); it != pairs_.end();) {
    const bool ours = work_of(*it).group == group && it->lane == lane;
    if (ours) waiting.push_back(*it);
    it = ours ? pairs_.erase(it) : it + 1;
  }
  return waiting;
}

std::vector<Sequencer::Arrival> Sequencer::break_channel(GroupId group, std::uint32_t lane,
                                                         const Verdict& verdict) {
  const std::vector<Arrival> waiting = take_waiting(group, lane);
  Channel& c = channel(group, lane);
  fail(c, verdict);
  for (const Arrival& told : waiting)
    c.heard[static_cast<std::size_t>(work_of(told).index())] = verdict.event;
  return waiting;
}

// A rank that was lost, came back and was lost again is lost once; what is no loss gives way to what is none.
void Sequencer::fail(Channel& c, const Verdict& verdict) {
  std::erase_if(c.failures, [&](const Verdict& v) {
    return is_loss(v) == is_loss(verdict) && (!is_loss(v) || v.culprit == verdict.culprit);
  });
  c.failures.push_back(verdict);
}

std::optional<Verdict> Sequencer::take_untold(Channel& c, std::size_t member) {
  std::uint64_t& heard = c.heard[member];
  if (c.failures.empty() || c.failures.back().event <= heard) return std::nullopt;
  const auto end = c.failures.end();
  const auto first = std::find_if(c.failures.begin(), end, [&](const Verdict& v) { return v.event > heard; });
  const auto loss = std::find_if(first, end, is_loss);
  const auto told = loss != end ? loss : first;
  const auto next = std::find_if(std::next(told), end, is_loss);
  heard = next != end ? next->event - 1 : c.failures.back().event;
  return *told;
}

Rank Sequencer::partner_of(const Arrival& arrival) const {
  const CollectiveWork& work = work_of(arrival);
  const std::int32_t peer =
      work.collective.op == MUSTER_SEND ? work.collective.receiver : work.collective.root;
  return groups_[work.group.value].ranks[static_cast<std::size_t>(peer)];
}

std::vector<Sequencer::Arrival> Sequencer::waiting_for(Rank rank) {
  std::vector<Arrival> waiting;
  for (auto it = pairs_.begin(); it != pairs_.end();) {
    const bool theirs = partner_of(*it) == rank;
    if (theirs) waiting.push_back(*it);
    it = theirs ? pairs_.erase(it) : it + 1;
  }
  return waiting;
}

void Sequencer::withdraw(const Arrival& arrival) {
  const CollectiveWork& work = work_of(arrival);
  if (work.point_to_point()) {
    std::erase_if(pairs_, [&](const Arrival& other) {
      return other.rank == arrival.rank && other.lane == arrival.lane && other.value == arrival.value;
    });
    return;
  }
  Channel& c = channel(work.group, arrival.lane);
  auto& slot = c.arrived[static_cast<std::size_t>(work.index())];
  if (slot && slot->value == arrival.value && slot->rank == arrival.rank) {
    slot.reset();
    --c.arrived_count;
  }
}

void Sequencer::acknowledge(Rank rank, std::uint64_t event) {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const auto& ranks = groups_[g].ranks;
    const auto member = std::find(ranks.begin(), ranks.end(), rank);
    if (member == ranks.end()) continue;
    for (std::uint32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) {
      std::uint64_t& heard =
          channel(GroupId(g), lane).heard[static_cast<std::size_t>(member - ranks.begin())];
      heard = std::max(heard, event);
    }
  }
}

std::vector<Rank> Sequencer::missing(GroupId group, std::uint32_t lane) const {
  const Channel& c = channel(group, lane);
  std::vector<Rank> ranks;
  for (std::size_t i = 0; i < c.arrived.size(); ++i)
    if (!c.arrived[i]) ranks.push_back(groups_[group.value].ranks[i]);
  return ranks;
}

std::vector<Sequencer::Pending> Sequencer::pending() const {
  std::vector<Pending> all;
  for (std::size_t i = 0; i < channels_.size(); ++i) {
    const Channel& c = channels_[i];
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
