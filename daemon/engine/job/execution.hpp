// Execution: carries out the requests of the graph. It launches steps, and tells clients, counters and the
// recording how their starts have ended.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/job.hpp"
#include "daemon/engine/nodes/missing_members.hpp"
#include "daemon/engine/observe/metrics.hpp"
#include "daemon/engine/observe/recorder.hpp"
#include "daemon/engine/observe/reports.hpp"
#include "daemon/engine/session/rank_slots.hpp"
#include "scheduler/run/executor.hpp"
#include "scheduler/run/graph.hpp"
#include "transport/collective/job_links.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace muster::engine {

// Owns    the device's first error, and the step that is being retired.
// Thread  under the engine's lock.
// Bound   no heap, except at a failure.
// Fails   a device error ends the job: see health().
class Execution final : public scheduler::Graph::Actions {
 public:
  Execution(const control::JobSpec& spec, scheduler::Graph& graph, scheduler::Executor& executor,
            RankSlots& slots, Metrics& metrics, Recorder& recorder, Reports& reports,
            const MissingMembers& missing, transport::JobLinks& links)
      : spec_(spec),
        graph_(graph),
        executor_(executor),
        slots_(slots),
        metrics_(metrics),
        recorder_(recorder),
        reports_(reports),
        missing_(missing),
        links_(links) {}

  // Begins a turn: retires finished steps. Returns how many.
  std::size_t reap(Instant now);
  // The first error of a device that is broken as a whole.
  const Status& health() const { return health_; }
  // Finds a device that broke while no launch noticed it. Call now and then.
  void look_at_devices();

  // ---- scheduler::Graph::Actions ----------------------------------------------------------------------
  void launch(std::uint32_t step_index, const scheduler::Step& step) override;
  void submitted(const scheduler::Request& request) override;
  void overdue(Rank rank, std::uint32_t lane, scheduler::Cause& cause) override;
  void reached(Rank rank, std::uint32_t lane, std::uint64_t value, const transport::MatchKey& key) override;
  void stopped(Rank rank, std::uint32_t lane, std::uint64_t from, const scheduler::Cause& cause) override;
  void resumed(Rank rank, std::uint32_t lane, std::uint64_t to) override;
  void retired(Rank rank, std::uint32_t lane, std::uint64_t value, scheduler::Plan& plan, bool well) override;
  bool is_outside(std::uint32_t step_index) override { return executor_.is_outside(step_index); }
  std::optional<Instant> moved_at(std::uint32_t step_index) override {
    return executor_.moved_at(step_index);
  }
  void cancel(std::uint32_t step_index) override { executor_.cancel(step_index); }
  std::vector<scheduler::Step::Awaited> awaited(std::uint32_t step_index,
                                                const scheduler::Step& step) override {
    return missing_.awaited(step, executor_.awaited(step_index));
  }
  void ended(const transport::EpochEnd& end) override { links_.end(end); }
  void quarantined(Rank rank, std::uint32_t lane, std::uint32_t starts) override;

 private:
  void note_health(const Status& device, const char* doing, const char* what);
  void account(Session& session, const scheduler::Plan& plan, std::uint32_t lane, std::uint64_t value);
  std::uint64_t step_of(const Session& session, std::uint32_t lane, std::uint64_t value) const;

  const control::JobSpec& spec_;
  scheduler::Graph& graph_;
  scheduler::Executor& executor_;
  RankSlots& slots_;
  Metrics& metrics_;
  Recorder& recorder_;
  Reports& reports_;
  const MissingMembers& missing_;
  transport::JobLinks& links_;
  Instant turn_{0};                        // when the present turn began
  scheduler::Executor::Finished current_;  // the step being retired
  Status health_;
};

}  // namespace muster::engine
