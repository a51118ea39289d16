#include "api/base/blame/merge.hpp"

#include "api/base/blame/blame.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::blame {
namespace {

using Diagnosis = Report::Diagnosis;

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr Nanos ms(std::int64_t value) {
  return std::chrono::milliseconds(value);
}

constexpr std::uint32_t kWorld = 4;  // ranks 0 and 1 on node01, 2 and 3 on node02

// The part that a node's engine reports when its clock shows `now`: all its ranks run.
NodePart part_of(const std::string& node, std::vector<std::uint32_t> ranks, Instant now = ms(10'000)) {
  NodePart part;
  part.node = node;
  part.ranks = ranks;
  part.heard = ms(50'000);
  Snapshot s;
  s.now = now;
  s.patience = ms(1'000);
  s.ranks.resize(kWorld);
  for (const std::uint32_t rank : ranks) {
    RankState& state = s.ranks[rank];
    state.local = true;
    state.attached = state.was_attached = true;
    state.pid = static_cast<std::int32_t>(1000 + rank);
    state.process = RankState::Process::kRunning;
  }
  part.snapshot = s;
  return part;
}
NodePart first(Instant now = ms(10'000)) {
  return part_of("node01", {0, 1}, now);
}
NodePart second(Instant now = ms(10'000)) {
  return part_of("node02", {2, 3}, now);
}
NodePart away(const std::string& node, std::vector<std::uint32_t> ranks) {
  return {node, std::move(ranks), {}, Instant(0), "node " + node + " is away: no route to host"};
}

// An operation of a group that spans nodes, as one node sees it.
struct Seen {
  std::uint64_t group = 1;
  std::uint64_t number = 1;
  std::vector<std::uint32_t> takes_part{0, 1, 2, 3};
  std::vector<std::uint32_t> arrived{};
  std::vector<std::uint32_t> missing{};  // of that node
  std::int64_t age_ms = 5'000;
  std::uint64_t epoch = 1;
};
std::size_t add(NodePart& part, const Seen& seen) {
  Wait wait;
  wait.group = static_cast<std::uint32_t>(seen.group);
  wait.group_name = "g" + std::to_string(seen.group);
  wait.members = seen.takes_part.size();
  wait.lane = "small";
  wait.number = seen.number;
  wait.operation = {"all_reduce", 4096, "f32", "model.py:11"};
  wait.since = part.snapshot->now - ms(seen.age_ms);
  for (const std::uint32_t rank : seen.arrived) wait.arrived.push_back({rank, wait.since});
  for (const std::uint32_t rank : seen.missing) wait.missing.push_back({rank, {}, {}});
  wait.span = SpanKey{seen.group, 3, -1, -1, 0, seen.epoch, seen.number};
  wait.takes_part = seen.takes_part;
  part.snapshot->waits.push_back(wait);
  return part.snapshot->waits.size() - 1;
}

std::vector<std::uint32_t> ranks_of(const Report& report) {
  std::vector<std::uint32_t> ranks;
  for (const Report::Culprit& culprit : report.culprits) ranks.push_back(culprit.rank);
  return ranks;
}
std::vector<std::uint32_t> missing_in(const Snapshot& merged, std::size_t wait = 0) {
  std::vector<std::uint32_t> ranks;
  for (const Wait::Missing& missing : merged.waits.at(wait).missing) ranks.push_back(missing.rank);
  return ranks;
}
Snapshot merged_of(const std::vector<NodePart>& parts) {
  return merge("train", parts);
}

// Goal:   one, both, or all but one of the ranks are missing: exactly they are named, with their node and
//         state, whichever nodes they are on.
TEST(Merge, NamesExactlyTheMissingRanksOfAllNodes) {
  const std::vector<std::uint32_t> cases[] = {{3}, {2}, {2, 3}, {1, 3}, {0, 1, 2}, {1, 2, 3}};
  for (const auto& missing : cases) {
    NodePart parts[] = {first(), second()};
    for (NodePart& part : parts) {
      Seen seen;
      for (const std::uint32_t rank : part.ranks)
        (std::count(missing.begin(), missing.end(), rank) > 0 ? seen.missing : seen.arrived).push_back(rank);
      if (seen.missing.size() < 2) seen.age_ms = 4'000;
      // An engine knows of no operation to which none of its ranks has come.
      if (!seen.arrived.empty()) add(part, seen);
      for (const std::uint32_t rank : seen.missing)
        part.snapshot->ranks[rank].process = RankState::Process::kStopped;
    }
    const Snapshot merged = merged_of({parts[0], parts[1]});
    ASSERT_EQ(merged.waits.size(), 1u);
    EXPECT_EQ(missing_in(merged), missing);
    EXPECT_EQ(merged.waits[0].arrived.size(), kWorld - missing.size());
    const Report report = assess(merged);
    EXPECT_EQ(report.diagnosis, Diagnosis::kStopped);
    EXPECT_EQ(ranks_of(report), missing);
    const std::string text = text_of(merged, report);
    for (const std::uint32_t rank : missing)
      EXPECT_THAT(text, HasSubstr(fmt::format("rank {}   on node0{}: pid {}, process stopped", rank,
                                              rank / 2 + 1, 1000 + rank)));
    EXPECT_THAT(report.next.front(),
                HasSubstr(fmt::format("on node0{}: kill -CONT {}", missing[0] / 2 + 1, 1000 + missing[0])));
  }
}

// Goal:   messages of two nodes in crossed order are a deadlock that only both nodes together can see. A part
//         stands for its own tag.
TEST(Merge, FindsMessagesInCrossedOrder) {
  NodePart here = first();
  NodePart there = second();
  const auto add_message = [](NodePart& part, std::uint32_t rank, const char* label, std::uint32_t tag) {
    const std::size_t w = add(part, {.takes_part = {1, 2}, .arrived = {rank}});
    Wait& wait = part.snapshot->waits[w];
    wait.operation.label = label;
    wait.operation.tag = tag;
    wait.span = SpanKey{1, 0, 0, 1, tag, 1, 1};
    part.snapshot->queued.push_back({{1, 0, 0, 1, 16 - tag, 0, 0}, {rank, w, {}, "position 2 of lane copy"}});
  };
  add_message(here, 1, "send", 7);   // and 9 behind it
  add_message(there, 2, "recv", 9);  // and 7 behind it
  const Snapshot merged = merged_of({here, there});
  ASSERT_EQ(merged.waits.size(), 2u);
  const Report report = assess(merged);
  EXPECT_EQ(report.diagnosis, Diagnosis::kDeadlock);
  EXPECT_EQ(report.confidence, Report::Confidence::kHigh);
  EXPECT_THAT(text_of(merged, report),
              HasSubstr("rank 2, whose part is submitted, at position 2 of lane copy\n"));
  for (NodePart* part : {&here, &there}) part->snapshot->queued.front().place.tag = 5;  // another message
  EXPECT_EQ(assess(merged_of({here, there})).diagnosis, Diagnosis::kMismatchPending);
}

TEST(Merge, SaysWhetherARankWasEverThere) {
  for (const bool was : {false, true}) {
    NodePart here = first();
    NodePart there = second();
    add(here, {.arrived = {0, 1}});
    there.snapshot->ranks[2].attached = false;
    there.snapshot->ranks[2].was_attached = was;
    const Snapshot merged = merged_of({here, there});
    const Report report = assess(merged);
    EXPECT_EQ(report.diagnosis, Diagnosis::kNotAttached);
    EXPECT_THAT(ranks_of(report), ElementsAre(2, 3)) << "3 runs, and has not come";
    EXPECT_THAT(text_of(merged, report), HasSubstr(was ? "rank 2   on node02: not attached any more\n"
                                                       : "rank 2   on node02: not attached\n"));
  }
}

// Goal:   no majority, and no node's word against the other's: the oldest operation that is not complete
//         leads to the rank at fault.
// Method: ranks 0 and 1 wait for rank 2, which waits in another group for rank 3, which is nowhere. Either
//         node sees an operation of its own, and the younger one is the one that more ranks are in.
TEST(Merge, BlamesByTheOldestOperationAndNotByTheNode) {
  for (const std::int64_t age_of_second : {9'000, 2'000}) {
    NodePart here = first();
    NodePart there = second();
    add(here, {.group = 1, .takes_part = {0, 1, 2}, .arrived = {0, 1}, .age_ms = 5'000});
    add(there,
        {.group = 2, .takes_part = {1, 2, 3}, .arrived = {2}, .missing = {3}, .age_ms = age_of_second});
    const Snapshot merged = merged_of({here, there});
    ASSERT_EQ(merged.waits.size(), 2u);
    EXPECT_THAT(missing_in(merged, 0), ElementsAre(2));
    EXPECT_THAT(missing_in(merged, 1), ElementsAre(1, 3));
    // Rank 1 waits for 2 and 2 for 1: a circle, which only both nodes together can see.
    const Report report = assess(merged);
    EXPECT_EQ(report.diagnosis, Diagnosis::kDeadlock);
    ASSERT_EQ(report.circle.size(), 2u);
    EXPECT_EQ(report.wait, age_of_second > 5'000 ? 1u : 0u) << "the oldest";
  }
  NodePart here = first();
  NodePart there = second();
  add(here, {.group = 1, .takes_part = {0, 1, 2}, .arrived = {0, 1}, .age_ms = 2'000});
  add(there, {.group = 2, .takes_part = {0, 2, 3}, .arrived = {2, 3}, .age_ms = 9'000});
  here.snapshot->ranks[0].process = RankState::Process::kStopped;
  const Report report = assess(merged_of({here, there}));
  EXPECT_EQ(report.wait, 1u) << "it is older, though it is of the second node";
  EXPECT_EQ(report.diagnosis, Diagnosis::kStopped);
  EXPECT_THAT(ranks_of(report), ElementsAre(0));
}

// Goal:   the clocks of the nodes do not matter, only the ages.
TEST(Merge, HasTheSameVerdictWhateverTheClocksSay) {
  std::string text;
  for (const std::int64_t offset_ms : {0, 86'400'000, -9'000, 1}) {
    NodePart here = first();
    NodePart there = second(ms(10'000 + offset_ms));
    add(here, {.group = 1, .takes_part = {0, 2}, .arrived = {0}, .age_ms = 5'000});
    add(there, {.group = 2, .takes_part = {1, 2, 3}, .arrived = {2}, .missing = {3}, .age_ms = 7'000});
    there.snapshot->ranks[3].heard = there.snapshot->now - ms(6'500);
    there.snapshot->ranks[3].finished =
        RankState::LastOperation{"g9", "barrier", Path::kEngine, 4, there.snapshot->now - ms(6'600)};
    const Snapshot merged = merged_of({here, there});
    const Report report = assess(merged);
    EXPECT_EQ(merged.now - merged.waits[1].since, ms(7'000));
    const std::string now = text_of(merged, report);
    EXPECT_THAT(now, HasSubstr("last heard 6.5 s ago; last op: barrier #4 in g9 done 6.6 s ago"));
    if (text.empty()) text = now;
    EXPECT_EQ(now, text) << offset_ms;
  }
}

// Goal:   an operation that began after the first node's answer is no hang: that answer cannot contain it.
TEST(Merge, TakesWhatIsYoungerThanTheFirstAnswerForYoung) {
  NodePart here = first();
  NodePart there = second();
  there.heard = here.heard + ms(1'900);
  add(there, {.arrived = {2, 3}, .age_ms = 1'500});
  EXPECT_EQ(assess(merged_of({here, there})).diagnosis, Diagnosis::kHealthy);
  there.snapshot->waits.clear();
  add(there, {.arrived = {2, 3}, .age_ms = 3'000});
  const Report report = assess(merged_of({here, there}));
  EXPECT_EQ(report.diagnosis, Diagnosis::kNotJoined) << "1.1 s before the first answer";
  EXPECT_THAT(ranks_of(report), ElementsAre(0, 1));
}

// Goal:   nodes that have not answered are named with the reason, and nobody calls their ranks healthy.
TEST(Merge, KnowsNothingOfANodeThatIsAway) {
  NodePart here = first();
  Snapshot merged = merged_of({here, away("node02", {2, 3})});
  Report report = assess(merged);
  EXPECT_EQ(report.diagnosis, Diagnosis::kUnknown) << "though nothing waits here";
  EXPECT_THAT(report.ruled_out, IsEmpty());
  ASSERT_EQ(merged.silent.size(), 1u);
  EXPECT_THAT(text_of(merged, report),
              HasSubstr("silent   node02: node node02 is away: no route to host; unknown: ranks 2 3\n"));

  add(here, {.arrived = {0, 1}});
  merged = merged_of({here, away("node02", {2, 3})});
  report = assess(merged);
  EXPECT_EQ(report.diagnosis, Diagnosis::kUnknown);
  EXPECT_EQ(report.confidence, Report::Confidence::kLow);
  EXPECT_THAT(ranks_of(report), ElementsAre(2, 3));
  EXPECT_THAT(text_of(merged, report),
              HasSubstr("rank 2   on node02: unknown, because node node02 is away: no route to host\n"));
  EXPECT_THAT(report.next, ElementsAre("muster status"));

  here.snapshot->waits.clear();
  add(here, {.arrived = {0}, .missing = {1}});
  report = assess(merged_of({here, away("node02", {2, 3})}));
  EXPECT_EQ(report.diagnosis, Diagnosis::kNotJoined) << "this much is known";
  EXPECT_THAT(ranks_of(report), ElementsAre(1, 2, 3));
  EXPECT_EQ(report.confidence, Report::Confidence::kMedium);

  merged = merged_of({away("node01", {0, 1}), away("node02", {2, 3})});
  EXPECT_EQ(assess(merged).diagnosis, Diagnosis::kUnknown);
  EXPECT_EQ(merged.silent.size(), 2u);
}

// Goal:   a node's own view of an operation that spans nodes does not say that all have come.
TEST(Merge, IsWhatMakesOneNodesViewWhole) {
  NodePart here = first();
  add(here, {.arrived = {0, 1}});
  Report report = assess(*here.snapshot);
  EXPECT_EQ(report.diagnosis, Diagnosis::kUnknown);
  EXPECT_THAT(text_of(*here.snapshot, report),
              AllOf(HasSubstr("all of this node have come; ranks 2 3 are on other nodes"),
                    Not(HasSubstr("missing"))));
  NodePart there = second();
  add(there, {.arrived = {2, 3}, .age_ms = 6'000});
  const Snapshot merged = merged_of({here, there});
  report = assess(merged);
  EXPECT_EQ(report.diagnosis, Diagnosis::kSlow);
  EXPECT_THAT(text_of(merged, report), HasSubstr("ranks 0-3 for 6.0 s   all have come\n"));
}

// Goal:   a node whose ranks have come and gone on, before it answered, is not blamed.
TEST(Merge, SeesThatANodeIsThrough) {
  NodePart here = first();
  NodePart there = second();
  add(here, {.number = 4, .arrived = {0, 1}});
  for (const std::uint64_t reached : {3, 4, 5}) {
    there.snapshot->reached = {
        {1, 3, -1, -1, 0, 1, reached}, {1, 4, -1, -1, 0, 1, 9}, {2, 3, -1, -1, 0, 1, 9}};
    const Report report = assess(merged_of({here, there}));
    EXPECT_EQ(report.diagnosis, reached < 4 ? Diagnosis::kNotJoined : Diagnosis::kSlow) << reached;
  }
}

// Goal:   a rank whose part is held back behind another operation is no culprit, wherever that operation is.
TEST(Merge, FollowsPartsThatAreHeldBack) {
  NodePart here = first();
  NodePart there = second();
  add(here,
      {.group = 7, .takes_part = {0, 1}, .arrived = {0, 1}});  // indices differ from those of the merged
  add(here, {.group = 1, .takes_part = {0, 2}, .arrived = {0}});
  const std::size_t holds = add(there, {.group = 2, .takes_part = {1, 2}, .arrived = {2}});
  there.snapshot->queued = {{{1, 3, -1, -1, 0, 0, 0}, {2, holds, {}}}};
  const Snapshot merged = merged_of({here, there});
  ASSERT_EQ(merged.waits.size(), 3u);
  ASSERT_THAT(missing_in(merged, 1), ElementsAre(2));
  EXPECT_EQ(merged.waits[1].missing[0].behind, std::optional<std::size_t>(2));
  there.snapshot->queued[0].part = {2, 99, "client timeline 3"};
  EXPECT_EQ(merged_of({here, there}).waits[1].missing[0].behind, std::nullopt) << "no such wait";
  EXPECT_EQ(merged_of({here, there}).waits[1].missing[0].reason, "client timeline 3");
}

// Goal:   a node speaks for its own ranks alone.
TEST(Merge, DoesNotBelieveANodeAboutOthers) {
  NodePart here = first();
  NodePart there = second();
  add(here, {.arrived = {0}, .missing = {1}});
  add(there, {.arrived = {2, 3, 1}, .missing = {0}});
  there.snapshot->ranks[1] = there.snapshot->ranks[2];
  there.snapshot->ranks[1].process = RankState::Process::kDead;
  Snapshot merged = merged_of({here, there});
  EXPECT_THAT(missing_in(merged), ElementsAre(1));
  EXPECT_EQ(merged.ranks[1].process, RankState::Process::kRunning);
  there.snapshot->ranks[3].local = false;
  there.snapshot->waits[0].arrived.clear();
  merged = merged_of({here, there});
  EXPECT_EQ(merged.ranks[3].unknown, "its engine does not mention it");
  EXPECT_THAT(missing_in(merged), ElementsAre(1, 2, 3));
}

// Goal:   epochs keep operations of one number apart.
TEST(Merge, TellsEpochsApart) {
  NodePart here = first();
  NodePart there = second();
  add(here, {.arrived = {0, 1}, .epoch = 1});
  add(there, {.arrived = {2, 3}, .epoch = 2});
  const Report report = assess(merged_of({here, there}));
  EXPECT_EQ(report.diagnosis, Diagnosis::kMismatchPending);
  EXPECT_EQ(report.circle.size(), 2u);
}

}  // namespace
}  // namespace muster::blame
