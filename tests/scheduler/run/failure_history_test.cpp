// Random histories of failures on a manual clock (decision D18). Trainers run one program each, in which
// every operation has its own signature. They start several operations in a row on each lane. Where a lane
// has failed they reset it, sooner or later, and start again what was not done there. Meanwhile they die and
// come back, abort groups, give up what they wait for, and stand still until deadlines pass.
//
// Held in each history:
//   1  operations that meet are the same step of the program
//   2  each program is run to its end
//   3  a cause that is told has the code of the fault at its root
//   4  of one fault a lane hears once, and once more for what it had made wait for each other lane, at most
//   5  a rank meets a newcomer only after it has heard that the former client of that rank is gone
//   6  every start is retired once
#include "scheduler/run/graph.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"
#include "tests/support/property_cases.hpp"

#include <array>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

using test::Stage;

constexpr std::uint32_t kRanks = 4;
constexpr std::uint32_t kLanes = 3;
constexpr std::size_t kSteps = 60;
constexpr std::size_t kAhead = 4;  // starts of a lane that are not over
// A fault ends each place once (decision D18), so a lane hears of it once for each place of its rank: three
// groups on each lane; messages to and from both neighbours, and around the square in the group of all.
constexpr int kHeardMax = 3 * static_cast<int>(kLanes) + 4 + 2;
constexpr int kFaultsMax = 6;
constexpr int kTurnsMax = 60000;
constexpr Nanos kDeadline{2000};

// The four sides of a square, and all corners.
std::vector<Group> square() {
  std::vector<Group> groups;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    const std::uint32_t next = (rank + 1) % kRanks;
    groups.push_back({"side", {Rank(std::min(rank, next)), Rank(std::max(rank, next))}});
  }
  groups.push_back({"world", {Rank(0), Rank(1), Rank(2), Rank(3)}});
  return groups;
}

// One operation of the program: which ranks take part, each on which lane.
struct Operation {
  std::map<std::uint32_t, std::uint32_t> lanes;  // rank → lane
  std::map<std::uint32_t, Plan*> plans;          // rank → what it starts
  std::map<std::uint32_t, std::size_t> waits;    // rank → an earlier step of that rank, on another lane
};

class History final : public Graph::Actions {
 public:
  explicit History(std::uint64_t seed)
      : random_(seed),
        plans_({kRanks, 64, 3}, square()),
        graph_(test::with_waits({kRanks, 64, 3}), square(), *this) {
    for (std::size_t step = 0; step < kSteps; ++step) program_.push_back(operation(step));
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) attach(rank);
  }

  void run() {
    for (int turn = 0; turn < kTurnsMax && !over(); ++turn) {
      now_ += Nanos(1);
      const auto rank = static_cast<std::uint32_t>(below(kRanks));
      if (faults_left_ > 0 && below(150) == 0) cause_trouble(rank);
      act(rank);
      if (below(3) == 0) finish_one();
      if (below(2) == 0) graph_.meet(now_);
      if (below(40) == 0) graph_.tick(now_);
      if (::testing::Test::HasFailure()) return;
    }
    EXPECT_TRUE(over()) << "somebody waits for ever";
    while (!launched_.empty()) finish_one();
    EXPECT_EQ(retired_, started_);
    EXPECT_EQ(graph_.steps().in_flight(), 0u);
  }

  std::uint64_t stops = 0;
  std::uint64_t meetings = 0;
  std::array<std::uint64_t, 5> troubles{};

  // ---- Actions -----------------------------------------------------------------------------------
  void launch(std::uint32_t step_index, const Step& step) override {
    launched_.push_back(step_index);
    std::optional<std::size_t> what;
    for (const Step::Part& part : step.parts) {
      const std::size_t program_step = step_of(part);
      EXPECT_EQ(what.value_or(program_step), program_step) << "steps that meet differ";
      what = program_step;
      ranks_[part.rank.value].done.insert(program_step);
    }
    for (const Step::Part& a : step.parts)
      for (const Step::Part& b : step.parts) expect_heard(a, b);
    if (step.parts.size() > 1) ++meetings;
  }
  void reached(Rank, std::uint32_t, std::uint64_t, const transport::MatchKey&) override {}
  void stopped(Rank rank, std::uint32_t lane, std::uint64_t, const Cause& cause) override {
    ++stops;
    Client& c = ranks_[rank.value];
    c.stopped[lane] = cause.fault;
    EXPECT_NE(cause.code, Code::kMismatch) << cause.text;
    const Code root = cause.code == Code::kDependency ? cause.root : cause.code;
    EXPECT_EQ(faults_.try_emplace(cause.fault, root).first->second, root) << cause.text;
    const int times = ++c.times_heard[{lane, cause.fault}];
    EXPECT_LE(times, kHeardMax) << "heard again: " << cause.text;
    c.heard.emplace(cause.fault, c.starts);
    latest_fault_ = std::max(latest_fault_, cause.fault);
  }
  void resumed(Rank rank, std::uint32_t lane, std::uint64_t) override {
    ranks_[rank.value].stopped[lane] = 0;
  }
  void retired(Rank, std::uint32_t, std::uint64_t, Plan&, bool) override { ++retired_; }

 private:
  struct Started {
    std::size_t step = 0;
    std::uint64_t serial = 0;  // among the client's starts
  };
  struct Client {
    std::set<std::size_t> done;  // kept through its deaths, as a checkpoint would
    std::uint64_t starts = 0;
    std::uint64_t born_after = 0;                                  // the latest fault before it attached
    std::array<std::uint64_t, kLanes> stopped{};                   // by which fault; 0: it runs
    std::array<std::size_t, kLanes> next{};                        // step that it starts next
    std::array<std::map<std::uint64_t, Started>, kLanes> started;  // by value
    std::map<std::size_t, std::uint64_t> points;                   // of the latest start of each step
    std::map<std::pair<std::uint32_t, std::uint64_t>, int> times_heard;
    std::map<std::uint64_t, std::uint64_t> heard;  // fault → its starts before it heard
    std::uint64_t lost_by = 0;                     // the fault by which its former client went
    Instant still_until{0};
  };

  std::uint64_t below(std::uint64_t bound) { return random_() % bound; }

  Operation operation(std::size_t step) {
    Operation made;
    const auto group = static_cast<std::uint32_t>(below(square().size()));
    const std::vector<Rank>& members = plans_.graph.groups()[group].ranks;
    if (below(4) != 0) {
      const auto lane = static_cast<std::uint32_t>(below(kLanes));
      for (const Rank rank : members) {
        made.lanes[rank.value] = lane;
        made.plans[rank.value] = plans_.collective(group, rank.value, Stage::all_reduce(step + 1));
      }
      // Not of more than two members: some may be through an exchange that others start again.
      if (members.size() == 2 && below(3) == 0)
        for (std::uint32_t i = 0; i < 2; ++i)
          made.plans[members[i].value] = plans_.exchange(group, members[i].value, {1 - i}, step + 1);
    } else {
      const auto sender = static_cast<std::int32_t>(below(members.size()));
      Collective message;
      message.dtype = MUSTER_U8;
      message.count = step + 1;
      message.root = sender;
      message.receiver = (sender + 1) % static_cast<std::int32_t>(members.size());
      for (const std::int32_t index : {message.root, message.receiver}) {
        const std::uint32_t rank = members[static_cast<std::size_t>(index)].value;
        message.op = index == sender ? MUSTER_SEND : MUSTER_RECV;
        made.lanes[rank] =
            (group + static_cast<std::uint32_t>(message.root) + (index == sender ? 0 : 1)) % kLanes;
        made.plans[rank] = plans_.collective(group, rank, message);
      }
    }
    for (const auto& [rank, lane] : made.lanes)
      for (std::size_t before = step; before-- > 0 && below(3) == 0;)
        if (const auto at = program_[before].lanes.find(rank);
            at != program_[before].lanes.end() && at->second != lane) {
          made.waits[rank] = before;
          break;
        }
    return made;
  }

  bool over() const {
    for (std::size_t step = 0; step < kSteps; ++step)
      for (const auto& [rank, lane] : program_[step].lanes)
        if (!ranks_[rank].done.contains(step)) return false;
    return true;
  }

  // ---- a client ----------------------------------------------------------------------------------
  void attach(std::uint32_t rank) {
    Client& c = ranks_[rank];
    Client fresh;
    fresh.done = std::move(c.done);
    fresh.lost_by = c.lost_by;
    fresh.born_after = latest_fault_;
    c = std::move(fresh);
    graph_.attached(Rank(rank));
  }

  void act(std::uint32_t rank) {
    Client& c = ranks_[rank];
    if (!graph_.lanes()[Rank(rank)].present()) {
      if (below(20) == 0) attach(rank);
      return;
    }
    if (now_ < c.still_until) return;
    const auto lane = static_cast<std::uint32_t>(below(kLanes));
    if (c.stopped[lane] != 0) {
      if (below(4) != 0) return;
      graph_.reset_lane(Rank(rank), lane, now_);
      c.next[lane] = 0;
      c.started[lane].clear();
      return;
    }
    start(rank, lane);
  }

  void start(std::uint32_t rank, std::uint32_t lane) {
    Client& c = ranks_[rank];
    std::size_t& step = c.next[lane];
    while (step < kSteps && (c.done.contains(step) || !is_on(step, rank, lane))) ++step;
    const std::uint64_t value = graph_.lanes()[Rank(rank)].lane(lane).next_value();
    if (step == kSteps || ahead(rank, lane) == kAhead) return;
    const Operation& what = program_[step];
    Request request{Rank(rank), lane, value, what.plans.at(rank), {}, kDeadline};
    if (const auto wait = what.waits.find(rank); wait != what.waits.end()) {
      if (!may_wait_for(c, rank, wait->second)) return;
      if (!c.done.contains(wait->second)) request.waits[0] = c.points.at(wait->second);
    }
    c.started[lane][value] = {step, ++c.starts};
    c.points[step] = shm::make_point(lane, value);
    ++started_;
    ++step;
    ASSERT_EQ(graph_.submit(request, now_), Code::kOk);
  }
  bool is_on(std::size_t step, std::uint32_t rank, std::uint32_t lane) const {
    const auto at = program_[step].lanes.find(rank);
    return at != program_[step].lanes.end() && at->second == lane;
  }
  // It is done, or started and its lane runs as far as the client knows.
  bool may_wait_for(const Client& c, std::uint32_t rank, std::size_t step) const {
    if (c.done.contains(step)) return true;
    const std::uint32_t lane = program_[step].lanes.at(rank);
    if (c.stopped[lane] != 0) return false;
    for (const auto& [value, started] : c.started[lane])
      if (started.step == step) return true;
    return false;
  }
  // Starts of the lane that are not over.
  std::size_t ahead(std::uint32_t rank, std::uint32_t lane) const {
    const auto& started = ranks_[rank].started[lane];
    const auto first = started.upper_bound(graph_.lanes()[Rank(rank)].lane(lane).reached());
    return static_cast<std::size_t>(std::distance(first, started.end()));
  }

  void finish_one() {
    if (launched_.empty()) return;
    const std::uint32_t index = launched_.front();
    launched_.erase(launched_.begin());
    graph_.finished(index, now_);
  }

  // ---- faults ------------------------------------------------------------------------------------
  void cause_trouble(std::uint32_t rank) {
    --faults_left_;
    const std::uint64_t kind = below(troubles.size());
    ++troubles[kind];
    const bool here = graph_.lanes()[Rank(rank)].present();
    switch (kind) {
      case 0:
      case 1:
        if (!here) return;
        ranks_[rank].lost_by = note(graph_.detached(Rank(rank), "rank died", now_), Code::kPeerLost);
        return;
      case 2: {
        const auto group = static_cast<std::uint32_t>(below(square().size()));
        note(graph_.abort({GroupId(group)}, {Code::kAborted, 0, "aborted"}, now_), Code::kAborted);
        return;
      }
      case 3:
        if (here)
          graph_.give_up(Rank(rank), static_cast<std::uint32_t>(below(kLanes)),
                         {Code::kAborted, 0, "given up"}, now_);
        return;
      default:
        ranks_[rank].still_until = now_ + kDeadline + kDeadline;
    }
  }

  std::uint64_t note(const CausePtr& cause, Code code) {
    EXPECT_EQ(faults_.try_emplace(cause->fault, code).first->second, code);
    latest_fault_ = std::max(latest_fault_, cause->fault);
    return cause->fault;
  }

  // ---- invariants --------------------------------------------------------------------------------
  std::size_t step_of(const Step::Part& part) {
    return ranks_[part.rank.value].started[part.lane].at(part.value).step;
  }
  // `a` meets `b` with what it started after it had heard of the loss of b's former client, or attached.
  void expect_heard(const Step::Part& a, const Step::Part& b) {
    const Client& first = ranks_[a.rank.value];
    const Client& second = ranks_[b.rank.value];
    if (second.lost_by == 0 || second.lost_by <= first.born_after) return;
    const auto heard = first.heard.find(second.lost_by);
    const std::uint64_t serial = first.started[a.lane].at(a.value).serial;
    EXPECT_TRUE(heard != first.heard.end() && heard->second < serial)
        << "rank " << a.rank.value << " meets the new client of rank " << b.rank.value;
  }

  std::mt19937_64 random_;
  Stage plans_;  // whose graph stands still: it makes plans
  Graph graph_;
  std::vector<Operation> program_;
  std::array<Client, kRanks> ranks_;
  std::vector<std::uint32_t> launched_;
  std::uint64_t started_ = 0;
  std::uint64_t retired_ = 0;
  std::uint64_t latest_fault_ = 0;
  std::map<std::uint64_t, Code> faults_;  // those that were told of
  int faults_left_ = kFaultsMax;
  Instant now_{0};
};

TEST(FailureHistory, EndsWellWithinTheRule) {
  const std::uint64_t last = muster::test::property_cases(2000);
  std::uint64_t stops = 0;
  std::uint64_t meetings = 0;
  std::array<std::uint64_t, 5> troubles{};
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    History history(seed);
    history.run();
    if (HasFailure()) return;
    stops += history.stops;
    meetings += history.meetings;
    for (std::size_t i = 0; i < troubles.size(); ++i) troubles[i] += history.troubles[i];
  }
  EXPECT_GT(stops, last * 3) << "too little fails";
  for (const std::uint64_t count : troubles) EXPECT_GT(count, last / 2);
  RecordProperty("stops", std::to_string(stops));
  RecordProperty("meetings", std::to_string(meetings));
}

}  // namespace
}  // namespace muster::scheduler
