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

PairPlace::Side side_of(const Place& place) {
  return place.receives ? PairPlace::Side::kReceiver : PairPlace::Side::kSender;
}

// Whether the two members of the pair are on different nodes.
bool pair_spans(const Place& place, const Group& group, const World& world) {
  const Rank both[] = {group.ranks[static_cast<std::size_t>(place.sender)],
                       group.ranks[static_cast<std::size_t>(place.receiver)]};
  return !world.are_local(both);
}

GroupPlaces::Match disagreement(const Group& group, const std::string& differ, const char* moved) {
  return {.kind = GroupPlaces::Match::Kind::kDisagree,
          .differ = fmt::format("group {}: ranks disagree on {}; {}", group.name, differ, moved)};
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
  for (const auto& here : lanes_) MUSTER_ASSERT(here == nullptr || !here->waits());
  lanes_.clear();
  std::uint32_t here = 0;
  locals_.clear();
  for (const Rank rank : group_.ranks) locals_.push_back(room_.world.is_local(rank) ? here++ : here);
  const std::uint64_t epoch = group_.first_epoch;
  pairs_ = Pairs{Epochs(epoch), {}, {}};
  pairs_.members.resize(group_.ranks.size(), Epochs::Member(epoch));
  room_.members.reserve(std::max<std::size_t>(here, 2));
}

void GroupPlaces::open_lane(LaneId lane) {
  lanes_.resize(std::max<std::size_t>(lanes_.size(), lane.value + 1));
  auto& here = lanes_[lane.value];
  if (here == nullptr) {
    std::vector<Epochs::Member> members;
    for (std::size_t i = 0; i < group_.ranks.size(); ++i)
      if (room_.world.is_local(group_.ranks[i])) members.push_back(pairs_.members[i]);
    here = std::make_unique<LanePlace>(group_, pairs_.epochs, members);
    room_.unmatched.reserve(++room_.lanes);
  }
  here->open();
}

void GroupPlaces::close_lane(LaneId lane) {
  auto& here = lanes_[lane.value];
  MUSTER_ASSERT(here != nullptr);
  if (!here->close() || group_.spans()) return;
  MUSTER_ASSERT(!here->waits());
  here.reset();
}

const LanePlace* GroupPlaces::find(LaneId lane) const {
  return lane.value < lanes_.size() ? lanes_[lane.value].get() : nullptr;
}

Rank GroupPlaces::rank_of(std::size_t local) const {
  std::size_t at = 0;
  for (const Rank rank : group_.ranks)
    if (room_.world.is_local(rank) && at++ == local) return rank;
  MUSTER_ASSERT(false);
  return {};
}

PairPlace& GroupPlaces::pair(const Place& place) {
  const std::pair members(place.sender, place.receiver);
  const auto found = pairs_.used.find(members);
  if (found != pairs_.used.end()) return found->second;
  const auto stands = [&](std::int32_t index) { return pairs_.members[static_cast<std::size_t>(index)]; };
  return pairs_.used
      .try_emplace(members, pairs_.epochs, stands(place.sender), stands(place.receiver),
                   pair_spans(place, group_, room_.world))
      .first->second;
}

// ---- stamps ------------------------------------------------------------------------------------

Stamp GroupPlaces::stamp(const Place& place) {
  if (place.is_pair()) return pair(place).stamp(side_of(place), place.tag);
  return on_lane(place.lane).stamp(local(place.index));
}

void GroupPlaces::give_back(const Place& place, const Stamp& stamp) {
  if (place.is_pair()) return pair(place).give_back(side_of(place), stamp);
  on_lane(place.lane).give_back(local(place.index), stamp);
}

// ---- meetings ----------------------------------------------------------------------------------

GroupPlaces::Match GroupPlaces::arrive(const Arrival& arrival) {
  const CollectiveWork& work = work_of(arrival);
  MUSTER_ASSERT(work.group == id_);
  const Place place = place_of(work, arrival.lane_id);
  if (place.is_pair()) return arrive_at_pair(arrival, place);
  LanePlace& here = on_lane(arrival.lane_id);
  if (here.epochs().has_ended(arrival.stamp.epoch))
    return {.kind = Match::Kind::kEnded, .cause = here.epochs().cause_of(arrival.stamp.epoch)};
  std::string differ;
  const bool is_first = !here.may_meet();
  switch (here.arrive(local(place.index), arrival, room_.members, differ)) {
    case LanePlace::Meeting::kWait:
      if (here.may_meet() && is_first) room_.unmatched.emplace_back(id_, arrival.lane_id);
      return {};
    case LanePlace::Meeting::kGo:
      return {.kind = Match::Kind::kGo, .members = room_.members, .number = arrival.stamp.number};
    case LanePlace::Meeting::kDisagree:
      break;
  }
  return disagreement(group_, differ, "no data was moved");
}

GroupPlaces::Match GroupPlaces::meet(LaneId lane) {
  while (find(lane) != nullptr && on_lane(lane).may_meet()) {
    std::size_t active = 0;
    std::string differ;
    switch (on_lane(lane).meet(room_.members, &active, differ)) {
      case LanePlace::Meeting::kWait:
        break;
      case LanePlace::Meeting::kGo:
        return {.kind = Match::Kind::kGo, .members = room_.members, .active = active};
      case LanePlace::Meeting::kDisagree:
        return disagreement(group_, differ, "no data was moved between them");
    }
  }
  return {};
}

GroupPlaces::Match GroupPlaces::arrive_at_pair(const Arrival& arrival, const Place& place) {
  PairPlace& here = pair(place);
  if (here.epochs().has_ended(arrival.stamp.epoch)) {
    here.forget(side_of(place), arrival.stamp);
    return {.kind = Match::Kind::kEnded, .cause = here.epochs().cause_of(arrival.stamp.epoch)};
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
  if (agreed(room_.members, !group_.spans()))
    return {.kind = Match::Kind::kGo, .members = room_.members, .number = number};
  Match match = disagreement(group_, difference_of(room_.members, group_.ranks.size()), "no data was moved");
  match.members = room_.members;
  return match;
}

bool GroupPlaces::withdraw(const Arrival& arrival) {
  const Place place = place_of(work_of(arrival), arrival.lane_id);
  if (!place.is_pair()) return on_lane(place.lane).withdraw(local(place.index), arrival);
  pair(place).withdraw(side_of(place), arrival);
  return false;
}

// ---- ends --------------------------------------------------------------------------------------

std::vector<Arrival> GroupPlaces::end(const Place& place, const CausePtr& cause) {
  if (group_.spans()) return end_all(cause, Epochs::Why::kOther);
  std::vector<Arrival> waited;
  if (place.is_pair()) {
    pair(place).end(cause, Epochs::Why::kOther, waited);
    return waited;
  }
  return on_lane(place.lane).end(cause, Epochs::Why::kOther);
}

std::vector<Arrival> GroupPlaces::end_up_to(std::uint64_t epoch, const CausePtr& cause, Epochs::Why why) {
  if (pairs_.epochs.present() > epoch) return {};
  std::vector<Arrival> waited = end_all(cause, why);
  room_.ended.pop_back();  // the other node reports it
  for (const auto& here : lanes_)
    if (here != nullptr) here->skip_to(epoch + 1);
  for (auto& [members, each] : pairs_.used) each.skip_to(epoch + 1);
  pairs_.epochs.skip_to(epoch + 1);
  return waited;
}

CausePtr GroupPlaces::ended(std::uint64_t epoch) const {
  if (!group_.spans() || epoch >= pairs_.epochs.present()) return nullptr;
  return pairs_.epochs.cause_of(epoch);
}

std::vector<Arrival> GroupPlaces::drop(const Place& place, const Stamp& stamp, const CausePtr& cause) {
  const Epochs& epochs = place.is_pair() ? pair(place).epochs() : on_lane(place.lane).epochs();
  if (epochs.has_ended(stamp.epoch)) {
    if (place.is_pair()) pair(place).forget(side_of(place), stamp);
    return {};
  }
  if (!epochs.ended_by(cause->fault)) return end(place, cause);
  give_back(place, stamp);
  return {};
}

bool GroupPlaces::ended_by(const Place& place, std::uint64_t fault) {
  return (place.is_pair() ? pair(place).epochs() : on_lane(place.lane).epochs()).ended_by(fault);
}

std::vector<Arrival> GroupPlaces::end_all(const CausePtr& cause, Epochs::Why why) {
  std::vector<Arrival> waited;
  const auto add = [&](const std::vector<Arrival>& more) {
    waited.insert(waited.end(), more.begin(), more.end());
  };
  for (const auto& here : lanes_)
    if (here != nullptr) add(here->end(cause, why));
  for (auto& [members, each] : pairs_.used) each.end(cause, why, waited);
  const std::uint64_t epoch = pairs_.epochs.present();
  if (pairs_.epochs.end(cause, why) && group_.spans()) room_.ended.push_back({id_, epoch, cause, why});
  return waited;
}

// ---- where members stand -----------------------------------------------------------------------

void GroupPlaces::attached(Rank rank, bool first) {
  const auto index = group_.index_of(rank);
  if (!index) return;
  for (const auto& here : lanes_)
    if (here != nullptr) here->attached(locals_[*index], first);
  Epochs::Member& unused = pairs_.members[*index];
  first ? unused.begin(pairs_.epochs) : unused.enter(pairs_.epochs);
  for_each_pair(*index, [first](PairPlace& here, PairPlace::Side side) { here.attached(side, first); });
}

void GroupPlaces::move_on(const Place& place, std::uint64_t fault) {
  if (group_.spans()) return;  // heard() does it, at all places of the group
  if (place.is_pair()) return pair(place).move_on(side_of(place), fault);
  on_lane(place.lane).move_on(local(place.index), fault);
}

void GroupPlaces::heard(Rank rank, std::uint64_t fault) {
  const auto index = group_.index_of(rank);
  if (!index) return;
  for (const auto& here : lanes_)
    if (here != nullptr) here->heard(locals_[*index], fault);
  pairs_.members[*index].hear(pairs_.epochs, fault);
  for_each_pair(*index, [fault](PairPlace& here, PairPlace::Side side) { here.heard(side, fault); });
}

// Calls body(place, side) for each pair of the member that is used.
template<class Body>
void GroupPlaces::for_each_pair(std::size_t index, Body body) {
  for (auto& [members, each] : pairs_.used) {
    if (members.first == static_cast<std::int32_t>(index)) body(each, PairPlace::Side::kSender);
    if (members.second == static_cast<std::int32_t>(index)) body(each, PairPlace::Side::kReceiver);
  }
}

// ---- for reports -------------------------------------------------------------------------------

std::uint64_t GroupPlaces::matched(LaneId lane) const {
  const LanePlace* const here = find(lane);
  return here != nullptr ? here->matched() : 0;
}

std::uint64_t GroupPlaces::number_of(LaneId lane, const Stamp& stamp) const {
  const LanePlace* const here = find(lane);
  return here != nullptr ? here->number_of(stamp) : 0;
}

std::vector<Rank> GroupPlaces::missing(const Place& place) const {
  std::vector<Rank> ranks;
  for (const std::size_t each : find(place.lane)->missing(local(place.index))) ranks.push_back(rank_of(each));
  return ranks;
}

void GroupPlaces::add_waiting_for(Rank rank, std::vector<Arrival>& into) const {
  const auto index = group_.index_of(rank);
  if (!index) return;
  for (const auto& here : lanes_)
    if (here != nullptr) here->add_waiting(into);
  const auto self = static_cast<std::int32_t>(*index);
  for (const auto& [members, each] : pairs_.used)
    if (members.first == self || members.second == self) each.waiting(into);
}

void GroupPlaces::add_reached(std::vector<Reached>& into) const {
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (const LanePlace* const here = lanes_[lane].get(); here != nullptr && here->latest().number > 0)
      into.push_back({id_, LaneId(lane), here->latest()});
}

void GroupPlaces::add_pending(std::vector<Pending>& into) const {
  for (std::uint32_t lane = 0; lane < lanes_.size(); ++lane) {
    if (lanes_[lane] == nullptr) continue;
    for (LanePlace::Pending& each : lanes_[lane]->pending()) {
      Pending& pending =
          into.emplace_back(Pending{id_, LaneId(lane), each.number, std::move(each.arrived), {}});
      for (const std::size_t member : each.missing) pending.missing.push_back(rank_of(member));
    }
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
