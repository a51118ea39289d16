// A graph on a stage: plans of its own making, actions written down, steps finished by hand.
#pragma once

#include "scheduler/run/graph.hpp"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace muster::scheduler::test {

inline const kernels::Kernel kNothing{0, "nothing", {}, 0, 0, nullptr, nullptr};

// The programs of this folder run once more with this variable: on devices whose streams wait for each other.
inline bool stream_waits() {
  static const bool set = std::getenv("MUSTER_TEST_STREAM_WAITS") != nullptr;
  return set;
}
inline Graph::Options with_waits(Graph::Options options, bool waits = stream_waits()) {
  options.stream_waits = waits;
  return options;
}

// Remembers what the graph wanted; the test decides when a step is finished.
class Stage final : public Graph::Actions {
 public:
  struct Stop {
    std::uint64_t from;
    Cause verdict;
  };

  // Ranks of `later` attach in the test.
  Stage(Graph::Options options, std::vector<Group> groups, std::vector<Rank> later = {},
        bool waits = stream_waits())
      : graph(with_waits(std::move(options), waits), std::move(groups), *this) {
    for (const Rank rank : graph.lanes().world().locals())
      if (std::find(later.begin(), later.end(), rank) == later.end()) graph.attached(rank);
  }

  void launch(std::uint32_t step_index, const Step& step) override {
    launched.push_back(step_index);
    steps[step_index] = step;
  }
  bool is_outside(std::uint32_t) override { return outside; }
  std::optional<Instant> moved_at(std::uint32_t) override { return moved; }
  std::vector<Step::Awaited> awaited(std::uint32_t, const Step&) override {
    outside = outside && !ends_when_asked;
    return {};
  }
  void reached(Rank rank, std::uint32_t lane, std::uint64_t value, const transport::MatchKey&) override {
    points[{rank.value, lane}] = value;
  }
  void stopped(Rank rank, std::uint32_t lane, std::uint64_t from, const Cause& verdict) override {
    stops[{rank.value, lane}] = {from, verdict};
  }
  void resumed(Rank rank, std::uint32_t lane, std::uint64_t to) override { resumes[{rank.value, lane}] = to; }
  void quarantined(Rank rank, std::uint32_t lane, std::uint32_t starts) override {
    quarantine[{rank.value, lane}] = starts;
  }
  void retired(Rank, std::uint32_t, std::uint64_t, Plan&, bool well) override {
    ++(well ? retired_well : retired_badly);
  }

  Plan* kernel() {
    plans.push_back(std::make_unique<Plan>(Plan{KernelWork{&kNothing, {}}, SessionId(), 0, 0, {}}));
    return plans.back().get();
  }
  Plan* collective(std::uint32_t group, std::uint32_t rank, const Collective& what) {
    const auto& members = graph.groups()[group].ranks;
    std::int32_t index = -1;
    for (std::size_t i = 0; i < members.size(); ++i)
      if (members[i].value == rank) index = static_cast<std::int32_t>(i);
    const auto ranks = static_cast<std::int32_t>(members.size());
    const Share share = *make_share(what, index, ranks, {});
    CollectiveWork work{GroupId(group), what, share, signature_of(what, share, ranks), ""};
    plans.push_back(std::make_unique<Plan>(Plan{work, SessionId(), 0, 0, {}}));
    return plans.back().get();
  }
  // An EXCHANGE in which the member sends so many elements to each of these members of its group, and gets as
  // many of them.
  Plan* exchange(std::uint32_t group, std::uint32_t rank, const std::vector<std::uint32_t>& peers,
                 std::uint64_t count = 1) {
    Collective what;
    what.op = MUSTER_EXCHANGE;
    what.dtype = MUSTER_U8;
    Plan* const plan = collective(group, rank, what);
    auto& work = std::get<CollectiveWork>(plan->work);
    for (const std::uint32_t peer : peers) {
      Face face;
      face.dtype = MUSTER_F32;
      face.peer = static_cast<std::int32_t>(peer);
      face.dims = 1;
      face.size[0] = static_cast<std::int64_t>(count);
      face.stride[0] = 1;
      work.share.sends.push_back(face);
      work.share.receives.push_back(face);
    }
    work.signature = signature_of(work.collective, work.share,
                                  static_cast<std::int32_t>(graph.groups()[group].ranks.size()));
    work.neighbours = face_balances(work.share);
    return plan;
  }
  static Collective all_reduce(std::uint64_t count) {
    Collective c;
    c.op = MUSTER_ALL_REDUCE;
    c.dtype = MUSTER_F32;
    c.redop = MUSTER_SUM;
    c.count = count;
    return c;
  }

  // From the group's first member to its second.
  static Collective message(muster_op op, std::uint32_t tag) {
    Collective c;
    c.op = op;
    c.dtype = MUSTER_U8;
    c.root = 0;
    c.receiver = 1;
    c.tag = tag;
    c.count = 4;
    return c;
  }

  // Starts `plan` and returns the point it will reach.
  std::uint64_t start(std::uint32_t rank, std::uint32_t lane, Plan* plan,
                      std::vector<std::uint64_t> waits = {}, Nanos timeout = std::chrono::seconds(60)) {
    Request request{Rank(rank), lane, graph.lanes()[Rank(rank)].lane(lane).next_value(), plan, {}, timeout};
    for (std::size_t i = 0; i < waits.size(); ++i) request.waits[i] = waits[i];
    last_code = graph.submit(request, now);
    if (meets) graph.meet(now);
    return shm::make_point(lane, request.value);
  }
  // Finishes the oldest launched step. `failed`: why it did not go well.
  void finish_next(const Status* failed = nullptr) {
    const std::uint32_t index = launched.front();
    launched.pop_front();
    graph.finished(index, now, failed);
    graph.meet(now);
  }
  void finish_all() {
    while (!launched.empty()) finish_next();
  }
  // Time passes for an engine that ticks as often as it promises.
  void pass(Nanos time) {
    constexpr Nanos kPeriod = std::chrono::milliseconds(100);
    for (const Instant end = now + time; now < end; graph.tick(now)) now = std::min(end, now + kPeriod);
  }
  // The next deadline of all starts that are next on their lane.
  std::optional<Instant> next_deadline() const {
    std::optional<Instant> next;
    for (const Rank rank : graph.lanes().world().locals()) {
      const RankLanes& lanes = graph.lanes()[rank];
      for (std::uint32_t lane = 0; lane < lanes.lanes(); ++lane)
        if (const auto deadline = lanes.deadline(lane); deadline && (!next || *deadline < *next))
          next = deadline;
    }
    return next;
  }
  bool stopped_with(std::uint32_t rank, std::uint32_t lane, Code code) const {
    const auto it = stops.find({rank, lane});
    return it != stops.end() && it->second.verdict.code == code;
  }
  std::string stop_text(std::uint32_t rank, std::uint32_t lane) const {
    return stops.at({rank, lane}).verdict.text;
  }

  Instant now{0};
  bool meets = true;             // each start is a turn of its own
  bool outside = false;          // launched steps go on outside the workers
  std::optional<Instant> moved;  // when something of a launched step moved there
  bool ends_when_asked = false;  // they end there while the graph asks for whom they wait
  Code last_code = Code::kOk;
  std::deque<std::uint32_t> launched;
  std::map<std::uint32_t, Step> steps;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> points;
  std::map<std::pair<std::uint32_t, std::uint32_t>, Stop> stops;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint64_t> resumes;
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> quarantine;
  std::vector<std::unique_ptr<Plan>> plans;
  std::uint32_t retired_well = 0;
  std::uint32_t retired_badly = 0;
  Graph graph;
};

// Groups 0: ranks 0 and 1; 1: ranks 2 and 3; 2: all four.
inline std::vector<Group> four_ranks() {
  return {{"left", {Rank(0), Rank(1)}},
          {"right", {Rank(2), Rank(3)}},
          {"world", {Rank(0), Rank(1), Rank(2), Rank(3)}}};
}
inline Graph::Options world_of(std::uint32_t ranks) {
  return {ranks, 64, 4};
}

}  // namespace muster::scheduler::test
