// The tests of the client that say nothing where ranks are spread over two nodes, and why.
#pragma once

#include <string>
#include <string_view>

#include <gtest/gtest.h>

namespace muster::test {

inline constexpr const char* kMovesBytes = "between nodes bytes move, and units share on one node alone";
inline constexpr const char* kNamesRanks = "between nodes a verdict names nodes, and lanes for runs";
inline constexpr const char* kLooksInside =
    "it looks into the engine, handles, limits or samples of one node";
inline constexpr const char* kClearsOnce =
    "its first rank clears the memory of all, which two nodes have twice";
inline constexpr const char* kMadeByTest =
    "on two nodes the test makes the job, so it does not make way as one of its ranks does";
inline constexpr const char* kRunsByLane = "between nodes a run is a start on its lane, matched by tag";

struct OfOneNode {
  std::string_view test;
  const char* why;
};
inline constexpr OfOneNode kOfOneNode[] = {
    {"Buffers.MoveNothingWhereShardsLieInTheSharedResult", kMovesBytes},
    {"Buffers.SayWhoPutsABlockOfTheSharedResultElsewhere", kNamesRanks},
    {"Collectives.NamesThePairThatDiffers", kNamesRanks},
    {"Collectives.SaysWhoMeantSomethingElseAndWhere", kNamesRanks},
    {"FewGroupsInShortTime.SayWhatHasRunOutWhereOthersFreeNone", kLooksInside},
    {"Groups.AreFoundByTheirRanksAndNameAndReduceOnBothPaths", kLooksInside},
    {"Interrupt.EndsWhatWaitsInTheEngine", kRunsByLane},
    {"Interrupt.LeavesAPointToItsOperation", kRunsByLane},
    {"LaneOrder.IsToldOfARingInWhichAllReceiveFirst", kNamesRanks},
    {"LaneOrder.IsToldWhereAMessageStandsBehindASum", kNamesRanks},
    {"LaneOrder.IsToldWhereBothRanksReceiveFirst", kNamesRanks},
    {"LaneOrder.IsToldWhereBothRanksSendFirst", kNamesRanks},
    {"LastFailure.NamesLaneAndPointOfWhatWasStarted", kNamesRanks},
    {"LastFailure.NamesTheRankThatIsMissingAtTheDeadlineAndWhoAborted", kNamesRanks},
    {"LastFailure.NamesTheRankThatWasKilled", kNamesRanks},
    {"LastFailure.NamesWhoHoldsOtherBytesAndNobodyWhereMembersDisagree", kNamesRanks},
    {"LastFailure.SaysHowARankEndedThatDidNotClose", kNamesRanks},
    {"MeshDeadlines.AreThoseOfAllGroupsOfTheMesh", kNamesRanks},
    {"Open.RefusesAnotherMeshThanTheJobs", kMadeByTest},
    {"Open.RefusesImpossibleDegreesInTheSameWordsToEachRank", kLooksInside},
    {"Pieces.MustBeTheSameAtAllMembers", kNamesRanks},
    {"Recount.IsComparedAsEver", kNamesRanks},
    {"Recount.KeepsTheTag", kRunsByLane},
    {"Recount.ReachesIntoAResultThatAllShare", kClearsOnce},
    {"Run.EndsAtItsOwnDeadline", kNamesRanks},
    {"Run.EndsWhereTheEngineDoesNotAnswer", kLooksInside},
    {"Run.FindsADifferenceOnEveryMember", kNamesRanks},
    {"Run.FindsADifferenceThatDecidesThePath", kNamesRanks},
    {"Run.HearsOfTheLossThatMemoryWentWith", kLooksInside},
    {"Run.NamesExactlyTheMissingAtTheDeadline", kNamesRanks},
    {"Run.RunsAgainAfterADisagreement", kNamesRanks},
    {"Run.SendsAndReceives", kRunsByLane},
    {"Samples.LeaveARefusedRunForAnotherTry", kLooksInside},
    {"Session.BlamesTheMissingRankAtTheDeadline", kNamesRanks},
    {"Session.HasOneRecordingAtATimeWhichIsWhoseBeganIt", kLooksInside},
    {"Session.TellsBothSidesWhatTheyDisagreeOn", kNamesRanks},
    {"Tags.NameTheLanesOfOneOperation", kNamesRanks},
    {"Tags.OfAnExchangeHaveDtypesOfTheirOwn", kNamesRanks},
    {"Tags.SayWhereTheOtherEndStandsInItsLane", kNamesRanks},
    {"UnitRules.SayThatOneRankHasNoGradientOfAParameter", kNamesRanks},
    {"UnitSets.EndAStepWhenAllHaveReadWhatTheyShare", kMovesBytes},
};

// Why the present test is skipped on two nodes; nullptr: it runs.
inline const char* why_of_one_node() {
  const ::testing::TestInfo* const test = ::testing::UnitTest::GetInstance()->current_test_info();
  const std::string name = std::string(test->test_suite_name()) + "." + test->name();
  for (const OfOneNode& entry : kOfOneNode)
    if (entry.test == name) return entry.why;
  return nullptr;
}

}  // namespace muster::test
