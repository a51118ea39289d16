#include "api/client/check/check_mode.hpp"

#include <cstdio>
#include <utility>

namespace muster::client {
namespace {

using Started = StartsInFlight::Started;

const char* verb(const MemoryUse& use) {
  return use.writes ? "writes" : "reads";
}

MemoryUses all_of(const std::byte* from, const std::byte* to) {
  return {use_of(from, to, true)};
}

}  // namespace

CheckMode::CheckMode(std::int32_t rank) : rank_(rank), buffers_(rank), plans_(buffers_) {
  if (rank == 0)
    std::fputs(
        "muster: check mode is on (MUSTER_CHECK=1): memory and the order of starts are checked. It is "
        "slow; do not measure with it\n",
        stderr);
}

Status CheckMode::found(Status finding) const {
  if (!finding.ok()) std::fprintf(stderr, "muster: check mode: %s\n", finding.message().c_str());
  return finding;
}

Status CheckMode::found(std::string_view text) const {
  return found(failure(Code::kState, "rank {}: {}", rank_, text));
}

Status CheckMode::buffer_gone(muster_buffer buffer) {
  const auto extent = buffers_.extent_of(buffer);
  const std::byte* const from = extent.first;
  const std::byte* const to = extent.second;
  if (from == nullptr) return {};
  starts_.forget(from, to);
  std::erase_if(closed_, [&](const Closed& each) {
    return each.uses.front().from < to && from < each.uses.front().to;
  });
  return found(buffers_.give_back(buffer));
}

// ---- starts ------------------------------------------------------------------------------------

std::string CheckMode::name_of(const Started& start) const {
  const std::uint32_t lane = shm::point_timeline(start.point);
  const auto named = lanes_.find(lane);
  return fmt::format("{} (start {} of lane {}{})", start.name, shm::point_value(start.point), lane,
                     named == lanes_.end() ? "" : fmt::format(" \"{}\"", named->second));
}

std::string CheckMode::words(const StartsInFlight::Race& race) const {
  return fmt::format("{} {}, which {} {}", verb(race.mine), buffers_.name_of(race.mine.from, race.mine.to),
                     name_of(*race.earlier), verb(race.its));
}

Status CheckMode::judge(std::string_view call, const StartsInFlight::Next& next) const {
  const std::string what = fmt::format("{} of {} on lane {}", call, next.name, next.lane);
  MUSTER_RETURN_IF_ERROR(judge_closed(what, *next.uses));
  const auto race = starts_.race_of(next);
  if (!race) return {};
  return found(
      fmt::format("{} {}, and does not come after that; let it wait for that point (submit.waits, or "
                  "`after` in a unit's call), or start it on that lane",
                  what, words(*race)));
}

Status CheckMode::judge_run(std::string_view call, muster_plan plan) const {
  const PlanUses::Plan* const planned = plans_.find(plan);
  if (planned == nullptr) return {};
  const std::string what = fmt::format("{} of {}", call, planned->name);
  MUSTER_RETURN_IF_ERROR(judge_closed(what, *planned->uses));
  const auto race = starts_.race_of(*planned->uses);
  if (!race) return {};
  return found(
      fmt::format("{} {}, and nobody has waited for that; wait for its point first (muster_point_wait)", what,
                  words(*race)));
}

void CheckMode::started(const StartsInFlight::Next& next, muster_point point) {
  sums_.forget_written(*next.uses);
  // A source that a start in flight still writes gets no digest.
  const bool is_ready = next.moves && !starts_.race_of(*next.uses);
  starts_.add(next, point);
  release(starts_.forget_oldest());
  const Started& start = starts_.latest();
  if (is_ready && start.open.empty())
    if (auto sum = SourceSums::Sum::of(*start.uses)) sums_.add(point, *std::move(sum));
  protect(start);
}

Status CheckMode::judge_sum(std::string_view whose, const SourceSums::Sum& sum) const {
  const MemoryUse* const changed = sum.changed();
  if (changed == nullptr) return {};
  return found(fmt::format("the source of {}, {}, has changed before its end; do not write it until then",
                           whose, buffers_.name_of(changed->from, changed->to)));
}

Status CheckMode::reach(muster_point point) {
  const std::vector<Started> ended = starts_.reach(point);
  release(ended);
  for (const Started& start : ended)
    if (const auto sum = sums_.take(start.point)) MUSTER_RETURN_IF_ERROR(judge_sum(name_of(start), *sum));
  return {};
}

void CheckMode::fail(muster_point point) {
  const std::vector<Started> ended = starts_.fail(point);
  release(ended);
  for (const Started& start : ended) (void)sums_.take(start.point);
}

// A start that waits for a point of this process leaves its memory free until the process raises that point.
void CheckMode::protect(const Started& start) {
  if (start.open.empty())
    buffers_.protect(*start.uses, name_of(start) + " is in flight; wait for its point first");
}

void CheckMode::release(const std::vector<Started>& ended) {
  for (const Started& start : ended)
    if (start.open.empty()) buffers_.release(*start.uses);
}

Status CheckMode::judge_signal(std::uint32_t timeline, std::uint64_t value) const {
  const auto late = starts_.race_by_signal(timeline, value);
  if (!late) return {};
  return found(
      fmt::format("muster_timeline_signal of value {} of timeline {}: it lets {} begin, which {}, "
                  "and does not come after that; wait for that point before the signal",
                  value, timeline, name_of(*late->later), words(late->race)));
}

void CheckMode::signalled(std::uint32_t timeline, std::uint64_t value) {
  for (const Started* const start : starts_.signal(timeline, value)) protect(*start);
}

// ---- closed memory -----------------------------------------------------------------------------

void CheckMode::close(const std::byte* from, const std::byte* to, std::string why) {
  open(from, to);
  closed_.push_back({all_of(from, to), std::move(why)});
  buffers_.protect(closed_.back().uses, closed_.back().why);
}

// The parts of a closed place before and behind the range stay closed.
void CheckMode::open(const std::byte* from, const std::byte* to) {
  std::vector<Closed> left;
  for (Closed& each : closed_) {
    const MemoryUse place = each.uses.front();
    if (place.to <= from || to <= place.from) {
      left.push_back(std::move(each));
      continue;
    }
    buffers_.release(each.uses);
    if (place.from < from) left.push_back({all_of(place.from, from), each.why});
    if (place.from < from) buffers_.protect(left.back().uses, each.why);
    if (to < place.to) left.push_back({all_of(to, place.to), each.why});
    if (to < place.to) buffers_.protect(left.back().uses, each.why);
  }
  closed_ = std::move(left);
}

Status CheckMode::judge_closed(std::string_view what, const MemoryUses& uses) const {
  for (const MemoryUse& use : uses)
    for (const Closed& each : closed_)
      if (meet(use, each.uses.front()))
        return found(
            fmt::format("{} {} {}: {}", what, verb(use), buffers_.name_of(use.from, use.to), each.why));
  return {};
}

Status CheckMode::judge_end(const std::byte* from, const std::byte* to, std::span<const muster_point> points,
                            std::string_view whose) const {
  StartsInFlight::Next end;
  end.uses = std::make_shared<const MemoryUses>(all_of(from, to));
  end.lane = MUSTER_LANE_NONE;
  end.waits.assign(points.begin(), points.end());
  const auto race = starts_.race_of(end);
  if (!race) return {};
  return found(fmt::format(
      "{} is given up while {} {} {}; give its point, or a later one of its lane, to the "
      "call that ends the use (`after`)",
      whose, name_of(*race->earlier), verb(race->its), buffers_.name_of(race->its.from, race->its.to)));
}

Status CheckMode::judge_read(std::string_view call, std::span<const muster_tensor> views) const {
  MemoryUses uses;
  for (const muster_tensor& view : views) add_view(uses, view, buffers_.extent_of(view.buffer).first, false);
  const auto race = starts_.race_of(uses);
  if (!race) return {};
  return found(
      fmt::format("{} {}, and does not come after that; give it that point, or a later one of its "
                  "lane (`after`)",
                  call, words(*race)));
}

}  // namespace muster::client
