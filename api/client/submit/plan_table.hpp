// PlanTable: the session's records of its plans.
#pragma once

#include "api/base/collective/rooms.hpp"
#include "api/base/ids.hpp"
#include "api/client/direct/planning.hpp"
#include "api/shm/command.hpp"
#include "api/shm/control.hpp"
#include "api/shm/direct.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace muster::client {

// Plans fills a record when it makes the plan, and again when the counts change. Another class that writes a
// field is named beside it.
struct alignas(shm::kLineBytes) PlanRecord {
  // A collective as its caller described it.
  struct Told {
    shm::PlanCollective message;
    Described described;
    Rooms rooms;  // for starts with offsets of their own
  };

  muster_plan plan = 0;                   // 0: the slot is free
  std::optional<muster_lane> usual_lane;  // of a collective; a kernel has none
  std::unique_ptr<Told> told;             // of a collective; never null then
  std::unique_ptr<DirectPlan> direct;     // made by the first run (Runs)
  bool by_engine = false;                 // its group spans nodes, so that there is no direct path (Runs)
  std::vector<shm::Command> news;         // new counts that the engine does not know (PlanTable)
  std::vector<muster_buffer> buffers;     // all that the plan uses
  muster_point last = MUSTER_POINT_NONE;  // of its latest start (Submission)
};

// Owns    the records, and the shared word that tells the engine how many of them have news.
// Thread  the session's.
// Bound   the engine's limit for plans.
// Fails   never.
class PlanTable {
 public:
  // `header` of the rank's direct segment outlives the table; null in a job without the direct path.
  explicit PlanTable(shm::DirectHeader* header) : header_(header) {}

  // Null: the session has no such plan. A pointer is valid until the next add().
  PlanRecord* find(muster_plan plan) {
    const std::size_t slot = Handle(plan).slot();
    const bool known = slot < records_.size() && records_[slot].plan == plan && plan != 0;
    return known ? &records_[slot] : nullptr;
  }
  // All slots, free ones too.
  std::span<PlanRecord> records() { return records_; }

  PlanRecord& add(muster_plan plan);
  void remove(PlanRecord& record);

  // Keeps `news`, the commands that tell the engine the plan's new counts. Only in jobs with the direct path.
  void set_news(PlanRecord& record, std::vector<shm::Command> news);
  // The engine knows the new counts.
  void clear_news(PlanRecord& record);

 private:
  void count_untold(std::uint64_t plans);

  shm::DirectHeader* header_;
  std::vector<PlanRecord> records_;  // by slot of the handle: a stale handle never reaches the ring
  std::uint64_t untold_ = 0;         // records with news
};

}  // namespace muster::client
