#include "api/client/check/check_mode.hpp"

#include <cstdio>
#include <utility>

namespace muster::client {
namespace {

const char* verb(const MemoryUse& use) {
  return use.writes ? "writes" : "reads";
}

}  // namespace

CheckMode::CheckMode(std::int32_t rank) : rank_(rank), buffers_(rank) {
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

// ---- plans -------------------------------------------------------------------------------------

void CheckMode::plan_made(muster_plan plan, std::string name, MemoryUses uses) {
  plans_[plan] = {std::move(name), std::make_shared<const MemoryUses>(std::move(uses))};
}

Status CheckMode::buffer_gone(muster_buffer buffer) {
  const auto [from, to] = buffers_.extent_of(buffer);
  if (from == nullptr) return {};
  starts_.forget(from, to);
  return found(buffers_.give_back(buffer));
}

// ---- starts ------------------------------------------------------------------------------------

std::optional<NextStart> CheckMode::next_start(muster_plan plan, const muster_submit& submit) const {
  const auto planned = plans_.find(plan);
  if (planned == plans_.end() || submit.wait_count > MUSTER_WAITS_MAX) return std::nullopt;
  return NextStart{planned->second.name, planned->second.uses, submit.lane,
                   std::vector<muster_point>(submit.waits, submit.waits + submit.wait_count)};
}

std::string CheckMode::name_of(const StartedUse& start) const {
  const std::uint32_t lane = shm::point_timeline(start.point);
  const auto named = lanes_.find(lane);
  return fmt::format("{} (start {} of lane {}{})", start.name, shm::point_value(start.point), lane,
                     named == lanes_.end() ? "" : fmt::format(" \"{}\"", named->second));
}

std::string CheckMode::words(const Race& race) const {
  return fmt::format("{} {}, which {} {}", verb(race.mine), buffers_.name_of(race.mine.from, race.mine.to),
                     name_of(*race.earlier), verb(race.its));
}

Status CheckMode::judge(std::string_view call, const NextStart& next) const {
  const auto race = starts_.race_of(next);
  if (!race) return {};
  return found(
      fmt::format("{} of {} on lane {} {}, and does not come after that; let it wait for that "
                  "point (submit.waits), or start it on that lane",
                  call, next.name, next.lane, words(*race)));
}

Status CheckMode::judge_run(std::string_view call, muster_plan plan) const {
  const auto planned = plans_.find(plan);
  if (planned == plans_.end()) return {};
  const auto race = starts_.race_of(*planned->second.uses);
  if (!race) return {};
  return found(
      fmt::format("{} of {} {}, and nobody has waited for that; wait for its point first "
                  "(muster_point_wait)",
                  call, planned->second.name, words(*race)));
}

void CheckMode::started(const NextStart& next, muster_point point) {
  release(starts_.add(next, point));
  protect(starts_.latest());
}

// What waits for a point that this process has yet to raise may be used until then.
void CheckMode::protect(const StartedUse& start) {
  if (start.open.empty())
    buffers_.protect(*start.uses, name_of(start) + " is in flight; wait for its point first");
}

void CheckMode::release(const std::vector<StartedUse>& ended) {
  for (const StartedUse& start : ended)
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
  for (const StartedUse* const start : starts_.signal(timeline, value)) protect(*start);
}

}  // namespace muster::client
