#include "api/client/units/units.hpp"

#include "api/client/error.hpp"
#include "api/client/set/agreement.hpp"
#include "api/client/units/coverage.hpp"
#include "api/client/units/mesh_dims.hpp"

#include <algorithm>
#include <utility>

using muster::Code;
using muster::fail;
using muster::failure;
using muster::Result;
using muster::Status;
using muster::client::agree;
using Figure = muster::client::GradientTotal::Figure;
using muster::client::GradientTotal;
using muster::client::guarded;
using muster::client::SetMeetings;
using muster::client::status_of;
using muster::client::Unit;
using muster::client::UnitFacts;
using Places = muster::client::Unit::Places;
using Facts = muster::shard::UnitSchedule::Facts;

namespace {

// The facts that decide when units are gathered. Ranks with different facts would gather different units at
// once.
std::string description_of(std::span<const Facts> units, std::uint32_t depth) {
  std::string text = fmt::format("places of units: prefetch {}\n", depth);
  for (const Facts& unit : units)
    text += fmt::format("place of unit \"{}\": {} bytes at {}, slice {}, gradients {} at {}\n", unit.name,
                        unit.bytes, unit.offset, unit.slice_bytes, unit.gradient_bytes, unit.gradient_offset);
  return text;
}

// Names a parameter of which some ranks have nothing, as where tensor parallelism has more ranks than a layer
// has heads. Empty: there is none.
std::string warning_of_empty_parts(const UnitFacts& unit) {
  std::string warning;
  for (const UnitFacts::Parameter& p : unit.parameters) {
    std::int64_t empty = 0;
    for (std::int64_t rank = 0; p.places.has_other_shards() && rank < p.places.whole().ranks(); ++rank)
      if (p.places.whole().local_elements(rank) == 0) ++empty;
    if (empty > 0)
      warning =
          fmt::format("parameter \"{}\" of unit \"{}\": {} of the {} ranks of its layout have no part of it",
                      p.name, unit.name, empty, p.places.whole().ranks());
  }
  return warning;
}

// Where the ranks of a unit meet in its gathers and reductions.
void add_meetings(const UnitFacts& unit, SetMeetings& meetings) {
  meetings.add(MUSTER_LANE_GATHER, unit.shard.group);
  meetings.add(MUSTER_LANE_REDUCE, unit.shard.group);
  if (std::ranges::any_of(unit.parameters, &UnitFacts::Parameter::summed_over_tp))
    meetings.add(MUSTER_LANE_REDUCE, unit.tensor.group);
  // Whole gradients are summed on the one, sums on the other.
  if (unit.shard.ranks == 1) meetings.add(MUSTER_LANE_REDUCE, unit.replicate.group);
  meetings.add(MUSTER_LANE_ALLREDUCE, unit.replicate.group);
}

}  // namespace

muster_units::muster_units(muster_session* session, const muster_units_options& options)
    : session_(session),
      name_(options.name == nullptr ? "units" : options.name),
      flags_(options.flags),
      lanes_(session, muster::client::kUnitLanes),
      starts_(units_, lanes_),
      memory_(session, options),
      square_sum_(session, Figure::kSquareSum),
      zero_count_(session, Figure::kZeroCount),
      replicas_(session) {}

// ---- units -------------------------------------------------------------------------------------

Status muster_units::check(const muster_unit_options& options) const {
  if (schedule_ != nullptr)
    return failure(Code::kState,
                   "unit \"{}\" comes after the first muster_step_begin or muster_units_broadcast; make all "
                   "units before it",
                   options.name);
  if (units_.size() == kUnitsMax) return failure(Code::kNoResource, "a set has at most {} units", kUnitsMax);
  const std::string module = options.module == nullptr ? options.name : options.module;
  for (const auto& unit : units_) {
    if (unit->facts().name == options.name)
      return failure(Code::kBadArgument, "there is a unit \"{}\" already", options.name);
    if (unit->facts().root && (options.flags & MUSTER_UNIT_ROOT) != 0)
      return failure(Code::kBadArgument, "unit \"{}\" is to be the root, but \"{}\" is", options.name,
                     unit->facts().name);
    if (unit->facts().module == module && units_.back()->facts().module != module)
      return failure(
          Code::kBadArgument,
          "unit \"{}\" is of module \"{}\", as \"{}\", but unit \"{}\" of another module is between them",
          options.name, module, unit->facts().name, units_.back()->facts().name);
    for (std::uint32_t i = 0; i < options.parameter_count; ++i)
      if (options.parameters[i].name != nullptr && unit->facts().has(options.parameters[i].name))
        return failure(Code::kBadArgument, "parameter \"{}\" of unit \"{}\" is in unit \"{}\" already",
                       options.parameters[i].name, options.name, unit->facts().name);
  }
  return {};
}

Result<muster_unit> muster_units::add(const muster_unit_options& options) {
  MUSTER_RETURN_IF_ERROR(check(options));
  const auto number = static_cast<std::uint32_t>(units_.size());
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Unit> unit, Unit::make(session_, options, flags_, name_, number));
  const bool another = units_.empty() || units_.back()->facts().module != unit->facts().module;
  if (std::string empty = warning_of_empty_parts(unit->facts()); !empty.empty()) warning_ = std::move(empty);
  modules_.push_back(units_.empty() ? 0 : modules_.back() + (another ? 1 : 0));
  units_.push_back(std::move(unit));
  return static_cast<muster_unit>(units_.size() - 1);
}

muster_units_info muster_units::info() const {
  muster_units_info info = MUSTER_UNITS_INFO_INIT;
  info.units = static_cast<std::uint32_t>(units_.size());
  memory_.add_to(info);
  for (const auto& unit : units_) info.shard_bytes += unit->bytes();
  warning_.copy(info.warning, sizeof info.warning - 1);
  if (schedule_ == nullptr) return info;
  const muster::shard::UnitSchedule::Counts counts = schedule_->counts();
  info.order_changes = static_cast<std::uint32_t>(counts.order_changes);
  info.whole_bytes = counts.whole_bytes;
  info.whole_bytes_peak = counts.whole_bytes_peak;
  info.gathers = counts.gathers;
  info.reductions = counts.reductions;
  info.prefetches = counts.prefetches;
  info.prefetches_skipped = counts.prefetches_skipped;
  info.demands = counts.demands;
  return info;
}

muster::shm::UnitFigures muster_units::figures() const {
  muster::shm::UnitFigures figures;
  figures.place_bytes = memory_.place_bytes();
  figures.budget_bytes = memory_.asked().budget_bytes;
  figures.prefetch = memory_.depth();
  figures.prefetch_asked = memory_.asked().prefetch;
  if (schedule_ == nullptr) return figures;
  const muster::shard::UnitSchedule::Counts counts = schedule_->counts();
  figures.whole_bytes = counts.whole_bytes;
  figures.demands = counts.demands;
  figures.skipped = counts.prefetches_skipped;
  return figures;
}

std::string muster_units::description() const {
  const muster_units_options& asked = memory_.asked();
  std::string text = fmt::format("set \"{}\": flags {}, budget {}, prefetch {}, reduce inputs {}\n", name_,
                                 flags_, asked.budget_bytes, asked.prefetch, asked.reduce_inputs);
  for (const auto& unit : units_) text += unit->facts().description();
  return text;
}

// ---- the first step ----------------------------------------------------------------------------

// The ranks of `k` consecutive shards.
Result<muster_group> muster_units::slice_group(const Unit& unit) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<std::int32_t> ranks,
                          muster::client::ranks_of(session_, unit.facts().shard.group));
  const auto k = static_cast<std::size_t>(unit.facts().slice_ranks);
  const std::size_t first = static_cast<std::size_t>(unit.facts().shard.coordinate) / k * k;
  const std::string name = fmt::format("{}/{}", name_, k);
  muster_group group = 0;
  MUSTER_RETURN_IF_ERROR(
      status_of(muster_group_make(session_, ranks.data() + first, k, name.c_str(), &group)));
  if (std::ranges::find(slice_groups_, group) == slice_groups_.end()) slice_groups_.push_back(group);
  return group;
}

Status muster_units::prepare(std::string& facts) {
  if (units_.empty()) return failure(Code::kState, "the set has no units");
  std::vector<Facts> scheduled;
  std::vector<Places> places(units_.size());
  for (std::size_t i = 0; i < units_.size(); ++i) {
    scheduled.push_back(units_[i]->facts().scheduled());
    scheduled.back().module = modules_[i];
  }
  for (const auto& unit : units_)
    if (is_shared()) MUSTER_RETURN_IF_ERROR(muster::client::check_covered(session_, unit->facts()));
  MUSTER_RETURN_IF_ERROR(memory_.place(scheduled, places));
  facts += description_of(scheduled, memory_.depth());
  MUSTER_RETURN_IF_ERROR(lanes_.open(name_));
  for (std::size_t i = 0; i < units_.size(); ++i) {
    const UnitFacts& unit = units_[i]->facts();
    if (unit.slice_ranks != 0) {
      MUSTER_ASSIGN_OR_RETURN(places[i].slice_group, slice_group(*units_[i]));
    }
    MUSTER_RETURN_IF_ERROR(units_[i]->prepare(places[i]));
    if (unit.shares && std::ranges::find(sharing_groups_, unit.shard.group) == sharing_groups_.end())
      sharing_groups_.push_back(unit.shard.group);
    add_meetings(unit, in_steps_);
  }
  for (const muster_group group : slice_groups_) in_steps_.add(MUSTER_LANE_GATHER, group);
  if (is_shared()) {
    MUSTER_RETURN_IF_ERROR(between_steps_.add(session_, MUSTER_LANE_GATHER, muster::client::kStageDims));
    MUSTER_RETURN_IF_ERROR(between_steps_.add(session_, MUSTER_LANE_REDUCE, GradientTotal::kDims));
  }
  MUSTER_ASSIGN_OR_RETURN(watch_,
                          muster::client::watch_units({session_, name_, units_, is_shared(), starts_}));
  muster::shard::UnitOperations* operations = &starts_;
  if (watch_ != nullptr) operations = watch_.get();
  schedule_ =
      std::make_unique<muster::shard::UnitSchedule>(std::move(scheduled), memory_.depth(), *operations);
  return {};
}

Status muster_units::make_ready() {
  if (schedule_ != nullptr) return {};
  // The other ranks learn of any refusal here, also of memory.
  std::string facts;
  const Status own = status_of(guarded([&]() -> Status {
    facts = description();
    return prepare(facts);
  }));
  muster_group group = MUSTER_GROUP_SELF;
  if (is_shared()) MUSTER_RETURN_IF_ERROR(status_of(muster_mesh_group(session_, "non_pp", &group)));
  Status agreed = agree(session_, group, "units", own, facts);
  if (!agreed.ok()) (void)withdraw();
  return agreed;
}

// ---- steps -------------------------------------------------------------------------------------

Status muster_units::begin_step(muster_point after, bool unchanged) {
  MUSTER_RETURN_IF_ERROR(make_ready());
  if (watch_ != nullptr && !schedule_->in_step()) {
    Status watched = watch_->begin_step(after, unchanged);
    // All ranks get kCorrupt, so no rank needs to warn the others.
    if (watched.code() != Code::kCorrupt) break_off(between_steps_, watched);
    MUSTER_RETURN_IF_ERROR(watched);
  }
  if (!schedule_->in_step()) MUSTER_RETURN_IF_ERROR(lanes_.mark_step(++steps_));
  MUSTER_RETURN_IF_ERROR(schedule_->begin_step(after, unchanged));
  for (const auto& unit : units_) unit->reduction().begin_step(unchanged);
  return {};
}

Status muster_units::end_step(muster_point after, muster_point* done) {
  if (schedule_ == nullptr) return failure(Code::kState, "no step of these units has begun");
  MUSTER_ASSIGN_OR_RETURN(const auto incomplete, schedule_->end_step(after));
  for (const std::size_t unit : incomplete)
    warning_ = fmt::format("a part of unit \"{}\" did not run in this step, so it stayed whole to its end",
                           units_[unit]->facts().name);
  auto read = meet_after_reads();
  if (!read) {
    break_off(in_steps_, read.error());
    return std::move(read).error();
  }
  // A point for each timeline, of which the caller may have many.
  if (watch_ != nullptr) MUSTER_RETURN_IF_ERROR(watch_->end_step());
  muster::shard::PointSet ended;
  ended.add(schedule_->reduced());
  ended.add(*read);
  if (ended.points().empty()) return {};
  done[0] = ended.points().front();
  MUSTER_ASSIGN_OR_RETURN(done[1], lanes_.join(MUSTER_LANE_REDUCE, ended.points().subspan(1)));
  return {};
}

// Shared shards lie in the memory that other ranks compute from, until these have ended their step too.
Result<muster_point> muster_units::meet_after_reads() {
  muster::shard::PointSet reads;
  for (std::size_t i = 0; i < units_.size(); ++i)
    if (units_[i]->facts().shares) schedule_->add_uses(i, reads);
  muster_point met = MUSTER_POINT_NONE;
  for (const muster_group group : sharing_groups_) {
    MUSTER_ASSIGN_OR_RETURN(met, lanes_.barrier(MUSTER_LANE_REDUCE, group, reads.points()));
  }
  return met;
}

Result<muster_point> muster_units::total(Figure figure, const muster_tensor& out) {
  if (schedule_ == nullptr || schedule_->in_step())
    return fail(Code::kState,
                "figures of all gradients are taken between muster_step_end and the next muster_step_begin");
  GradientTotal& total = figure == Figure::kSquareSum ? square_sum_ : zero_count_;
  const std::int64_t numbers = out.dims == 0 ? 1 : out.size[0];
  if (out.dtype != MUSTER_F64 || out.dims > 1 || numbers != total.numbers() ||
      (numbers > 1 && out.stride[0] != 1))
    return fail(Code::kBadArgument, "out must be F64 [{}], without gaps", total.numbers());
  auto point = total.start(lanes_, units_, out, is_shared(), schedule_->reduced());
  // All ranks get kUnsupported, so no rank needs to warn the others.
  if (!point && point.error().code() != Code::kUnsupported) break_off(between_steps_, point.error());
  return point;
}

Result<muster_point> muster_units::broadcast(muster_point after) {
  MUSTER_RETURN_IF_ERROR(make_ready());
  if (schedule_->in_step())
    return fail(Code::kState, "shards are broadcast between two steps, and not in one; call muster_step_end");
  auto done = replicas_.start(lanes_, units_, is_shared(), after);
  if (!done && done.error().code() != Code::kUnsupported) break_off(between_steps_, done.error());
  for (std::size_t unit = 0; done && unit < units_.size(); ++unit) shards_change(unit, *done);
  return done;
}

void muster_units::shards_change(std::size_t unit, muster_point after) {
  schedule_->shards_change(unit, after);
  if (watch_ != nullptr) watch_->shards_change(after);
}

Status muster_units::abandon() {
  if (schedule_ == nullptr) return {};
  Status reset = lanes_.reset();
  if (!reset.ok() && reset.code() != Code::kPeerLost) return reset;
  schedule_->reset();
  if (watch_ != nullptr) watch_->reset();
  for (const auto& unit : units_) unit->reduction().reset();
  told_ = false;
  MUSTER_RETURN_IF_ERROR(reset);
  MUSTER_RETURN_IF_ERROR(in_steps_.meet(lanes_));
  return between_steps_.meet(lanes_);
}

void muster_units::break_step(const Status& why) {
  if (schedule_ != nullptr && schedule_->in_step()) break_off(in_steps_, why);
}

// A call that is refused for its arguments has done nothing, and may be repeated.
void muster_units::break_off(const SetMeetings& meetings, const Status& why) {
  if (why.ok() || why.code() == Code::kBadArgument || muster::is_session_end(why.code())) return;
  schedule_->break_step();
  if (!std::exchange(told_, true)) meetings.abort(session_, why);
}

Status muster_units::withdraw() {
  MUSTER_RETURN_IF_ERROR(lanes_.close());
  MUSTER_RETURN_IF_ERROR(square_sum_.withdraw());
  MUSTER_RETURN_IF_ERROR(zero_count_.withdraw());
  MUSTER_RETURN_IF_ERROR(replicas_.withdraw());
  if (watch_ != nullptr) MUSTER_RETURN_IF_ERROR(watch_->release());
  schedule_.reset();
  watch_.reset();
  sharing_groups_.clear();
  in_steps_.clear();
  between_steps_.clear();
  for (const auto& unit : units_) MUSTER_RETURN_IF_ERROR(unit->withdraw());
  MUSTER_RETURN_IF_ERROR(memory_.release());
  for (; !slice_groups_.empty(); slice_groups_.pop_back())
    MUSTER_RETURN_IF_ERROR(status_of(muster_group_free(session_, slice_groups_.back())));
  return {};
}

Status muster_units::release() {
  MUSTER_RETURN_IF_ERROR(lanes_.drain());
  MUSTER_RETURN_IF_ERROR(withdraw());
  for (const auto& unit : units_) MUSTER_RETURN_IF_ERROR(unit->release());
  return {};
}
