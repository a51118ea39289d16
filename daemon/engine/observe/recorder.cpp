#include "daemon/engine/observe/recorder.hpp"

#include "api/shm/endpoint.hpp"

#include <algorithm>
#include <utility>

namespace muster::engine {

std::string recorder_name(Rank rank) {
  return fmt::format("rank {}", rank.value);
}

Recorder::Recorder(const control::JobSpec& spec, const Clock& clock, EngineLock& lock,
                   const scheduler::Graph& graph, DirectPages* direct_pages)
    : spec_(spec),
      clock_(clock),
      lock_(lock),
      graph_(graph),
      direct_pages_(direct_pages),
      taken_(graph.lanes().world()) {}

Status Recorder::begin(std::string by) {
  const std::lock_guard lock(lock_);
  if (trace_.on())
    return failure(Code::kBusy,
                   "a recording of job {} is on already, of {}; it ends where it was begun, or by "
                   "`muster trace{} --job {} --end`",
                   spec_.name, by_, shm::endpoint_option(spec_.endpoint), spec_.name);
  trace_.begin(clock_.now());
  by_ = std::move(by);
  if (direct_pages_ == nullptr) return {};
  for (const Rank rank : graph_.lanes().world().locals())
    taken_[rank] = direct_pages_->records().recorded(rank);
  direct_pages_->segments().set_recording(true);
  return {};
}

scheduler::Trace Recorder::stop() {
  if (direct_pages_ != nullptr) {
    take_over();
    direct_pages_->segments().set_recording(false);
  }
  by_.clear();
  return std::exchange(trace_, scheduler::Trace(kEventsMax));
}

// A long recording takes long to write as text, so that happens without the lock.
Result<std::string> Recorder::end(std::string_view by) {
  scheduler::Trace recording(0);
  {
    const std::lock_guard lock(lock_);
    if (!trace_.on())
      return fail(
          Code::kState,
          "no recording of job {} is on; begin one with muster_trace_begin, `muster trace{} --job {}` or "
          "`muster run --trace`",
          spec_.name, shm::endpoint_option(spec_.endpoint), spec_.name);
    if (!by.empty() && by != by_)
      return fail(Code::kState, "the recording of job {} that is on is of {}, not of {}", spec_.name, by_,
                  by);
    recording = stop();
  }
  std::vector<std::string> names;
  for (const scheduler::Group& group : graph_.groups()) names.push_back(group.name);
  return recording.json(spec_.name, graph_.lanes().world().locals(), names, graph_.lane_names());
}

std::string Recorder::by() const {
  const std::lock_guard lock(lock_);
  return by_;
}

void Recorder::left(Rank rank) {
  if (trace_.on() && by_ == recorder_name(rank)) static_cast<void>(stop());
}

void Recorder::take_over() {
  if (!trace_.on() || direct_pages_ == nullptr) return;
  for (const Rank rank : graph_.lanes().world().locals()) take_over(rank);
}

// A new client numbers its records from 1 again.
void Recorder::take_over(Rank rank) {
  std::uint64_t& taken = taken_[rank];
  const std::uint64_t latest = direct_pages_->records().recorded(rank);
  if (latest < taken) taken = 0;
  bool open = false;
  // Counts the skipped records as lost, once.
  const auto pass_to = [&](std::uint64_t index) {
    trace_.missed(index - taken);
    taken = index;
  };
  for (const DirectRecords::Flight& flight : direct_pages_->records().flights(rank, taken)) {
    pass_to(flight.index - 1);
    open = flight.state == shm::DirectRecord::State::kOpen;
    if (open) break;  // the latest, which still runs: it is taken over later
    taken = flight.index;
    if (!flight.ended) continue;  // it began before the recording
    scheduler::Trace::Event event;
    event.begin = flight.begun;
    event.end = std::max(*flight.ended, flight.begun);
    event.label = op_name(flight.what.op);
    event.rank = rank;
    event.lane = scheduler::kDirectTrack;
    event.group = flight.group.value;
    event.in_group = true;
    event.value = flight.number;
    event.bytes = flight.target_bytes;
    trace_.add(event);
  }
  if (!open && latest > taken) pass_to(latest);
}

}  // namespace muster::engine
