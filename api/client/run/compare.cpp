#include "api/client/run/compare.hpp"

#include <cstring>
#include <string>
#include <vector>

namespace muster::client {
namespace {

constexpr std::uint64_t kGatheredOffset = 64;  // of all members' records, behind the own one
constexpr std::uint64_t kWords = sizeof(Held) / sizeof(std::int64_t);
static_assert(sizeof(Held) % sizeof(std::int64_t) == 0 && sizeof(Held) <= kGatheredOffset);

}  // namespace

Status Comparison::reserve(std::size_t members) {
  const std::uint64_t bytes = kGatheredOffset + members * sizeof(Held);
  if (bytes <= bytes_) return {};
  MUSTER_ASSIGN_OR_RETURN(const auto granted, buffers_.alloc(bytes));
  if (granted.address == nullptr)
    return failure(Code::kUnsupported, "this process does not see the memory of its device");
  // The former buffer is not freed, because plans still name it.
  buffer_ = granted.buffer;
  memory_ = granted.address;
  bytes_ = bytes;
  return {};
}

Status Comparison::prepare(muster_group group) {
  const auto known = rounds_.find(group);
  if (known != rounds_.end() && plans_.has(known->second.plan)) return {};
  MUSTER_ASSIGN_OR_RETURN(const auto* facts, groups_.facts(group));
  MUSTER_RETURN_IF_ERROR(reserve(facts->ranks.size()));
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_ALL_GATHER;
  c.group = group;
  c.dtype = MUSTER_I64;
  c.count = kWords;
  c.source = {buffer_, 0};
  c.target = {buffer_, kGatheredOffset};
  c.site = "muster_compare";
  MUSTER_ASSIGN_OR_RETURN(const muster_plan plan, plans_.cached(c));
  rounds_[group] = {plan, memory_};
  return {};
}

Result<muster_plan> Comparison::offer(muster_group group, const Held& held) {
  MUSTER_RETURN_IF_ERROR(prepare(group));
  const Round& round = rounds_.at(group);
  std::memcpy(round.memory, &held, sizeof held);
  return round.plan;
}

std::uint64_t Comparison::count_shared(const shm::GroupEpoch& met) {
  Counted& counted = counted_[met.group];
  if (counted.epoch != met.epoch) counted = {met.epoch, 0};
  return ++counted.results;
}

Status Comparison::judged(muster_group group, std::string_view what) {
  MUSTER_ASSIGN_OR_RETURN(const auto* facts, groups_.facts(group));
  std::vector<Held> all(facts->ranks.size());
  std::memcpy(all.data(), rounds_.at(group).memory + kGatheredOffset, all.size() * sizeof(Held));
  const std::string place = fmt::format("group {}{}{}", facts->name, what.empty() ? "" : ": ", what);
  return judge(place, facts->ranks, all);
}

}  // namespace muster::client
