// Random programs of clients that die, come back, abort, pass deadlines and reset their lanes: nobody meets
// an operation of another place in the program, and nobody goes on with a rank whose loss it has not heard
// of.
#include "scheduler/run/graph.hpp"

#include "tests/scheduler/run/graph_fixture.hpp"
#include "tests/support/property_cases.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <random>
#include <set>

#include <gtest/gtest.h>

namespace muster::scheduler {
namespace {

using test::Stage;

constexpr std::uint32_t kWorld = 4;
constexpr std::uint32_t kLanes = 3;
constexpr int kTurns = 1500;
constexpr Nanos kDeadline{400};

// The four sides of a square, and all corners.
std::vector<Group> square() {
  std::vector<Group> groups;
  for (std::uint32_t rank = 0; rank < kWorld; ++rank) {
    const std::uint32_t next = (rank + 1) % kWorld;
    groups.push_back({"side", {Rank(std::min(rank, next)), Rank(std::max(rank, next))}});
  }
  groups.push_back({"world", {Rank(0), Rank(1), Rank(2), Rank(3)}});
  return groups;
}

using Place = std::array<std::int32_t, 4>;  // group; lane, or -1, sender and receiver

Place place_of(const Plan& plan, std::uint32_t lane) {
  const CollectiveWork& work = *plan.collective();
  const auto group = static_cast<std::int32_t>(work.group.value);
  if (work.point_to_point()) return {group, -1, work.collective.root, work.collective.receiver};
  return {group, static_cast<std::int32_t>(lane), -1, -1};
}

// Clients and the graph between them. A moment is a count of what has happened. What the world has seen of
// each client is kept for its present life.
class World final : public Actions {
 public:
  explicit World(std::uint64_t seed) : random(seed), plans({kWorld, 64, 3}, square()) {
    graph.emplace(GraphOptions{kWorld, 64, 3}, square(), *this);
    for (std::uint32_t rank = 0; rank < kWorld; ++rank) attach(rank);
  }

  void launch(std::uint32_t step_index, const Step& step) override {
    launched.push_back(step_index);
    if (step.parts.front().plan->collective() == nullptr) return;
    ++meetings;
    const Place place = place_of(*step.parts.front().plan, step.parts.front().lane);
    for (const Step::Part& a : step.parts)
      for (const Step::Part& b : step.parts)
        if (a.rank != b.rank) check(place, a, b);
    for (const Step::Part& part : step.parts) client(part.rank).fallen.erase(place);
  }
  void reached(Rank, std::uint32_t, std::uint64_t) override {}
  void stopped(Rank rank, std::uint32_t lane, std::uint64_t from, const Verdict& verdict) override {
    ++stops[verdict.text];
    Client& c = client(rank);
    // Also a deadline's, where a member that is missing has left.
    if (verdict.code == Code::kPeerLost) c.losses_on[lane].push_back(moment);
    c.told[verdict.text].push_back(moment);
    c.heard_on[lane][verdict.event] = moment;
    c.told_of[verdict.culprit].push_back(moment);
    for (const auto& [place, fell] : falling)
      c.fallen[place] = {verdict.text, moment, fell.submitted, verdict.event, fell.first == from};
    falling.clear();
    c.stopped_by[lane] = verdict.text;
    c.stopped_at[lane] = moment;
    c.event[lane] = verdict.event;
  }
  void resumed(Rank rank, std::uint32_t lane, std::uint64_t) override {
    client(rank).got_over[client(rank).event[lane]].push_back(moment);
    client(rank).told[client(rank).stopped_by[lane]].push_back(moment);  // what it does now it does knowing
    client(rank).stopped_by[lane].clear();
  }
  void retired(Rank rank, std::uint32_t lane, std::uint64_t value, Plan& plan, bool well) override {
    ++retired_starts;
    if (well || plan.collective() == nullptr || !client(rank).here) return;
    const std::string& by = client(rank).stopped_by[lane];
    if (by.empty()) {
      Falling& fell = falling[place_of(plan, lane)];
      fell.submitted = std::max(fell.submitted, client(rank).submitted[lane].at(value));
      fell.first = std::min(fell.first, value);
    } else {
      client(rank).fallen[place_of(plan, lane)] = {by, client(rank).stopped_at[lane], moment,
                                                   client(rank).event[lane], false};
    }
  }

  void turn() {
    ++moment;
    now += Nanos(1);
    const auto rank = static_cast<std::uint32_t>(random() % kWorld);
    const std::uint64_t what = random() % 1000;
    if (!client(Rank(rank)).here) {
      if (what < 100) attach(rank);
    } else if (what < 2) {
      detach(rank);
    } else if (what < 4) {
      const auto group = static_cast<std::uint32_t>(random() % square().size());
      const std::string text = "abort at " + std::to_string(moment);
      aborts[text] = moment;
      aborted[text] = static_cast<std::int32_t>(group);
      graph->abort(GroupId(group), {Code::kAborted, 0, text}, now);
    } else if (what < 300) {
      graph->reset_lane(Rank(rank), static_cast<std::uint32_t>(random() % kLanes), now);
    } else if (what < 330) {
      graph->signal(Rank(rank), shm::kClientTimelineFirst, ++client(Rank(rank)).timeline, now);
    } else if (what < 750) {
      start(rank);
    } else if (what < 770) {
      graph->tick(now);
    } else {
      finish();
    }
    falling.clear();
  }
  // All that is left comes to its end.
  void end() {
    while (!launched.empty()) finish();
    for (int i = 0; i < 3; ++i) {
      now += kDeadline * 2;
      ++moment;
      graph->tick(now);
      while (!launched.empty()) finish();
    }
  }

  std::mt19937_64 random;
  Stage plans;  // whose graph stands still: it makes plans
  std::optional<Graph> graph;
  std::vector<std::uint32_t> launched;
  std::uint64_t started = 0;
  std::uint64_t retired_starts = 0;
  std::uint64_t meetings = 0;
  std::map<std::string, std::uint64_t> stops;  // by failure
  std::uint64_t excused = 0;                   // checks that said nothing

 private:
  struct Fall {
    std::string text;
    std::uint64_t at = 0;
    std::uint64_t submitted = 0;
    std::uint64_t event = 0;
    bool refused = false;  // a start that came there, and took those behind it with it
  };
  struct Falling {
    std::uint64_t submitted = 0;       // the latest
    std::uint64_t first = UINT64_MAX;  // value
  };
  struct Client {
    bool here = false;
    std::uint64_t born = 0;
    std::uint64_t timeline = 0;
    std::map<std::string, std::vector<std::uint64_t>> told;  // failure → moments
    std::array<std::map<std::uint64_t, std::uint64_t>, MUSTER_LANE_COUNT>
        heard_on;                                                         // Verdict::event → moment
    std::array<std::vector<std::uint64_t>, MUSTER_LANE_COUNT> losses_on;  // moments
    std::map<std::int32_t, std::vector<std::uint64_t>> told_of;           // culprit → moments
    std::map<std::uint64_t, std::vector<std::uint64_t>> got_over;  // Verdict::event → resets after it
    std::map<Place, Fall> fallen;                                  // the latest since the place was met at
    std::array<std::string, MUSTER_LANE_COUNT> stopped_by;
    std::array<std::uint64_t, MUSTER_LANE_COUNT> stopped_at{};
    std::array<std::uint64_t, MUSTER_LANE_COUNT> event{};
    std::array<std::map<std::uint64_t, std::uint64_t>, MUSTER_LANE_COUNT> submitted;  // value → moment
    std::array<std::uint64_t, MUSTER_LANE_COUNT> latest{};
    std::string left_with;      // what the others were to hear at the end of the former life
    std::int32_t left_of = -1;  // culprit
    std::uint64_t left_at = 0;
    std::uint64_t left_event = 0;
  };

  Client& client(Rank rank) { return clients[rank.value]; }

  // It comes, goes and comes again: what it leaves with says which failures were before its life.
  void attach(std::uint32_t rank) {
    if (moment > 1) {
      graph->attached(Rank(rank));
      clients[rank].here = true;
      detach(rank);
    }
    Client& c = clients[rank];
    Client fresh;
    fresh.left_with = c.left_with;
    fresh.left_at = c.left_at;
    fresh.left_of = c.left_of;
    fresh.left_event = c.left_event;
    c = std::move(fresh);
    c.here = true;
    c.born = moment;
    graph->attached(Rank(rank));
  }
  void detach(std::uint32_t rank) {
    Client& c = clients[rank];
    c.here = false;
    c.left_at = moment;
    const std::string text = "rank " + std::to_string(rank) + " died at " + std::to_string(moment);
    losses[text] = moment;
    const auto verdict = graph->detached(Rank(rank), text, now);
    c.left_with = verdict->text;
    c.left_of = verdict->culprit;
    c.left_event = verdict->event;
  }
  void start(std::uint32_t rank) {
    Client& c = clients[rank];
    Plan* what = plan(rank);
    const std::uint32_t lane = lane_of(rank, *what);
    Request request{Rank(rank), lane, graph->next_value(Rank(rank), lane), what, {}, kDeadline};
    if (random() % 16 == 0) request.waits[0] = shm::make_point(shm::kClientTimelineFirst, c.timeline + 1);
    const auto other = static_cast<std::uint32_t>(random() % kLanes);
    if (other != lane && c.latest[other] != 0 && random() % 3 == 0)
      request.waits[1] = shm::make_point(other, c.latest[other] - random() % std::min(c.latest[other], 3ul));
    c.submitted[lane][request.value] = moment;
    const Code code = graph->submit(request, now);
    if (code == Code::kBusy) return;
    ASSERT_EQ(code, Code::kOk);
    ++started;
    c.latest[lane] = request.value;
  }
  // Messages of a pair have an order on one lane alone, which need not be that of the other side.
  std::uint32_t lane_of(std::uint32_t rank, const Plan& plan) {
    const CollectiveWork* work = plan.collective();
    if (work == nullptr || !work->point_to_point()) return static_cast<std::uint32_t>(random() % kLanes);
    return (rank + work->group.value + static_cast<std::uint32_t>(work->collective.root)) % kLanes;
  }
  Plan* plan(std::uint32_t rank) {
    const std::uint64_t kind = random() % 10;
    if (kind == 0) return plans.kernel();
    const bool world = random() % 4 == 0;
    const std::uint32_t side = random() % 2 == 0 ? rank : (rank + kWorld - 1) % kWorld;
    const std::uint32_t group = world ? kWorld : side;
    if (kind < 8) return plans.collective(group, rank, Stage::all_reduce(1));
    const auto& ranks = plans.graph.groups()[group].ranks;
    Collective c;
    c.dtype = MUSTER_U8;
    c.count = 1;
    const auto self =
        static_cast<std::int32_t>(std::find(ranks.begin(), ranks.end(), Rank(rank)) - ranks.begin());
    const auto peer = (self + 1) % static_cast<std::int32_t>(ranks.size());
    c.op = random() % 2 == 0 ? MUSTER_SEND : MUSTER_RECV;
    c.root = c.op == MUSTER_SEND ? self : peer;
    c.receiver = c.op == MUSTER_SEND ? peer : self;
    return plans.collective(group, rank, c);
  }
  void finish() {
    if (launched.empty()) return;
    const std::uint32_t index = launched.front();
    launched.erase(launched.begin());
    graph->finished(index, now);
  }

  static bool between(const std::vector<std::uint64_t>& moments, std::uint64_t from, std::uint64_t to) {
    return std::any_of(moments.begin(), moments.end(), [&](std::uint64_t m) { return m >= from && m <= to; });
  }
  // Whether it was only between the two moments that it got over one of the failures up to `event`.
  static bool got_over_late(const Client& client, std::uint64_t event, std::uint64_t from, std::uint64_t to) {
    return std::any_of(client.got_over.begin(), client.got_over.upper_bound(event), [&](const auto& entry) {
      return !entry.second.empty() && entry.second.front() > from && entry.second.front() <= to;
    });
  }
  // Whether what `b` lost there last was by an abort or a deadline that the loss of a member hid from `a`.
  bool hid(const Client& a, const Fall& fall, const Client& b, const Place& place) const {
    const auto own = b.fallen.find(place);
    if (own == b.fallen.end() || losses.contains(own->second.text) || !losses.contains(fall.text))
      return false;
    if (own->second.at > fall.at) return false;
    for (std::int32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane) {
      const auto& heard = a.heard_on[static_cast<std::size_t>(lane)];
      const auto it = heard.find(own->second.event);
      if ((place[1] < 0 || lane == place[1]) && it != heard.end() && it->second <= fall.at) return false;
    }
    return true;
  }
  // Of an abort it may have been told there by a loss, which hides what came before it.
  bool knew(Client& client, const std::string& text, std::uint64_t by, const Place& place) const {
    if (between(client.told[text], 0, by)) return true;
    const auto abort = aborts.find(text);
    return abort != aborts.end() && knew_by_loss(client, abort->second, by, place);
  }
  static bool knew_by_loss(const Client& client, std::uint64_t from, std::uint64_t by, const Place& place) {
    for (std::int32_t lane = 0; lane < MUSTER_LANE_COUNT; ++lane)
      if ((place[1] < 0 || lane == place[1]) &&
          between(client.losses_on[static_cast<std::size_t>(lane)], from, by))
        return true;
    return false;
  }
  // Whether what fell of `a` was before an abort of the place's group, of which `a` has heard since by a loss
  // that hides it, and `b` too.
  bool aborted_for_both(Client& a, const Fall& fall, std::uint64_t submitted_a, Client& b,
                        std::uint64_t submitted_b, const Place& place) const {
    return std::any_of(aborts.begin(), aborts.end(), [&](const auto& abort) {
      const auto& [text, when] = abort;
      return aborted.at(text) == place[0] && !between(a.told[text], 0, fall.submitted) &&
             knew_by_loss(a, std::max(when, fall.submitted), submitted_a, place) &&
             knew(b, text, submitted_b, place);
    });
  }
  std::uint64_t submitted_at(const Step::Part& part) {
    return client(part.rank).submitted[part.lane].at(part.value);
  }
  // Whether `a` may meet `b`: what fell of `a` there since they last met, `b` has heard of; or both have
  // heard of something else since `a` submitted that, which had doomed it already. And `b` has heard of the
  // end of the former life of `a`.
  void check(const Place& place, const Step::Part& a, const Step::Part& b) {
    Client& first = client(a.rank);
    Client& second = client(b.rank);
    const std::uint64_t submitted_a = submitted_at(a);
    const std::uint64_t submitted_b = submitted_at(b);
    if (first.left_at != 0 && second.born < first.left_at) {
      EXPECT_TRUE(between(second.told_of[first.left_of], first.left_at, submitted_b))
          << "rank " << b.rank.value << " goes on with rank " << a.rank.value
          << " and has not heard: " << first.left_with;
    }
    const auto fall = first.fallen.find(place);
    if (fall == first.fallen.end() || second.left_event >= fall->second.event) return;
    // What fell was for the former life of `b`, whose end `a` had not got over when it submitted that, or not
    // what had failed before; or it fell by that, which `a` had missed there.
    const auto loss = losses.find(fall->second.text);
    const auto abort = aborts.find(fall->second.text);
    if (second.left_at != 0 &&
        (!between(first.got_over[second.left_event], second.left_at, fall->second.submitted) ||
         got_over_late(first, second.left_event, fall->second.submitted, submitted_a) ||
         (fall->second.refused && loss != losses.end() && loss->second < second.left_at) ||
         (fall->second.refused && abort != aborts.end() && abort->second < second.left_at))) {
      ++excused;
      return;
    }
    bool resynced =
        between(second.told[fall->second.text], 0, submitted_b) || hid(first, fall->second, second, place);
    for (const auto& [text, moments] : second.told)  // a loss in the place of what it has hidden
      resynced = resynced || between(moments, fall->second.at, submitted_b);
    for (const auto& [text, moments] : first.told)
      resynced = resynced || (between(moments, fall->second.submitted, submitted_a) &&
                              knew(second, text, submitted_b, place));
    resynced = resynced || aborted_for_both(first, fall->second, submitted_a, second, submitted_b, place);
    EXPECT_TRUE(resynced) << "rank " << b.rank.value << " meets rank " << a.rank.value
                          << ", whose operation before fell by: " << fall->second.text;
  }

  std::array<Client, kWorld> clients;
  std::map<std::string, std::uint64_t> aborts;  // when
  std::map<std::string, std::int32_t> aborted;  // and which group
  std::map<std::string, std::uint64_t> losses;
  std::map<Place, Falling> falling;  // of the lane that is being stopped
  std::uint64_t moment = 1;
  Instant now{0};
};

TEST(ResyncProperty, LetsNobodyMeetAnotherPlaceOfTheProgram) {
  const std::uint64_t last = muster::test::property_cases(150);
  std::uint64_t meetings = 0;
  std::uint64_t stops = 0;
  std::uint64_t failures = 0;
  std::uint64_t most = 0;
  std::uint64_t excused = 0;
  for (std::uint64_t seed = 1; seed <= last; ++seed) {
    SCOPED_TRACE(::testing::Message() << "seed " << seed);
    World world(seed);
    for (int turn = 0; turn < kTurns; ++turn) world.turn();
    world.end();
    ASSERT_EQ(world.retired_starts, world.started);
    ASSERT_EQ(world.graph->steps_in_flight(), 0u);
    ASSERT_EQ(world.graph->next_deadline(), std::nullopt) << "somebody waits";
    if (HasFailure()) break;
    meetings += world.meetings;
    failures += world.stops.size();
    excused += world.excused;
    for (const auto& [text, count] : world.stops) {
      stops += count;
      most = std::max(most, count);
    }
  }
  EXPECT_GT(meetings, last * 2) << "most programs fail, and nobody meets";
  // A failure is told to each lane of each rank about once.
  EXPECT_LT(stops, failures * kWorld * kLanes);
  EXPECT_LT(most, 10 * kWorld * kLanes) << "one is told again and again";
  EXPECT_LT(excused, meetings / 5 + 10) << "too little was checked";
  RecordProperty("meetings", std::to_string(meetings));
  RecordProperty("stops", std::to_string(stops));
  RecordProperty("failures", std::to_string(failures));
  RecordProperty("excused", std::to_string(excused));
}

}  // namespace
}  // namespace muster::scheduler
