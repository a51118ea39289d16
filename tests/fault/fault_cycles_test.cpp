// Ranks that attach, run and are killed at random points, over and over: nothing stays behind, the job can be
// used, and a neighbour is as fast as before. T-10. MUSTER_KILL_CYCLES sets how many; MUSTER_FAULT_SEED
// which.
#include "tests/fault/fault_job.hpp"

#include "tests/fault/bystander.hpp"
#include "tests/fault/fault_steps.hpp"
#include "tests/fault/rounds.hpp"
#include "tests/support/holdings.hpp"

#include <algorithm>
#include <random>
#include <thread>

#include <gmock/gmock.h>

namespace muster {
namespace {

using test::Ending;
using test::FaultJob;
using test::Way;
using ::testing::AnyOf;
using ::testing::HasSubstr;

// However many the cycles: what each rank and lane has started is kept from their first use on (flight.hpp),
// groups keep their last verdicts, and the allocator what three sessions had. 2,000 cycles come to 1.6 MiB,
// 6,000 to 1.3 MiB.
constexpr std::uint64_t kRssGrowthMax = 3 << 20;

// A neighbour's p99 beside the storm, to its own without.
constexpr double kPromisedRatio = 1.10;

std::uint64_t setting(const char* name, std::uint64_t usual) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::stoull(text) : usual;
}

std::uint64_t rss_bytes(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/statm", pid));
  std::uint64_t total = 0, resident = 0;
  file >> total >> resident;
  return resident * static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
}

// The sum of the fields of that name, wherever in the answer they stand.
std::uint64_t sum_of(const cli::Json& json, const std::string& name) {
  std::uint64_t sum = 0;
  if (!json.is_structured()) return 0;
  for (const auto& [key, value] : json.items())
    sum += key == name ? value.get<std::uint64_t>() : sum_of(value, name);
  return sum;
}

// A step in which a rank waits to be let go, or that ends the work of others: nothing stands before it, and
// it before nothing.
bool stands_alone(const std::string& step) {
  return step == "early" || step == "late" || step == "early_start" || step == "overdue" || step == "abort";
}

class Storm {
 public:
  enum class Victims { kDie, kLeave };

  Storm(const test::Node& node, std::string job, std::uint64_t seed)
      : node_(node), job_(std::move(job)), random_(seed) {
    for (const Way& way : test::ways()) {
      ways_.push_back(way);
      if (!stands_alone(way.step)) companions_.push_back(way);
    }
  }

  // One job whose victim dies at a random place, or passes by where it does not come there so often.
  void cycle() { end(drawn_of(ways_), Victims::kDie); }
  // A cycle that no rank holds up, so that it is as much work whether its victim dies or not.
  void brisk_cycle(Victims victims) { end(drawn_of(companions_), victims); }

  // One job whose victim stops where the others need it, until their deadline; `meanwhile` runs before they
  // are asked what they heard, over and over.
  template<class Meanwhile>
  void stop_cycle(Nanos deadline, Meanwhile meanwhile) {
    Way way;
    do way = companions_[random_() % companions_.size()];
    while (test::is_unknown(way) ||
           way.point.starts_with("goodbye."));  // when it is not awaited yet, or any more
    SCOPED_TRACE(fmt::format("stopped at {}, hit {}, step {}", way.point, way.hit, way.step));
    const int victim = static_cast<int>(random_() % FaultJob::kWorld);
    FaultJob job(node_, job_, victim, {way.step}, fmt::format("{}:{}=stop", way.point, way.hit));
    EXPECT_THAT(job.at_point(), HasSubstr(fmt::format("at {}", way.point)));
    ASSERT_TRUE(job.victim().await_stop());
    for (const auto end = test::now_ns() + deadline.count(); test::now_ns() < end;) meanwhile();
    for (test::FaultRank* rank : job.survivors()) {
      const Ending e = test::ending_of(rank->line());
      EXPECT_EQ(e.status, "MUSTER_ERR_TIMEOUT") << e.line;
      EXPECT_THAT(e.text, HasSubstr(fmt::format("rank {} is stopped", victim)));
      EXPECT_THAT(rank->wait(), AnyOf(0, 42));
    }
    ++stops;
    job.victim().kill(SIGKILL);
    EXPECT_EQ(job.victim().wait(), 128 + SIGKILL);
  }

  std::uint64_t deaths = 0;
  std::uint64_t departures = 0;
  std::uint64_t stops = 0;

 private:
  struct Drawn {
    Way way;
    std::uint64_t hit = 0;
    int victim = 0;
    std::vector<std::string> steps;
  };

  Drawn drawn_of(const std::vector<Way>& ways) {
    Drawn d;
    d.way = ways[random_() % ways.size()];
    const bool alone = stands_alone(d.way.step);
    // In a step that stands alone, the other ranks wait for the victim to reach its point. So it must reach
    // it.
    d.hit = alone ? static_cast<std::uint64_t>(d.way.hit) : 1 + random_() % 3;
    d.victim = static_cast<int>(random_() % FaultJob::kWorld);
    for (std::uint64_t more = random_() % 3; more > 0 && !alone; --more)
      d.steps.push_back(companions_[random_() % companions_.size()].step);
    d.steps.push_back(d.way.step);
    return d;
  }
  void end(const Drawn& d, Victims victims) {
    SCOPED_TRACE(fmt::format("{} at {}, hit {}, victim {}, steps {}",
                             victims == Victims::kDie ? "killed" : "passes", d.way.point, d.hit, d.victim,
                             fmt::join(d.steps, " ")));
    const bool dies = victims == Victims::kDie;
    FaultJob job(node_, job_, d.victim, d.steps,
                 dies ? fmt::format("{}:{}=kill", d.way.point, d.hit) : std::string());
    const std::string line = job.at_point();
    const pid_t pid = job.victim().pid();
    const int code = job.victim().wait();
    if (dies) {
      EXPECT_THAT(code, AnyOf(0, 128 + SIGKILL)) << line;
    } else {
      EXPECT_EQ(code, 0) << line;
    }
    if (code == 0) ++departures;
    if (code != 0) {
      test::say_absent(node_, job_, d.victim, pid);
      ++deaths;
    }
    for (test::FaultRank* rank : job.survivors()) {
      const Ending e = test::ending_of(rank->line());
      EXPECT_EQ(e.status, "MUSTER_ERR_PEER_LOST") << e.line;
      EXPECT_THAT(e.text, HasSubstr(code == 0 ? fmt::format("rank {} (pid {}) detached", d.victim, pid)
                                              : test::told_of(d.way, d.victim, pid)));
      EXPECT_THAT(rank->wait(), AnyOf(0, 42));
    }
    test::expect_all(node_, job_);
  }

  const test::Node& node_;
  std::string job_;
  std::mt19937_64 random_;
  std::vector<Way> ways_;
  std::vector<Way> companions_;  // whose steps may stand before another
};

void run_well(const test::Node& node, const std::vector<std::string>& steps) {
  FaultJob job(node, "warm", 1, steps, {});
  EXPECT_EQ(job.at_point(), "left");
  EXPECT_EQ(job.victim().wait(), 0);
  for (test::FaultRank* rank : job.survivors()) {
    EXPECT_EQ(test::ending_of(rank->line()).how, "parted");
    EXPECT_EQ(rank->wait(), 0);
  }
}

// Resources held by the only job's engine, once it has freed all it can, and by this process, the supervisor.
// Named memory outlives a kill, so it is freed first.
struct Held {
  test::Holdings holdings;
  test::Holdings own;
  std::uint64_t rss = 0;
  std::uint64_t arena = 0;
};
Held held_by(const test::Node& node, pid_t engine) {
  run_well(node, {"named", "shared"});
  usleep(300'000);  // the next timer of the engine buries the last sessions
  const auto answer = cli::ask({node.endpoint()}, {{"command", "jobs"}});
  EXPECT_TRUE(answer) << answer.error().text;
  // The question's own connection, and those of ranks that have just left, are on their way out.
  test::Holdings own = test::holdings_of(getpid());
  for (int look = 0; look < 20; ++look) {
    usleep(10'000);
    const test::Holdings now = test::holdings_of(getpid());
    own = {std::min(own.descriptors, now.descriptors), std::min(own.mappings, now.mappings)};
  }
  return {test::holdings_of(engine), own, rss_bytes(engine),
          answer ? sum_of(answer->result, "arena_used_bytes") : 0};
}

TEST(FaultCycles, LeaveNothingBehindAndAJobThatWorks) {
  const std::uint64_t cycles = setting("MUSTER_KILL_CYCLES", 100);
  const std::uint64_t seed = setting("MUSTER_FAULT_SEED", 4711);
  SCOPED_TRACE(fmt::format("MUSTER_FAULT_SEED={}", seed));
  test::Node node;
  node.options.job_defaults.digests = 1;
  node.start();
  Storm storm(node, "warm", seed);
  Held before;
  pid_t engine = 0;
  for (std::uint64_t cycle = 0; cycle < cycles; ++cycle) {
    SCOPED_TRACE(fmt::format("cycle {}", cycle));
    storm.cycle();
    if (::testing::Test::HasFailure()) break;
    if (cycle != cycles / 4) continue;
    ASSERT_EQ(test::engines().size(), 1u);
    engine = test::engines().front();
    before = held_by(node, engine);
  }
  ASSERT_NE(engine, 0);
  const Held after = held_by(node, engine);
  const std::uint64_t grown = after.rss > before.rss ? after.rss - before.rss : 0;
  std::printf(
      "%llu cycles of seed %llu, %llu deaths; since the first quarter: descriptors %zu to %zu, mappings "
      "%zu to %zu, arena bytes %llu to %llu, resident %llu to %llu KiB (%.2f KiB a cycle)\n",
      static_cast<unsigned long long>(cycles), static_cast<unsigned long long>(seed),
      static_cast<unsigned long long>(storm.deaths), before.holdings.descriptors, after.holdings.descriptors,
      before.holdings.mappings, after.holdings.mappings, static_cast<unsigned long long>(before.arena),
      static_cast<unsigned long long>(after.arena), static_cast<unsigned long long>(before.rss >> 10),
      static_cast<unsigned long long>(after.rss >> 10),
      static_cast<double>(grown) / 1024.0 / static_cast<double>(cycles - cycles / 4));
  EXPECT_GE(storm.deaths, cycles / 3) << "most of the points are to be reached";
  EXPECT_LE(after.holdings.descriptors, before.holdings.descriptors);
  EXPECT_LE(after.holdings.mappings, before.holdings.mappings);
  EXPECT_LE(after.own.descriptors, before.own.descriptors) << "of the supervisor";
  EXPECT_LE(after.own.mappings, before.own.mappings) << "of the supervisor";
  EXPECT_EQ(after.arena, 0u) << "no session is left that could hold any";
  EXPECT_LE(grown, kRssGrowthMax);

  run_well(node, {"inline", "read", "slices", "gather", "pairs", "shared", "start", "batch"});
  EXPECT_EQ(test::engines(), std::vector<pid_t>{engine}) << "the same engine all the time";
}

// Goal:   measure the cost to a neighbour of deaths beside it; its results are right all the time.
// Method: it has a core of its own. On the others run the same programs all the time, which attach, work and
//         leave; in every other window one of three is killed instead, so that no difference is that of a
//         core. The ratios are printed, and with MUSTER_CONTRACT=1 held to what is promised.
TEST(FaultCycles, LeaveANeighbourItsTimes) {
  constexpr auto kWindow = std::chrono::milliseconds(500);
  const int windows = 2 * test::rounds(4);
  const test::FirstCoreLeft cores;
  test::Node node;
  node.options.job_defaults.workers = 1;
  node.start();
  Storm storm(node, "victim", setting("MUSTER_FAULT_SEED", 4711));
  storm.cycle();  // the job is made before anything is measured
  storm.deaths = storm.departures = 0;
  test::Bystanders neighbour(
      node,
      {.job = "neighbour", .count = 1024, .lane = MUSTER_LANE_SMALL, .runs = true, .core = cores.left()});
  for (int window = 0; window < windows && !::testing::Test::HasFailure(); ++window) {
    const auto end = std::chrono::steady_clock::now() + kWindow;
    const bool storms = window % 2 == 1;
    neighbour.storm(storms);
    const auto victims = storms ? Storm::Victims::kDie : Storm::Victims::kLeave;
    while (std::chrono::steady_clock::now() < end) storm.brisk_cycle(victims);
  }
  neighbour.stop();
  EXPECT_GT(storm.deaths, 0u);
  EXPECT_GT(storm.departures, 0u);
  std::printf("%llu deaths beside it, %llu that left\n", static_cast<unsigned long long>(storm.deaths),
              static_cast<unsigned long long>(storm.departures));
  for (const auto path : {test::Bystanders::kRun, test::Bystanders::kStart}) neighbour.ratio(path, 0.5);
  neighbour.expect_undisturbed(kPromisedRatio, "p99 beside deaths to p99 beside as many that leave");
}

// Goal:   the same with ranks that stop. Their peers wait until the deadline and are told the stopped rank.
// Method: as above; MUSTER_CONTRACT=1 enforces the promised figures. Ranks leave in all windows; in every
//         other window a rank of another job is stopped.
TEST(FaultCycles, LeaveANeighbourItsTimesWhereRanksStop) {
  constexpr auto kDeadline = std::chrono::milliseconds(300);
  const int windows = 2 * test::rounds(6);
  const test::FirstCoreLeft cores;
  test::Node node;
  node.options.job_defaults.workers = 1;
  node.options.job_defaults.deadline = kDeadline;
  node.options.job_defaults.digests = 1;  // to every point a rank that is to stop there comes
  node.start();
  Storm leaves(node, "leaves", setting("MUSTER_FAULT_SEED", 4711));
  Storm stops(node, "stops", setting("MUSTER_FAULT_SEED", 4711));
  const auto leave = [&leaves] { leaves.brisk_cycle(Storm::Victims::kLeave); };
  leave();
  stops.stop_cycle(kDeadline, [] {});  // both jobs are made before anything is measured
  stops.stops = leaves.departures = 0;
  test::Bystanders neighbour(
      node,
      {.job = "neighbour", .count = 1024, .lane = MUSTER_LANE_SMALL, .runs = true, .core = cores.left()});
  for (int window = 0; window < windows && !::testing::Test::HasFailure(); ++window) {
    const bool storms = window % 2 == 1;
    neighbour.storm(storms);
    if (storms) {
      stops.stop_cycle(kDeadline, leave);
      continue;
    }
    for (const auto end = test::now_ns() + Nanos(kDeadline).count(); test::now_ns() < end;) leave();
  }
  neighbour.stop();
  EXPECT_EQ(stops.stops, static_cast<std::uint64_t>(windows / 2));
  std::printf("%llu stops beside it, %llu that left\n", static_cast<unsigned long long>(stops.stops),
              static_cast<unsigned long long>(leaves.departures));
  for (const auto path : {test::Bystanders::kRun, test::Bystanders::kStart}) neighbour.ratio(path, 0.5);
  neighbour.expect_undisturbed(kPromisedRatio, "p99 beside stops to p99 without");
}

}  // namespace
}  // namespace muster
