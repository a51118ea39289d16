#include "scheduler/run/lane_place.hpp"

#include "api/base/assert.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>

namespace muster::scheduler {
namespace {

const CollectiveWork& work_of(const Arrival& arrival) {
  return *arrival.plan->collective();
}

// "rank 3 (model.py:311)".
std::string named(const Arrival& arrival) {
  const std::string& site = work_of(arrival).site;
  return fmt::format("rank {}{}", arrival.rank.value, site.empty() ? "" : fmt::format(" ({})", site));
}

// Its faces with that member; nullptr: it has none.
const FaceBalance* faces_with(const CollectiveWork& work, std::size_t member) {
  const auto peer = static_cast<std::int32_t>(member);
  const auto at =
      std::lower_bound(work.neighbours.begin(), work.neighbours.end(), peer,
                       [](const FaceBalance& each, std::int32_t index) { return each.peer < index; });
  return at != work.neighbours.end() && at->peer == peer ? &*at : nullptr;
}

}  // namespace

std::string difference_of(std::span<const Arrival> members, std::size_t ranks) {
  std::vector<Party> parties(ranks);
  for (const Arrival& member : members) {
    const CollectiveWork& work = work_of(member);
    parties[static_cast<std::size_t>(work.index())] = {static_cast<std::int32_t>(member.rank.value),
                                                       &work.collective, &work.share, work.site};
  }
  return difference(parties);
}

// Compares signatures only (decision D7). Pairwise parts add up only if `all` members are here.
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

LanePlace::LanePlace(const Group& group, Epochs epochs, const std::vector<Epochs::Member>& members)
    : group_(group), epochs_(std::move(epochs)), arrived_(members.size()), parts_(members.size()) {
  members_.reserve(members.size());
  fresh_.reserve(members.size());
  for (const Epochs::Member& stands : members) members_.push_back({stands});
}

// ---- stamps ------------------------------------------------------------------------------------

Stamp LanePlace::stamp(std::size_t member) {
  Member& mine = members_[member];
  if (mine.given_back.empty()) return {mine.stands.epoch(), mine.next++};
  const Stamp stamp{mine.stands.epoch(), mine.given_back.front()};
  mine.given_back.erase(mine.given_back.begin());
  return stamp;
}

void LanePlace::give_back(std::size_t member, const Stamp& stamp) {
  Member& mine = members_[member];
  if (mine.stands.epoch() != stamp.epoch) return;
  mine.given_back.insert(std::lower_bound(mine.given_back.begin(), mine.given_back.end(), stamp.number),
                         stamp.number);
}

// ---- meetings ----------------------------------------------------------------------------------

bool LanePlace::by_neighbours(const Arrival& arrival) const {
  return !group_.spans() && has_faces(work_of(arrival).collective.op);
}

bool LanePlace::waits_with(std::size_t member, const Stamp& stamp) const {
  return arrived_[member] && arrived_[member]->stamp.number == stamp.number;
}

bool LanePlace::is_through(std::size_t member, const Stamp& stamp) const {
  return members_[member].through.epoch == stamp.epoch && members_[member].through.number >= stamp.number;
}

LanePlace::Meeting LanePlace::arrive(std::size_t member, const Arrival& arrival, std::vector<Arrival>& met,
                                     std::string& differ) {
  MUSTER_ASSERT(!arrived_[member].has_value());  // a lane holds one collective at its head
  arrived_[member] = arrival;
  ++arrived_count_;
  met.clear();
  if (!by_neighbours(arrival)) return meet_all(arrival, met, differ);
  fresh_.push_back(member);
  return Meeting::kWait;
}

LanePlace::Meeting LanePlace::meet_all(const Arrival& arrival, std::vector<Arrival>& met,
                                       std::string& differ) {
  if (latest_.epoch == arrival.stamp.epoch && latest_.number >= arrival.stamp.number) {
    differ = fmt::format("the operation: {} at {}, where others have met at an exchange",
                         arrival.plan->label(), named(arrival));
    return Meeting::kDisagree;
  }
  if (arrived_count_ < arrived_.size()) return Meeting::kWait;
  for (std::size_t i = 0; i < arrived_.size(); ++i) {
    if (!waits_with(i, arrival.stamp)) return Meeting::kWait;
    met.push_back(*arrived_[i]);
  }
  if (!agreed(met, !group_.spans())) {
    differ = difference_of(met, group_.ranks.size());
    return Meeting::kDisagree;
  }
  for (auto& each : arrived_) each.reset();
  arrived_count_ = 0;
  count(arrival.stamp);
  return Meeting::kGo;
}

std::string LanePlace::difference_between(const Arrival& one, const Arrival& other) const {
  const std::string differ = difference_of(std::array{one, other}, group_.ranks.size());
  return !differ.empty() ? differ : "their faces";
}

// The member meets whoever is here. Returns false if they disagree.
bool LanePlace::meet_neighbours(std::size_t member, std::string& differ) {
  Arrival& mine = *arrived_[member];
  mine.unmet = 0;
  const CollectiveWork& work = work_of(mine);
  for (std::size_t i = 0; i < arrived_.size(); ++i) {
    const FaceBalance* const ours = faces_with(work, i);
    if (i == member) {
      if (ours != nullptr && !ours->balance.zero()) differ = difference_between(mine, mine);
    } else if (waits_with(i, mine.stamp)) {
      Arrival& other = *arrived_[i];
      const FaceBalance* const theirs = faces_with(work_of(other), member);
      Hash128 sum = ours != nullptr ? ours->balance : Hash128();
      if (theirs != nullptr) sum += theirs->balance;
      const bool same = work_of(other).signature.common == work.signature.common;
      if (!same || !sum.zero()) {
        differ = difference_between(mine, other);
      } else if (ours != nullptr && parts_[i] != Part::kActive) {
        parts_[i] = Part::kPassive;
        --other.unmet;
      }
    } else if (ours != nullptr && is_through(i, mine.stamp)) {
      differ = fmt::format("the faces: {} has some with rank {}, which has ended this exchange without",
                           named(mine), group_.ranks[i].value);
    } else if (ours != nullptr) {
      ++mine.unmet;
    }
    if (!differ.empty()) return false;
  }
  return true;
}

LanePlace::Meeting LanePlace::meet(std::vector<Arrival>& met, std::size_t* active, std::string& differ) {
  const Stamp stamp = arrived_[fresh_.front()]->stamp;
  std::fill(parts_.begin(), parts_.end(), Part::kNone);
  for (const std::size_t member : fresh_)
    if (waits_with(member, stamp)) parts_[member] = Part::kActive;
  met.clear();
  const auto join = [&](std::size_t member) {
    met.push_back(*arrived_[member]);
    if (met.back().unmet > 0) return;
    members_[member].through = stamp;
    arrived_[member].reset();
    --arrived_count_;
  };
  for (const std::size_t member : fresh_)
    if (parts_[member] == Part::kActive && !meet_neighbours(member, differ)) return Meeting::kDisagree;
  for (const std::size_t member : fresh_) {
    if (parts_[member] != Part::kActive) continue;
    const Arrival& mine = *arrived_[member];
    const bool alone = mine.unmet > 0 && mine.unmet == work_of(mine).neighbours.size();
    if (!alone) join(member);
  }
  std::erase_if(fresh_, [&](std::size_t member) { return parts_[member] == Part::kActive; });
  *active = met.size();
  if (met.empty()) return Meeting::kWait;
  for (std::size_t i = 0; i < parts_.size(); ++i)
    if (parts_[i] == Part::kPassive) join(i);
  count(stamp);
  return Meeting::kGo;
}

void LanePlace::count(const Stamp& stamp) {
  if (latest_.epoch == stamp.epoch && latest_.number >= stamp.number) return;
  latest_ = stamp;
  ++matched_;
}

bool LanePlace::withdraw(std::size_t member, const Arrival& arrival) {
  auto& slot = arrived_[member];
  if (!slot || slot->value != arrival.value || slot->rank != arrival.rank) return false;
  const CollectiveWork& work = work_of(*slot);
  const std::size_t itself = faces_with(work, member) != nullptr ? 1 : 0;
  const bool met = by_neighbours(*slot) && slot->unmet + itself < work.neighbours.size();
  slot.reset();
  --arrived_count_;
  return std::erase(fresh_, member) == 0 && met;
}

std::vector<Arrival> LanePlace::end(const CausePtr& cause, Epochs::Why why) {
  std::vector<Arrival> waited;
  if (!epochs_.end(cause, why)) return waited;
  add_waiting(waited);
  for (auto& slot : arrived_) slot.reset();
  arrived_count_ = 0;
  fresh_.clear();
  return waited;
}

// ---- where members stand -----------------------------------------------------------------------

void LanePlace::attached(std::size_t member, bool first) {
  Member& mine = members_[member];
  if (first) return mine.stands.begin(epochs_);
  mine.stands.enter(epochs_);
  mine.restart();
}

void LanePlace::heard(std::size_t member, std::uint64_t fault) {
  Member& mine = members_[member];
  if (mine.stands.hear(epochs_, fault)) mine.restart();
}

void LanePlace::move_on(std::size_t member, std::uint64_t fault) {
  Member& mine = members_[member];
  if (mine.stands.move_on(epochs_, fault)) mine.restart();
}

// ---- for reports -------------------------------------------------------------------------------

std::uint64_t LanePlace::number_of(const Stamp& stamp) const {
  const std::uint64_t of_latest = latest_.epoch == stamp.epoch ? latest_.number : 0;
  return matched_ + stamp.number - of_latest;
}

std::vector<std::size_t> LanePlace::missing(std::size_t member) const {
  const auto& mine = arrived_[member];
  const bool some = mine && by_neighbours(*mine);
  std::vector<std::size_t> missing;
  for (std::size_t i = 0; i < arrived_.size(); ++i) {
    if (some && (i == member || faces_with(work_of(*mine), i) == nullptr)) continue;
    const bool has_come =
        some ? waits_with(i, mine->stamp) || is_through(i, mine->stamp) : arrived_[i].has_value();
    if (!has_come) missing.push_back(i);
  }
  return missing;
}

void LanePlace::add_waiting(std::vector<Arrival>& into) const {
  for (const auto& slot : arrived_)
    if (slot) into.push_back(*slot);
}

std::vector<LanePlace::Pending> LanePlace::pending() const {
  std::vector<Pending> all;
  for (std::size_t i = 0; i < arrived_.size(); ++i) {
    if (!arrived_[i]) continue;
    const std::uint64_t number = number_of(arrived_[i]->stamp);
    auto here =
        std::find_if(all.begin(), all.end(), [&](const Pending& each) { return each.number == number; });
    if (here == all.end()) here = all.insert(all.end(), Pending{number, {}, {}});
    here->arrived.push_back(*arrived_[i]);
    for (const std::size_t each : missing(i))
      if (std::find(here->missing.begin(), here->missing.end(), each) == here->missing.end())
        here->missing.push_back(each);
  }
  for (Pending& each : all) std::sort(each.missing.begin(), each.missing.end());
  return all;
}

}  // namespace muster::scheduler
