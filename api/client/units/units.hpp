// muster_units: the units of a model, their memory, their lanes and their schedule.
#pragma once

#include "api/base/result.hpp"
#include "api/base/shard/schedule.hpp"
#include "api/client/set/lanes.hpp"
#include "api/client/set/meetings.hpp"
#include "api/client/units/replicas.hpp"
#include "api/client/units/totals.hpp"
#include "api/client/units/unit.hpp"
#include "api/client/units/unit_memory.hpp"
#include "api/client/units/unit_starts.hpp"
#include "api/client/units/unit_watch.hpp"
#include "api/shm/layout.hpp"

#include <muster/units.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

// Owns    its units, the memory in which they are whole, lanes, and groups of int reshards.
// Thread  the session's.
// Bound   kUnitsMax units.
// Fails   as units.h says.
struct muster_units {
 public:
  static constexpr std::size_t kUnitsMax = 1 << 16;

  muster_units(muster_session* session, const muster_units_options& options);
  ~muster_units() = default;
  muster_units(const muster_units&) = delete;
  muster_units& operator=(const muster_units&) = delete;

  muster_session* session() const { return session_; }
  std::size_t size() const { return units_.size(); }
  muster::client::Unit& unit(std::size_t index) { return *units_[index]; }
  // Null before the first step.
  muster::shard::UnitSchedule* schedule() { return schedule_.get(); }
  // Null before the first step, and if the session is not in check mode.
  muster::client::UnitWatch* watch() { return watch_.get(); }
  muster_units_info info() const;
  muster::shm::UnitFigures figures() const;  // for `muster top`

  muster::Result<muster_unit> add(const muster_unit_options& options);
  muster::Status begin_step(muster_point after, bool unchanged);
  muster::Status end_step(muster_point after, muster_point* done);
  // Shards of a unit change, and may be read after the point.
  void shards_change(std::size_t unit, muster_point after);
  muster::Result<muster_point> total(muster::client::GradientTotal::Figure figure, const muster_tensor& out);
  muster::Result<muster_point> broadcast(muster_point after);
  // A call of a step has failed here. In a step the other ranks are told, and only abandon() may follow.
  void break_step(const muster::Status& why);
  muster::Status abandon();
  // Errors: BUSY.
  muster::Status release();

 private:
  muster::Status check(const muster_unit_options& options) const;
  muster::Status make_ready();                      // the first time
  muster::Status prepare(std::string& facts);       // adds the facts on which ranks must agree
  muster::Status withdraw();                        // undoes prepare()
  muster::Result<muster_point> meet_after_reads();  // of shared units; NONE: there are none
  void break_off(const muster::client::SetMeetings& meetings, const muster::Status& why);
  bool is_shared() const { return (flags_ & MUSTER_UNITS_ALONE) == 0; }
  muster::Result<muster_group> slice_group(const muster::client::Unit& unit);
  std::string description() const;

  muster_session* session_;
  std::string name_;
  std::uint32_t flags_;
  std::vector<std::unique_ptr<muster::client::Unit>> units_;
  std::vector<std::size_t> modules_;  // by unit
  muster::client::SetLanes lanes_;
  muster::client::UnitStarts starts_;
  muster::client::UnitMemory memory_;
  muster::client::GradientTotal square_sum_, zero_count_;
  muster::client::ReplicaBroadcast replicas_;
  std::vector<muster_group> slice_groups_;
  std::vector<muster_group> sharing_groups_;  // whose members share units, in the order of units
  muster::client::SetMeetings in_steps_, between_steps_;
  bool told_ = false;        // the other ranks know that the step is broken
  std::uint64_t steps_ = 0;  // that have begun
  std::string warning_;
  std::unique_ptr<muster::client::UnitWatch> watch_;
  std::unique_ptr<muster::shard::UnitSchedule> schedule_;
};
