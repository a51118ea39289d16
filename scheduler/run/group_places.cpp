#include "scheduler/run/group_places.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

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

PairPlace::Side side_of(const Place& place) {
  return place.receives ? PairPlace::Side::kReceiver : PairPlace::Side::kSender;
}

// Whether the two members of the pair are on different nodes.
bool pair_spans(const Place& place, const Group& group, const World& world) {
  const Rank both[] = {group.ranks[static_cast<std::size_t>(place.sender)],
                       group.ranks[static_cast<std::size_t>(place.receiver)]};
  return !world.are_local(both);
}

// All members are here. Whether they agree decides what follows.
GroupPlaces::Match match_of(std::span<const Arrival> members, std::uint64_t number, const Group& group) {
  if (agreed(members, !group.spans())) return {GroupPlaces::Match::Kind::kGo, members, number, {}, {}};
  return {
      GroupPlaces::Match::Kind::kDisagree,
      members,
      number,
      {},
      fmt::format("group {}: ranks disagree on {}; no data was moved", group.name, difference_of(members))};
}

}  // namespace

Place place_of(const CollectiveWork& work, LaneId lane) {
  if (!work.point_to_point()) return {work.group, lane, -1, -1, work.index(), false, 0};
  const Collective& pair = work.collective;
  return {work.group, lane, pair.root, pair.receiver, work.index(), pair.op == MUSTER_RECV, pair.tag};
}

GroupPlaces::GroupPlaces(GroupId id, const Group& group, Room& room) : id_(id), group_(group), room_(room) {
  renew();
}

void GroupPlaces::renew() {
  for (const auto& here : entries_) MUSTER_ASSERT(here == nullptr || here->arrived_count == 0);
  entries_.clear();
  std::uint32_t here = 0;
  locals_.clear();
  for (const Rank rank : group_.ranks) locals_.push_back(room_.world.is_local(rank) ? here++ : here);
  const std::uint64_t epoch = group_.first_epoch;
  pairs_ = Pairs{Epochs(epoch), {}, {}};
  pairs_.members.resize(group_.ranks.size(), Member{Epochs::Member(epoch), 1, {}});
  room_.members.reserve(std::max<std::size_t>(here, 2));
}

void GroupPlaces::open_lane(LaneId lane) {
  entries_.resize(std::max<std::size_t>(entries_.size(), lane.value + 1));
  auto& here = entries_[lane.value];
  if (here == nullptr) {
    here = std::make_unique<MatchEntry>();
    here->epochs = pairs_.epochs;
    for (std::size_t i = 0; i < group_.ranks.size(); ++i)
      if (room_.world.is_local(group_.ranks[i])) here->members.push_back({pairs_.members[i].stands, 1, {}});
    here->arrived.resize(here->members.size());
  }
  ++here->holders;
}

void GroupPlaces::close_lane(LaneId lane) {
  auto& here = entries_[lane.value];
  MUSTER_ASSERT(here != nullptr && here->holders > 0);
  if (--here->holders > 0 || group_.spans()) return;
  MUSTER_ASSERT(here->arrived_count == 0);
  here.reset();
}

PairPlace& GroupPlaces::pair(const Place& place) {
  const std::pair members(place.sender, place.receiver);
  const auto found = pairs_.used.find(members);
  if (found != pairs_.used.end()) return found->second;
  const auto stands = [&](std::int32_t index) {
    return pairs_.members[static_cast<std::size_t>(index)].stands;
  };
  return pairs_.used
      .try_emplace(members, pairs_.epochs, stands(place.sender), stands(place.receiver),
                   pair_spans(place, group_, room_.world))
      .first->second;
}

// ---- stamps ------------------------------------------------------------------------------------

Stamp GroupPlaces::stamp(const Place& place) {
  if (place.is_pair()) return pair(place).stamp(side_of(place), place.tag);
  Member& mine = member(place);
  if (mine.given_back.empty()) return {mine.stands.epoch(), mine.next++};
  const Stamp stamp{mine.stands.epoch(), mine.given_back.front()};
  mine.given_back.erase(mine.given_back.begin());
  return stamp;
}

void GroupPlaces::give_back(const Place& place, const Stamp& stamp) {
  if (place.is_pair()) return pair(place).give_back(side_of(place), stamp);
  Member& mine = member(place);
  if (mine.stands.epoch() != stamp.epoch) return;
  mine.given_back.insert(std::lower_bound(mine.given_back.begin(), mine.given_back.end(), stamp.number),
                         stamp.number);
}

// ---- meetings ----------------------------------------------------------------------------------

GroupPlaces::Match GroupPlaces::arrive(const Arrival& arrival) {
  const CollectiveWork& work = work_of(arrival);
  MUSTER_ASSERT(work.group == id_);
  const Place place = place_of(work, arrival.lane_id);
  if (place.is_pair()) return arrive_at_pair(arrival, place);
  MatchEntry& here = entry(arrival.lane_id);
  if (here.epochs.has_ended(arrival.stamp.epoch))
    return {Match::Kind::kEnded, {}, 0, here.epochs.cause_of(arrival.stamp.epoch), {}};
  auto& slot = here.arrived[locals_[static_cast<std::size_t>(work.index())]];
  MUSTER_ASSERT(!slot.has_value());  // a lane holds one collective at its head
  slot = arrival;
  if (++here.arrived_count < here.arrived.size()) return {};
  room_.members.clear();
  for (auto& each : here.arrived) {
    MUSTER_ASSERT(room_.members.empty() || each->stamp.number == room_.members.front().stamp.number);
    room_.members.push_back(*each);
    each.reset();
  }
  here.arrived_count = 0;
  ++here.matched;
  here.latest = room_.members.front().stamp;
  return match_of(room_.members, here.latest.number, group_);
}

GroupPlaces::Match GroupPlaces::arrive_at_pair(const Arrival& arrival, const Place& place) {
  PairPlace& here = pair(place);
  if (here.epochs().has_ended(arrival.stamp.epoch)) {
    here.forget(side_of(place), arrival.stamp);
    return {Match::Kind::kEnded, {}, 0, here.epochs().cause_of(arrival.stamp.epoch), {}};
  }
  std::uint64_t number = 0;
  if (pair_spans(place, group_, room_.world)) {
    number = here.arrive_from_here(side_of(place), arrival.stamp);
    room_.members.assign({arrival});
  } else {
    const auto met = here.arrive(side_of(place), place.tag, arrival);
    if (!met) return {};
    room_.members.assign({met->sender, met->receiver});
  }
  return match_of(room_.members, number, group_);
}

void GroupPlaces::withdraw(const Arrival& arrival) {
  const CollectiveWork& work = work_of(arrival);
  const Place place = place_of(work, arrival.lane_id);
  if (place.is_pair()) return pair(place).withdraw(side_of(place), arrival);
  MatchEntry& here = entry(arrival.lane_id);
  auto& slot = here.arrived[locals_[static_cast<std::size_t>(work.index())]];
  if (!slot || slot->value != arrival.value || slot->rank != arrival.rank) return;
  slot.reset();
  --here.arrived_count;
}

// ---- ends --------------------------------------------------------------------------------------

std::vector<Arrival> GroupPlaces::end(const Place& place, const CausePtr& cause) {
  if (group_.spans()) return end_all(cause, Epochs::Why::kOther);
  std::vector<Arrival> waited;
  if (place.is_pair()) {
    pair(place).end(cause, Epochs::Why::kOther, waited);
    return waited;
  }
  return entry(place.lane).end(cause, Epochs::Why::kOther);
}

std::vector<Arrival> GroupPlaces::end_up_to(std::uint64_t epoch, const CausePtr& cause, Epochs::Why why) {
  if (pairs_.epochs.present() > epoch) return {};
  std::vector<Arrival> waited = end_all(cause, why);
  room_.ended.pop_back();  // the other node reports it
  for (const auto& here : entries_)
    if (here != nullptr) here->epochs.skip_to(epoch + 1);
  for (auto& [members, each] : pairs_.used) each.skip_to(epoch + 1);
  pairs_.epochs.skip_to(epoch + 1);
  return waited;
}

CausePtr GroupPlaces::ended(std::uint64_t epoch) const {
  if (!group_.spans() || epoch >= pairs_.epochs.present()) return nullptr;
  return pairs_.epochs.cause_of(epoch);
}

std::vector<Arrival> GroupPlaces::MatchEntry::end(const CausePtr& cause, Epochs::Why why) {
  std::vector<Arrival> waited;
  if (!epochs.end(cause, why)) return waited;
  for (auto& slot : arrived) {
    if (slot) waited.push_back(*slot);
    slot.reset();
  }
  arrived_count = 0;
  return waited;
}

std::vector<Arrival> GroupPlaces::drop(const Place& place, const Stamp& stamp, const CausePtr& cause) {
  const Epochs& epochs = place.is_pair() ? pair(place).epochs() : entry(place.lane).epochs;
  if (epochs.has_ended(stamp.epoch)) {
    if (place.is_pair()) pair(place).forget(side_of(place), stamp);
    return {};
  }
  if (!epochs.ended_by(cause->fault)) return end(place, cause);
  give_back(place, stamp);
  return {};
}

std::vector<Arrival> GroupPlaces::end_all(const CausePtr& cause, Epochs::Why why) {
  std::vector<Arrival> waited;
  const auto add = [&](const std::vector<Arrival>& more) {
    waited.insert(waited.end(), more.begin(), more.end());
  };
  for (const auto& here : entries_)
    if (here != nullptr) add(here->end(cause, why));
  for (auto& [members, each] : pairs_.used) each.end(cause, why, waited);
  const std::uint64_t epoch = pairs_.epochs.present();
  if (pairs_.epochs.end(cause, why) && group_.spans()) room_.ended.push_back({id_, epoch, cause, why});
  return waited;
}

// ---- where members stand -----------------------------------------------------------------------

// Calls body(epochs, member) for each lane, and once for all pairs that are not used yet. Calls
// of_pair(place, side) for each pair that is used.
template<class Body, class OfPair>
void GroupPlaces::for_each_place(Rank rank, Body body, OfPair of_pair) {
  const auto index = group_.index_of(rank);
  if (!index) return;
  for (const auto& here : entries_)
    if (here != nullptr) body(here->epochs, here->members[locals_[*index]]);
  body(pairs_.epochs, pairs_.members[*index]);
  for (auto& [members, each] : pairs_.used) {
    if (members.first == static_cast<std::int32_t>(*index)) of_pair(each, PairPlace::Side::kSender);
    if (members.second == static_cast<std::int32_t>(*index)) of_pair(each, PairPlace::Side::kReceiver);
  }
}

void GroupPlaces::attached(Rank rank, bool first) {
  for_each_place(
      rank,
      [first](const Epochs& epochs, Member& member) {
        if (first)
          member.stands.begin(epochs);
        else
          member = {Epochs::Member(epochs.present()), 1, {}};
      },
      [first](PairPlace& here, PairPlace::Side side) { here.attached(side, first); });
}

void GroupPlaces::move_on(const Place& place, std::uint64_t fault) {
  if (group_.spans()) return;  // heard() does it, at all places of the group
  if (place.is_pair()) return pair(place).move_on(side_of(place), fault);
  Member& mine = member(place);
  if (mine.stands.move_on(entry(place.lane).epochs, fault)) mine = {mine.stands, 1, {}};
}

void GroupPlaces::heard(Rank rank, std::uint64_t fault) {
  for_each_place(
      rank,
      [fault](const Epochs& epochs, Member& member) {
        if (member.stands.hear(epochs, fault)) member = {member.stands, 1, {}};
      },
      [fault](PairPlace& here, PairPlace::Side side) { here.heard(side, fault); });
}

// ---- for reports -------------------------------------------------------------------------------

std::uint64_t GroupPlaces::matched(LaneId lane) const {
  return lane.value < entries_.size() && entries_[lane.value] != nullptr ? entries_[lane.value]->matched : 0;
}

std::vector<Rank> GroupPlaces::missing(LaneId lane) const {
  const MatchEntry& here = *entries_[lane.value];
  std::vector<Rank> ranks;
  std::size_t at = 0;
  for (const Rank rank : group_.ranks)
    if (room_.world.is_local(rank) && !here.arrived[at++]) ranks.push_back(rank);
  return ranks;
}

void GroupPlaces::add_waiting_for(Rank rank, std::vector<Arrival>& into) const {
  const auto index = group_.index_of(rank);
  if (!index) return;
  for (const auto& here : entries_)
    if (here != nullptr)
      for (const auto& slot : here->arrived)
        if (slot) into.push_back(*slot);
  const auto self = static_cast<std::int32_t>(*index);
  for (const auto& [members, each] : pairs_.used)
    if (members.first == self || members.second == self) each.waiting(into);
}

void GroupPlaces::add_reached(std::vector<Reached>& into) const {
  for (std::uint32_t lane = 0; lane < entries_.size(); ++lane)
    if (const MatchEntry* const here = entries_[lane].get(); here != nullptr && here->latest.number > 0)
      into.push_back({id_, LaneId(lane), here->latest});
}

void GroupPlaces::add_pending(std::vector<Pending>& into) const {
  for (std::uint32_t lane = 0; lane < entries_.size(); ++lane) {
    const MatchEntry* const here = entries_[lane].get();
    if (here == nullptr || here->arrived_count == 0) continue;
    Pending& pending = into.emplace_back(Pending{id_, LaneId(lane), here->matched + 1, {}, {}});
    for (const auto& slot : here->arrived)
      if (slot) pending.arrived.push_back(*slot);
    pending.missing = missing(LaneId(lane));
  }
  for (const auto& [members, each] : pairs_.used) {
    std::vector<Arrival> waiting;
    each.waiting(waiting);
    for (const Arrival& arrival : waiting) {
      const bool sends = work_of(arrival).collective.op == MUSTER_SEND;
      const auto peer = static_cast<std::size_t>(sends ? members.second : members.first);
      into.push_back({id_, arrival.lane_id, arrival.value, {arrival}, {group_.ranks[peer]}});
    }
  }
}

}  // namespace muster::scheduler
