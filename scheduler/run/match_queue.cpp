#include "scheduler/run/match_queue.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

using Arrival = MatchQueue::Arrival;

const CollectiveWork& work_of(const Arrival& arrival) {
  const CollectiveWork* work = arrival.plan->collective();
  MUSTER_ASSERT(work != nullptr);
  return *work;
}

// Says in which arguments the members differ. `members` are in group order.
std::string difference_of(std::span<const Arrival> members) {
  std::vector<Party> parties;
  for (const Arrival& member : members) {
    const CollectiveWork& work = work_of(member);
    parties.push_back(
        {static_cast<std::int32_t>(member.rank.value), &work.collective, &work.share, work.site});
  }
  return difference(parties);
}

// Whether the members mean one operation; compares signatures only (decision D7). Pairwise parts add up only
// if `all` members are here.
bool agreed(std::span<const Arrival> members, bool all) {
  const Signature& first = work_of(members.front()).signature;
  Hash128 balance;
  bool common = true;
  for (const Arrival& member : members) {
    const Signature& signature = work_of(member).signature;
    common = common && signature.common == first.common;
    balance += signature.balance;
  }
  return common && (!all || balance.zero());
}

std::optional<std::size_t> index_in(const Group& group, Rank rank) {
  const auto at = std::find(group.ranks.begin(), group.ranks.end(), rank);
  if (at == group.ranks.end()) return std::nullopt;
  return static_cast<std::size_t>(at - group.ranks.begin());
}

PairPlace::Side side_of(const Place& place) {
  return place.receives ? PairPlace::Side::kReceiver : PairPlace::Side::kSender;
}

// Whether the two members of the pair are on different nodes.
bool pair_spans(const Place& place, const Group& group, const World& world) {
  const Rank both[] = {group.ranks[static_cast<std::size_t>(place.sender)],
                       group.ranks[static_cast<std::size_t>(place.receiver)]};
  return !world.are_local(both);
}

}  // namespace

Place place_of(const CollectiveWork& work, LaneId lane) {
  if (!work.point_to_point()) return {work.group, lane, -1, -1, work.index(), false, 0};
  const Collective& pair = work.collective;
  return {work.group, lane, pair.root, pair.receiver, work.index(), pair.op == MUSTER_RECV, pair.tag};
}

MatchQueue::MatchQueue(std::vector<Group> groups, World world)
    : world_(std::move(world)),
      groups_(std::move(groups)),
      locals_(groups_.size()),
      entries_(groups_.size()),
      pairs_(groups_.size()) {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) open(GroupId(g));
}

void MatchQueue::set_group(GroupId group, Group now) {
  const bool renamed = now.ranks == groups_[group.value].ranks;
  groups_[group.value] = std::move(now);
  if (renamed) return;
  open(group);
}

void MatchQueue::open(GroupId group) {
  const std::size_t members = groups_[group.value].ranks.size();
  for (const auto& here : entries_[group.value]) MUSTER_ASSERT(here == nullptr || here->arrived_count == 0);
  entries_[group.value].clear();
  std::uint32_t here = 0;
  locals_[group.value].clear();
  for (const Rank rank : groups_[group.value].ranks)
    locals_[group.value].push_back(world_.is_local(rank) ? here++ : here);
  const std::uint64_t epoch = groups_[group.value].first_epoch;
  pairs_[group.value] = Pairs{Epochs(epoch), {}, {}};
  pairs_[group.value].members.resize(members, Member{MemberEpoch(epoch), 1, {}});
  members_.reserve(std::max<std::size_t>(here, 2));
}

void MatchQueue::open_lane(GroupId group, LaneId lane) {
  Lineups& entries = entries_[group.value];
  entries.resize(std::max<std::size_t>(entries.size(), lane.value + 1));
  auto& here = entries[lane.value];
  if (here == nullptr) {
    const Pairs& pairs = pairs_[group.value];
    here = std::make_unique<MatchEntry>();
    here->epochs = pairs.epochs;
    const std::vector<Rank>& ranks = groups_[group.value].ranks;
    for (std::size_t i = 0; i < ranks.size(); ++i)
      if (world_.is_local(ranks[i])) here->members.push_back({pairs.members[i].stands, 1, {}});
    here->arrived.resize(here->members.size());
  }
  ++here->holders;
}

void MatchQueue::close_lane(GroupId group, LaneId lane) {
  auto& here = entries_[group.value][lane.value];
  MUSTER_ASSERT(here != nullptr && here->holders > 0);
  if (--here->holders > 0 || groups_[group.value].spans()) return;
  MUSTER_ASSERT(here->arrived_count == 0);
  here.reset();
}

PairPlace& MatchQueue::pair(const Place& place) {
  Pairs& pairs = pairs_[place.group.value];
  const std::pair members(place.sender, place.receiver);
  const auto found = pairs.used.find(members);
  if (found != pairs.used.end()) return found->second;
  const auto stands = [&](std::int32_t index) {
    return pairs.members[static_cast<std::size_t>(index)].stands;
  };
  return pairs.used
      .try_emplace(members, pairs.epochs, stands(place.sender), stands(place.receiver),
                   pair_spans(place, groups_[place.group.value], world_))
      .first->second;
}

// ---- stamps ------------------------------------------------------------------------------------

Stamp MatchQueue::stamp(const Place& place) {
  if (place.is_pair()) return pair(place).stamp(side_of(place), place.tag);
  Member& mine = member(place);
  if (mine.given_back.empty()) return {mine.stands.epoch(), mine.next++};
  const Stamp stamp{mine.stands.epoch(), mine.given_back.front()};
  mine.given_back.erase(mine.given_back.begin());
  return stamp;
}

void MatchQueue::give_back(const Place& place, const Stamp& stamp) {
  if (place.is_pair()) return pair(place).give_back(side_of(place), stamp);
  Member& mine = member(place);
  if (mine.stands.epoch() != stamp.epoch) return;
  mine.given_back.insert(std::lower_bound(mine.given_back.begin(), mine.given_back.end(), stamp.number),
                         stamp.number);
}

// ---- meetings ----------------------------------------------------------------------------------

MatchQueue::Match MatchQueue::arrive(const Arrival& arrival) {
  const CollectiveWork& work = work_of(arrival);
  MUSTER_ASSERT(work.group.value < groups_.size());
  const Place place = place_of(work, arrival.lane_id);
  if (place.is_pair()) return arrive_at_pair(arrival, place);
  MatchEntry& here = entry(work.group, arrival.lane_id);
  if (here.epochs.has_ended(arrival.stamp.epoch))
    return {Match::Kind::kEnded, {}, 0, here.epochs.cause_of(arrival.stamp.epoch), {}};
  auto& slot = here.arrived[locals_[work.group.value][static_cast<std::size_t>(work.index())]];
  MUSTER_ASSERT(!slot.has_value());  // a lane holds one collective at its head
  slot = arrival;
  if (++here.arrived_count < here.arrived.size()) return {};
  return complete(here, groups_[work.group.value]);
}

MatchQueue::Match MatchQueue::complete(MatchEntry& here, const Group& group) {
  Match match{Match::Kind::kGo, {}, 0, {}, {}};
  members_.clear();
  for (auto& slot : here.arrived) {
    MUSTER_ASSERT(members_.empty() || slot->stamp.number == members_.front().stamp.number);
    members_.push_back(*slot);
    slot.reset();
  }
  here.arrived_count = 0;
  ++here.matched;
  here.latest = members_.front().stamp;
  match.number = here.latest.number;
  decide(match, group);
  return match;
}

MatchQueue::Match MatchQueue::arrive_at_pair(const Arrival& arrival, const Place& place) {
  PairPlace& here = pair(place);
  if (here.epochs().has_ended(arrival.stamp.epoch)) {
    here.forget(side_of(place), arrival.stamp);
    return {Match::Kind::kEnded, {}, 0, here.epochs().cause_of(arrival.stamp.epoch), {}};
  }
  Match match{Match::Kind::kGo, {}, 0, {}, {}};
  if (pair_spans(place, groups_[place.group.value], world_)) {
    match.number = here.arrive_from_here(side_of(place), arrival.stamp);
    members_.assign({arrival});
  } else {
    const auto met = here.arrive(side_of(place), place.tag, arrival);
    if (!met) return {};
    members_.assign({met->sender, met->receiver});
  }
  decide(match, groups_[place.group.value]);
  return match;
}

void MatchQueue::decide(Match& match, const Group& group) const {
  match.members = members_;
  if (agreed(members_, !group.spans())) return;
  match.kind = Match::Kind::kDisagree;
  match.differ =
      fmt::format("group {}: ranks disagree on {}; no data was moved", group.name, difference_of(members_));
}

void MatchQueue::withdraw(const Arrival& arrival) {
  const CollectiveWork& work = work_of(arrival);
  const Place place = place_of(work, arrival.lane_id);
  if (place.is_pair()) return pair(place).withdraw(side_of(place), arrival);
  MatchEntry& here = entry(work.group, arrival.lane_id);
  auto& slot = here.arrived[locals_[work.group.value][static_cast<std::size_t>(work.index())]];
  if (!slot || slot->value != arrival.value || slot->rank != arrival.rank) return;
  slot.reset();
  --here.arrived_count;
}

// ---- ends --------------------------------------------------------------------------------------

std::vector<Arrival> MatchQueue::end(const Place& place, const CausePtr& cause) {
  if (groups_[place.group.value].spans()) return end_group(place.group, cause, Epochs::Why::kOther);
  std::vector<Arrival> waited;
  if (place.is_pair()) {
    pair(place).end(cause, Epochs::Why::kOther, waited);
    return waited;
  }
  return entry(place.group, place.lane).end(cause, Epochs::Why::kOther);
}

std::vector<Arrival> MatchQueue::end_up_to(GroupId group, std::uint64_t epoch, const CausePtr& cause,
                                           Epochs::Why why) {
  Pairs& pairs = pairs_[group.value];
  if (pairs.epochs.present() > epoch) return {};
  std::vector<Arrival> waited = end_group(group, cause, why);
  ended_.pop_back();  // the other node reports it
  for (const auto& here : entries_[group.value])
    if (here != nullptr) here->epochs.skip_to(epoch + 1);
  for (auto& [members, each] : pairs.used) each.skip_to(epoch + 1);
  pairs.epochs.skip_to(epoch + 1);
  return waited;
}

CausePtr MatchQueue::ended(GroupId group, std::uint64_t epoch) const {
  const Epochs& epochs = pairs_[group.value].epochs;
  if (!groups_[group.value].spans() || epoch >= epochs.present()) return nullptr;
  return epochs.cause_of(epoch);
}

std::vector<Arrival> MatchQueue::MatchEntry::end(const CausePtr& cause, Epochs::Why why) {
  std::vector<Arrival> waited;
  if (!epochs.end(cause, why)) return waited;
  for (auto& slot : arrived) {
    if (slot) waited.push_back(*slot);
    slot.reset();
  }
  arrived_count = 0;
  return waited;
}

std::vector<Arrival> MatchQueue::drop(const Place& place, const Stamp& stamp, const CausePtr& cause) {
  const Epochs& epochs = place.is_pair() ? pair(place).epochs() : entry(place.group, place.lane).epochs;
  if (epochs.has_ended(stamp.epoch)) {
    if (place.is_pair()) pair(place).forget(side_of(place), stamp);
    return {};
  }
  if (!epochs.ended_by(cause->fault)) return end(place, cause);
  give_back(place, stamp);
  return {};
}

std::vector<Arrival> MatchQueue::end_group(GroupId group, const CausePtr& cause, Epochs::Why why) {
  std::vector<Arrival> waited;
  const auto add = [&](const std::vector<Arrival>& more) {
    waited.insert(waited.end(), more.begin(), more.end());
  };
  for (const auto& here : entries_[group.value])
    if (here != nullptr) add(here->end(cause, why));
  Pairs& pairs = pairs_[group.value];
  for (auto& [members, each] : pairs.used) each.end(cause, why, waited);
  const std::uint64_t epoch = pairs.epochs.present();
  if (pairs.epochs.end(cause, why) && groups_[group.value].spans())
    ended_.push_back({group, epoch, cause, why});
  return waited;
}

std::vector<Arrival> MatchQueue::waiting_for(Rank rank) const {
  std::vector<Arrival> waiting;
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const auto index = index_in(groups_[g], rank);
    if (!index) continue;
    for (const auto& here : entries_[g])
      if (here != nullptr)
        for (const auto& slot : here->arrived)
          if (slot) waiting.push_back(*slot);
    for (const auto& [members, each] : pairs_[g].used)
      if (members.first == static_cast<std::int32_t>(*index) ||
          members.second == static_cast<std::int32_t>(*index))
        each.waiting(waiting);
  }
  return waiting;
}

// ---- where members stand -----------------------------------------------------------------------

// Calls body(epochs, member) for each lane of each group of the rank, and once per group for all pairs that
// are not used yet. Calls of_pair(place, side) for each pair that is used.
template<class Body, class OfPair>
void MatchQueue::for_each_place(Rank rank, Body body, OfPair of_pair) {
  for (std::uint32_t g = 0; g < groups_.size(); ++g) {
    const auto index = index_in(groups_[g], rank);
    if (!index) continue;
    for (const auto& here : entries_[g])
      if (here != nullptr) body(here->epochs, here->members[locals_[g][*index]]);
    body(pairs_[g].epochs, pairs_[g].members[*index]);
    for (auto& [members, each] : pairs_[g].used) {
      if (members.first == static_cast<std::int32_t>(*index)) of_pair(each, PairPlace::Side::kSender);
      if (members.second == static_cast<std::int32_t>(*index)) of_pair(each, PairPlace::Side::kReceiver);
    }
  }
}

void MatchQueue::attached(Rank rank, bool first) {
  for_each_place(
      rank,
      [first](const Epochs& epochs, Member& member) {
        if (first)
          member.stands.begin(epochs);
        else
          member = {MemberEpoch(epochs.present()), 1, {}};
      },
      [first](PairPlace& here, PairPlace::Side side) { here.attached(side, first); });
}

void MatchQueue::move_on(const Place& place, std::uint64_t fault) {
  if (groups_[place.group.value].spans()) return;  // heard() does it, at all places of the group
  if (place.is_pair()) return pair(place).move_on(side_of(place), fault);
  Member& mine = member(place);
  if (mine.stands.move_on(entry(place.group, place.lane).epochs, fault)) mine = {mine.stands, 1, {}};
}

void MatchQueue::heard(Rank rank, std::uint64_t fault) {
  for_each_place(
      rank,
      [fault](const Epochs& epochs, Member& member) {
        if (member.stands.hear(epochs, fault)) member = {member.stands, 1, {}};
      },
      [fault](PairPlace& here, PairPlace::Side side) { here.heard(side, fault); });
}

// ---- for reports -------------------------------------------------------------------------------

std::uint64_t MatchQueue::matched(GroupId group, LaneId lane) const {
  const Lineups& entries = entries_[group.value];
  return lane.value < entries.size() && entries[lane.value] != nullptr ? entries[lane.value]->matched : 0;
}

std::vector<Rank> MatchQueue::missing(GroupId group, LaneId lane) const {
  const MatchEntry& here = *entries_[group.value][lane.value];
  std::vector<Rank> ranks;
  std::size_t at = 0;
  for (const Rank rank : groups_[group.value].ranks)
    if (world_.is_local(rank) && !here.arrived[at++]) ranks.push_back(rank);
  return ranks;
}

std::vector<MatchQueue::Reached> MatchQueue::reached() const {
  std::vector<Reached> all;
  for (std::uint32_t g = 0; g < entries_.size(); ++g) {
    if (!groups_[g].spans()) continue;
    for (std::uint32_t lane = 0; lane < entries_[g].size(); ++lane)
      if (const MatchEntry* const here = entries_[g][lane].get(); here != nullptr && here->latest.number > 0)
        all.push_back({GroupId(g), LaneId(lane), here->latest});
  }
  return all;
}

std::vector<MatchQueue::Pending> MatchQueue::pending() const {
  std::vector<Pending> all;
  for (std::uint32_t g = 0; g < entries_.size(); ++g)
    for (std::uint32_t lane = 0; lane < entries_[g].size(); ++lane) {
      const MatchEntry* const here = entries_[g][lane].get();
      if (here == nullptr || here->arrived_count == 0) continue;
      Pending pending{GroupId(g), LaneId(lane), here->matched + 1, {}, {}};
      for (const auto& slot : here->arrived)
        if (slot) pending.arrived.push_back(*slot);
      pending.missing = missing(pending.group, pending.lane);
      all.push_back(std::move(pending));
    }
  for (std::uint32_t g = 0; g < pairs_.size(); ++g)
    for (const auto& [members, each] : pairs_[g].used) {
      std::vector<Arrival> waiting;
      each.waiting(waiting);
      for (const Arrival& arrival : waiting) {
        const bool sends = work_of(arrival).collective.op == MUSTER_SEND;
        const auto peer = static_cast<std::size_t>(sends ? members.second : members.first);
        all.push_back({GroupId(g), arrival.lane_id, arrival.value, {arrival}, {groups_[g].ranks[peer]}});
      }
    }
  return all;
}

}  // namespace muster::scheduler
