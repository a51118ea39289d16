#include "api/base/blame/blame.hpp"

#include <functional>
#include <numeric>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::blame {
namespace {

using Confidence = Report::Confidence;
using Diagnosis = Report::Diagnosis;
using Process = RankState::Process;

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

constexpr Nanos ms(std::int64_t value) {
  return std::chrono::milliseconds(value);
}

// A job whose ranks are attached and run; waits are added by hand. Now is at 10 s.
Snapshot job_of(std::uint32_t world) {
  Snapshot s;
  s.job = "train";
  s.now = ms(10'000);
  s.patience = ms(1'000);
  for (std::uint32_t rank = 0; rank < world; ++rank) {
    RankState state;
    state.attached = true;
    state.pid = static_cast<std::int32_t>(1000 + rank);
    state.process = Process::kRunning;
    s.ranks.push_back(state);
  }
  return s;
}

struct Facts {
  std::uint32_t group = 0;
  std::vector<std::uint32_t> arrived;
  std::vector<std::uint32_t> missing;
  Path path = Path::kEngine;
  std::int64_t since_ms = 0;
};

std::size_t add(Snapshot& s, const Facts& facts) {
  Wait wait;
  wait.group = facts.group;
  wait.group_name = "g" + std::to_string(facts.group);
  wait.path = facts.path;
  wait.lane = facts.path == Path::kEngine ? "small" : "";
  wait.number = 7;
  wait.operation = {"all_reduce", 4096, "f32", "model.py:11"};
  wait.since = ms(facts.since_ms);
  for (const std::uint32_t rank : facts.arrived) wait.arrived.push_back({rank, wait.since});
  for (const std::uint32_t rank : facts.missing) wait.missing.push_back({rank, {}, {}});
  wait.members = wait.arrived.size() + wait.missing.size();
  s.waits.push_back(wait);
  return s.waits.size() - 1;
}

std::vector<std::uint32_t> ranks_of(const Report& report) {
  std::vector<std::uint32_t> ranks;
  for (const Report::Culprit& culprit : report.culprits) ranks.push_back(culprit.rank);
  return ranks;
}

std::vector<std::uint32_t> range(std::uint32_t from, std::uint32_t to) {
  std::vector<std::uint32_t> ranks(to - from);
  std::iota(ranks.begin(), ranks.end(), from);
  return ranks;
}

TEST(Blame, FindsNothingWrongWithWhatIsYoung) {
  Snapshot s = job_of(2);
  EXPECT_EQ(assess(s).diagnosis, Diagnosis::kHealthy);
  add(s, {0, {0}, {1}, Path::kEngine, 9'500});
  EXPECT_EQ(assess(s).diagnosis, Diagnosis::kHealthy);
  EXPECT_THAT(text_of(s, assess(s)), HasSubstr("none for longer than 1.0 s"));
  // Asked about that very operation, its deadline has passed, and its age is no excuse.
  EXPECT_EQ(assess(s, 0).diagnosis, Diagnosis::kNotJoined);
}

// Goal:   a job in which nothing moves because its processes are stopped is not healthy, though nobody waits.
TEST(Blame, NamesProcessesThatAreStoppedBetweenOperations) {
  Snapshot s = job_of(4);
  s.ranks[1].process = Process::kStopped;
  s.ranks[2].process = Process::kStopped;
  s.ranks[3].attached = false;
  s.ranks[3].process = Process::kDead;  // nobody's
  const Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kStopped);
  EXPECT_THAT(ranks_of(report), ElementsAre(1, 2));
  EXPECT_THAT(report.next, ElementsAre("kill -CONT 1001", "kill -CONT 1002"));
  const std::string text = text_of(s, report);
  EXPECT_THAT(text, HasSubstr("ranks 1 2 are stopped by a signal; no operation has waited for that long"));
  EXPECT_THAT(text, Not(HasSubstr("a dead, stopped or frozen process")));
  // An operation that waits has its own cause.
  add(s, {0, {1}, {0}});
  EXPECT_EQ(assess(s).diagnosis, Diagnosis::kNotJoined);
}

// Goal:   one, half, and all but one of the members are missing: exactly they are named.
TEST(Blame, NamesExactlyTheMissingRanks) {
  constexpr std::uint32_t kWorld = 8;
  for (const std::uint32_t missing : {1u, kWorld / 2, kWorld - 1}) {
    Snapshot s = job_of(kWorld);
    add(s, {0, range(missing, kWorld), range(0, missing)});
    const Report report = assess(s);
    EXPECT_EQ(report.diagnosis, Diagnosis::kNotJoined);
    EXPECT_EQ(report.confidence, Confidence::kHigh);
    EXPECT_EQ(ranks_of(report), range(0, missing));
  }
}

// Goal:   no majority rule: 30 of 32 ranks are stuck, two are ahead, and one of the 30 has stopped.
// Method: ranks 30 and 31 wait in the world, for all others; 29 of those wait in a group of 30 for rank 5.
TEST(Blame, BlamesTheOneWhomThirtyWaitForAndNotTheTwoAhead) {
  for (const std::int64_t ahead_since : {1, 5'000}) {  // whether those ahead came first or last
    for (const Process state : {Process::kRunning, Process::kStopped}) {
      Snapshot s = job_of(32);
      add(s, {0, {30, 31}, range(0, 30), Path::kEngine, ahead_since});
      std::vector<std::uint32_t> stuck = range(0, 30);
      stuck.erase(stuck.begin() + 5);
      const std::size_t inner = add(s, {1, stuck, {5}, Path::kEngine, 3'000});
      s.ranks[5].process = state;
      const Report report = assess(s);
      EXPECT_EQ(report.diagnosis, state == Process::kStopped ? Diagnosis::kStopped : Diagnosis::kNotJoined);
      EXPECT_THAT(ranks_of(report), ElementsAre(5));
      EXPECT_EQ(report.wait, inner) << "the oldest incomplete operation is that of the 30";
      // Also in the diagnosis of the two ahead, whose missing ranks are innocent.
      EXPECT_THAT(ranks_of(assess(s, 0)), ElementsAre(5));
      EXPECT_THAT(because(s, assess(s, 0)), HasSubstr("rank 5 is"));
    }
  }
}

// Goal:   the reverse: two are stuck in a group of their own, which one of the 30 that wait does not know.
TEST(Blame, BlamesTheTwoBehindIfItIsThey) {
  Snapshot s = job_of(32);
  add(s, {0, range(0, 30), {30, 31}});
  const Report report = assess(s);
  EXPECT_THAT(ranks_of(report), ElementsAre(30, 31));
}

// Goal:   a circle that is only inferred does not hide a member that certainly has no process.
// Method: ranks 0 and 1 wait for each other in two groups, of which they have not submitted the other's part;
//         rank 2 is missing in one, attached and not.
TEST(Blame, PrefersARankThatIsNotThereToACircleThatIsInferred) {
  Snapshot s = job_of(3);
  add(s, {0, {0}, {1, 2}});
  add(s, {1, {1}, {0}});
  const Report circle = assess(s);
  EXPECT_FALSE(circle.circle.empty());
  EXPECT_THAT(ranks_of(circle), ElementsAre(2)) << "who has not come is told in any case";
  s.ranks[2].attached = false;
  const Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kNotAttached);
  EXPECT_THAT(ranks_of(report), ElementsAre(2));
  s.waits[0].missing[0].behind = 1;
  s.waits[1].missing[0].behind = 0;
  EXPECT_EQ(assess(s).diagnosis, Diagnosis::kDeadlock) << "a certain circle stays one";
}

// Goal:   each advice can be typed as it stands: it names the daemon where that is not the usual one.
TEST(Blame, AdvisesWhatCanBeFollowed) {
  Snapshot s = job_of(2);
  s.job = "j";
  add(s, {0, {0}, {1}});
  add(s, {1, {1}, {0}});
  EXPECT_THAT(assess(s).next, ElementsAre("muster flight --job j -o flight.json"));
  s.asked.endpoint = "/tmp/run";
  EXPECT_THAT(assess(s).next, ElementsAre("muster flight --endpoint /tmp/run --job j -o flight.json"));
  s.asked.reports = "/var/reports";
  EXPECT_THAT(assess(s).next, ElementsAre(testing::_, "see the records of passed deadlines in /var/reports"));
  s.asked.reports.clear();
  s.asked.ends_with_run = true;
  EXPECT_THAT(assess(s).next,
              ElementsAre("muster flight --endpoint /tmp/run --job j -o flight.json   (while it runs)",
                          HasSubstr("MUSTER_SET_log__reports_directory=FOLDER muster run")));
  Snapshot away = job_of(2);
  away.asked.endpoint = "/tmp/run";
  add(away, {0, {0}, {1}});
  away.ranks[1].attached = false;
  EXPECT_THAT(assess(away).next, ElementsAre("muster jobs --endpoint /tmp/run"));
}

TEST(Blame, PrefersAProcessThatIsIllToOneThatOnlyHasNotCome) {
  Snapshot s = job_of(5);
  add(s, {0, {0}, {1, 2, 3, 4}});
  s.ranks[1].process = Process::kFrozen;
  s.ranks[1].where = "/sys/fs/cgroup/job";
  s.ranks[2].process = Process::kStopped;
  s.ranks[3].attached = false;
  const Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kStopped);
  EXPECT_THAT(ranks_of(report), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(report.next, ElementsAre("kill -CONT 1002"));
  const std::string cause = because(s, report);
  EXPECT_THAT(cause, HasSubstr("rank 2 is stopped by a signal (pid 1002)"));
  EXPECT_THAT(cause, HasSubstr("rank 1 is frozen with its cgroup"));
  EXPECT_THAT(cause, HasSubstr("rank 3 is not attached"));
  EXPECT_THAT(text_of(s, report), HasSubstr("process frozen in /sys/fs/cgroup/job"));
  s.ranks[4].process = Process::kDead;
  EXPECT_EQ(assess(s).diagnosis, Diagnosis::kDead);
}

// Goal:   ranks 0, 1, 2 go through groups {0,1}, {1,2}, {2,0} in three orders that cannot meet.
TEST(Blame, ShowsACircleOfThreeGroupsWithRanksGroupsAndOperations) {
  for (const Path path : {Path::kEngine, Path::kDirect}) {
    Snapshot s = job_of(3);
    add(s, {10, {0}, {1}, path, 100});
    add(s, {11, {1}, {2}, path, 200});
    add(s, {12, {2}, {0}, path, 300});
    const Report report = assess(s);
    EXPECT_EQ(report.diagnosis, Diagnosis::kDeadlock);
    // A caller of the direct path sits in its call; on the engine path it might still submit more.
    EXPECT_EQ(report.confidence, path == Path::kDirect ? Confidence::kHigh : Confidence::kMedium);
    ASSERT_THAT(report.circle, SizeIs(3));
    for (std::uint32_t i = 0; i < 3; ++i) {
      EXPECT_EQ(report.circle[i].rank, i);
      EXPECT_EQ(report.circle[i].wait, i);
      EXPECT_EQ(report.circle[i].waits_for, (i + 1) % 3);
    }
    EXPECT_EQ(
        because(s, report),
        "circular wait: rank 0 (g10: all_reduce) -> rank 1 (g11: all_reduce) -> rank 2 (g12: all_reduce) -> "
        "rank 0");
    EXPECT_THAT(text_of(s, report), HasSubstr("rank 2 is in group g12: all_reduce #7"));
  }
}

TEST(Blame, IsCertainOfACircleOfSubmittedParts) {
  Snapshot s = job_of(2);
  add(s, {0, {0}, {1}});
  add(s, {1, {1}, {0}});
  s.waits[0].missing[0].behind = 1;
  s.waits[1].missing[0].behind = 0;
  const Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kDeadlock);
  EXPECT_EQ(report.confidence, Confidence::kHigh);
}

TEST(Blame, TakesMembersOfOneGroupInTwoOperationsForAMismatch) {
  Snapshot s = job_of(2);
  add(s, {4, {0}, {1}});
  add(s, {4, {1}, {0}});
  const Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kMismatchPending);
  EXPECT_THAT(because(s, report), HasSubstr("different operations: rank 0 (g4: all_reduce) -> rank 1"));
}

// Goal:   two messages of one group whose ends stand in another order are no mismatch: each fits its other
//         end.
TEST(Blame, TakesSubmittedPartsInAnotherOrderForADeadlock) {
  Snapshot s = job_of(2);
  add(s, {4, {0}, {1}});
  add(s, {4, {1}, {0}});
  const char* const labels[] = {"recv", "send"};
  const char* const lanes[] = {"halo", "copy"};
  for (const std::size_t w : {0u, 1u}) {
    s.waits[w].operation.label = labels[w];
    s.waits[w].operation.tag = w == 0 ? 9 : 7;
    s.waits[w].lane = lanes[w];
    s.waits[w].missing[0].behind = 1 - w;
    s.waits[w].missing[0].stands = fmt::format("position 2 of lane {}", lanes[1 - w]);
  }
  Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kDeadlock);
  EXPECT_EQ(report.confidence, Confidence::kHigh);
  EXPECT_EQ(
      because(s, report),
      "circular wait: rank 0 (g4: recv of tag 9, lane halo) -> rank 1 (g4: send of tag 7, lane copy) -> "
      "rank 0; start them in one order at all ranks, or each on a lane of its own");
  const std::string text = text_of(s, report);
  EXPECT_THAT(text, HasSubstr("VERDICT  deadlock   confidence high"));
  EXPECT_THAT(text, HasSubstr("rank 0 is in group g4: recv of tag 9 #7 (lane halo)"));
  EXPECT_THAT(text, HasSubstr("waits for rank 1, whose part is submitted, at position 2 of lane copy\n"));
  EXPECT_THAT(text, HasSubstr("these operations fit each other: start them in one order"));
  // One part is not there: the other rank may be about to do something else.
  s.waits[1].missing[0].behind.reset();
  s.waits[1].missing[0].stands.clear();
  report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kMismatchPending);
  EXPECT_THAT(because(s, report), Not(HasSubstr("in one order")));
  EXPECT_THAT(text_of(s, report), HasSubstr("waits for rank 0, which has not submitted its part"));
}

TEST(Blame, NamesTheLanesOfOneOperationThatIsOnSeveral) {
  Snapshot s = job_of(4);
  add(s, {4, {0, 2, 3}, {1}});
  add(s, {4, {1}, {0, 2, 3}});
  s.waits[1].lane = "allreduce";
  for (Wait& wait : s.waits) wait.operation.common = "5f3a";
  const Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kMismatchPending);
  EXPECT_EQ(
      because(s, report),
      "one operation is on several lanes: lane small at ranks 0 2 3, lane allreduce at rank 1; start it on "
      "the same lane at all ranks");
  EXPECT_THAT(text_of(s, report), HasSubstr("one operation is on several lanes: lane small at ranks 0 2 3"));
  // Where more differs than the lane, that is said.
  s.waits[1].operation.common = "77";
  EXPECT_EQ(because(s, assess(s)),
            "its members are in different operations: rank 0 (g4: all_reduce, lane small) -> rank 1 (g4: "
            "all_reduce, lane allreduce) -> rank 0");
}

// Goal:   what its members must say alike decides whether it is one operation, not what each of them gets;
//         and messages meet on any lane.
TEST(Blame, NamesTheLanesOfOneOperationOfUnequalAmounts) {
  constexpr char kOne[] =
      "one operation is on several lanes: lane a at rank 0, lane b at rank 1, lane c at rank 2; start it on "
      "the same lane at all ranks";
  constexpr char kSeveral[] = "its members are in different operations: rank 0 (g4: gather";
  const auto said = [](const std::function<void(std::uint32_t rank, Wait::Operation&)>& change) {
    Snapshot s = job_of(3);
    for (const std::uint32_t rank : {0u, 1u, 2u}) {
      Wait& wait = s.waits[add(s, {4, {rank}, {(rank + 1) % 3}})];
      wait.lane = "abc"[rank];
      wait.operation.label = "gather";
      wait.operation.bytes = 4096 * rank;
      wait.operation.common = "5f3a";
      change(rank, wait.operation);
    }
    return because(s, assess(s));
  };
  EXPECT_THAT(said([](std::uint32_t, Wait::Operation&) {}), HasSubstr(kOne));
  EXPECT_THAT(
      said([](std::uint32_t rank, Wait::Operation& what) { what.common = rank == 2 ? "77" : "5f3a"; }),
      HasSubstr(kSeveral));
  EXPECT_THAT(said([](std::uint32_t, Wait::Operation& what) { what.common.clear(); }), HasSubstr(kSeveral))
      << "a daemon of another release does not say it";
  EXPECT_THAT(said([](std::uint32_t, Wait::Operation& what) { what.tag = 7; }), HasSubstr(kSeveral));
}

TEST(Blame, SaysThatARunAndAStartDoNotMeet) {
  Snapshot s = job_of(2);
  add(s, {4, {0}, {1}, Path::kEngine});
  add(s, {4, {1}, {0}, Path::kDirect});
  const Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kMismatchPending);
  EXPECT_EQ(because(s, report),
            "what is run and what is started do not meet: rank 0 (g4: all_reduce, started) -> "
            "rank 1 (g4: all_reduce, run) -> rank 0");
}

// Goal:   a rank that waits until a stopped one has read what it gave is not the cause.
TEST(Blame, NamesTheReaderForWhomAMissingRankWaits) {
  Snapshot s = job_of(3);
  add(s, {0, {2}, {0}, Path::kDirect});
  const std::size_t read = add(s, {1, {1}, {}, Path::kDirect, 100});
  s.waits[read].inside = {1};
  s.waits[read].awaiting = {0};
  EXPECT_EQ(assess(s).diagnosis, Diagnosis::kSlow) << "a reader that runs is about to have read";
  EXPECT_THAT(text_of(s, assess(s)),
              HasSubstr("done     rank 0, waiting until rank 1 has read what it gave"));
  s.ranks[1].process = Process::kStopped;
  const Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kStopped);
  EXPECT_EQ(report.confidence, Confidence::kHigh);
  EXPECT_EQ(report.wait, read);
  EXPECT_THAT(ranks_of(report), ElementsAre(1));
  EXPECT_THAT(because(s, report), HasSubstr("rank 1 is stopped by a signal (pid 1001)"));
  s.waits[read].awaiting = {2};
  EXPECT_EQ(assess(s).diagnosis, Diagnosis::kNotJoined) << "nobody who is missing gave it anything";
}

TEST(Blame, SaysInWhatThoseWhoHaveComeDifferAlready) {
  Snapshot s = job_of(3);
  add(s, {0, {0, 1}, {2}});
  s.waits[0].difference = "count: 8 at rank 0 and 7 at rank 1";
  const Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kMismatchPending);
  EXPECT_THAT(because(s, report), HasSubstr("count: 8 at rank 0"));
  EXPECT_THAT(text_of(s, report), HasSubstr("differ   on count: 8 at rank 0 and 7 at rank 1"));
}

TEST(Blame, FollowsAPartThatIsHeldBackAndNotTheRankElsewhere) {
  Snapshot s = job_of(4);
  add(s, {0, {0}, {1}});
  add(s, {1, {1}, {2}});                             // rank 1 is here,
  const std::size_t behind = add(s, {2, {1}, {3}});  // but its part of the first stands behind this
  s.waits[0].missing[0].behind = behind;
  EXPECT_THAT(ranks_of(assess(s, 0)), ElementsAre(3));
  // Or behind something of its own program.
  s.waits[0].missing[0] = {1, {}, "client timeline 16 to reach 3 (it is at 0)"};
  const Report report = assess(s, 0);
  EXPECT_THAT(ranks_of(report), ElementsAre(1));
  EXPECT_THAT(because(s, report), HasSubstr("waits for client timeline 16"));
}

TEST(Blame, CallsAnOperationThatAllHaveComeToSlowAndLooksFurther) {
  Snapshot s = job_of(4);
  add(s, {0, {0, 1}, {}, Path::kEngine, 10});
  EXPECT_EQ(assess(s).diagnosis, Diagnosis::kSlow);
  add(s, {1, {2}, {3}, Path::kEngine, 20});
  EXPECT_EQ(assess(s).diagnosis, Diagnosis::kNotJoined);
  // One that has come and was stopped inside is no matter of speed.
  s.waits.pop_back();
  s.waits[0].inside = {0, 1};
  s.ranks[1].process = Process::kStopped;
  const Report report = assess(s);
  EXPECT_EQ(report.diagnosis, Diagnosis::kStopped);
  EXPECT_THAT(ranks_of(report), ElementsAre(1));
}

TEST(Blame, RulesOutOnlyWhatItHasSeen) {
  Snapshot s = job_of(2);
  add(s, {0, {0}, {1}});
  EXPECT_THAT(text_of(s, assess(s)), HasSubstr("a dead, stopped or frozen process"));
  s.ranks[1].process = Process::kUnknown;
  const Report report = assess(s);
  EXPECT_EQ(report.confidence, Confidence::kMedium);
  EXPECT_THAT(text_of(s, report), Not(HasSubstr("a dead, stopped or frozen process")));
}

TEST(Blame, PrintsOperationAgesAndTheLastThatAMissingRankDid) {
  Snapshot s = job_of(16);
  add(s, {0, range(0, 15), {15}, Path::kEngine, 4'000});
  s.ranks[15].heard = ms(9'000);
  s.ranks[15].finished = RankState::LastOperation{"dp", "all_gather", Path::kEngine, 1186, ms(8'000)};
  const std::string text = text_of(s, assess(s));
  EXPECT_THAT(text, HasSubstr("VERDICT  not_joined   confidence high"));
  EXPECT_THAT(text, HasSubstr("group    g0 (id 0, 16 ranks)   op all_reduce #7 (lane small)  4.0 KiB f32"));
  EXPECT_THAT(text, HasSubstr("waiting  ranks 0-14 for 6.0 s   missing  rank 15"));
  EXPECT_THAT(text, HasSubstr("rank 15  pid 1015, process running; last heard 1.0 s ago; last op: all_gather "
                              "#1186 in dp done 2.0 s ago"));
}

}  // namespace
}  // namespace muster::blame
