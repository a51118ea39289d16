#include "daemon/supervisor/job_table.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kOwner = 1000;

control::JobSpec spec(const std::string& name, control::ClaimRule claim = control::ClaimRule::kOwner) {
  control::JobSpec job;
  job.name = name;
  job.world = 2;
  job.owner_uid = kOwner;
  job.claim = claim;
  return job;
}

Claimant claimant(std::int32_t rank, const std::string& token = "", std::uint32_t uid = kOwner) {
  return {uid, 77, rank, -1, token, ""};
}

// With places for so many jobs of the owner.
JobTable book_of(std::uint64_t jobs) {
  return JobTable(Shares({jobs, 0, jobs}, 0));
}

JobTable table_with(const control::JobSpec& job) {
  JobTable table = book_of(4);
  EXPECT_TRUE(table.create(job));
  return table;
}

TEST(JobTable, RefusesASecondJobOfTheSameName) {
  JobTable table = table_with(spec("train"));
  const auto again = table.create(spec("train"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kDuplicate);
  table.erase("train");
  EXPECT_TRUE(table.create(spec("train")));
}

TEST(JobTable, SaysWhoseJobHasTheNameAlready) {
  JobTable table = table_with(spec("train"));
  auto others = spec("train");
  others.owner_uid = kOwner + 1;
  const auto refused = table.create(others);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kDenied);
  EXPECT_NE(refused.error().message().find("belongs to user 1000"), std::string::npos)
      << refused.error().message();
}

// Goal:   a claimant who leaves before its engine was asked leaves rank and token as they were.
TEST(JobTable, AWithdrawnClaimCostsNothing) {
  JobTable table = table_with(spec("train", control::ClaimRule::kToken));
  ASSERT_TRUE(table.issue("train", Rank(1), "token").ok());
  ASSERT_TRUE(table.claim("train", claimant(1, "token")).ok());
  table.withdraw("train", Rank(1));
  EXPECT_TRUE(table.claim("train", claimant(1, "token")).ok());
  table.release("train", Rank(1));
  EXPECT_EQ(table.claim("train", claimant(1, "token")).code(), Code::kDenied) << "that one was used";
}

TEST(JobTable, SaysHowToComeByAToken) {
  JobTable table = table_with(spec("train", control::ClaimRule::kToken));
  const Status refused = table.claim("train", claimant(1, "wrong"));
  EXPECT_EQ(refused.code(), Code::kDenied);
  EXPECT_NE(refused.message().find("`muster token --job train --rank 1`"), std::string::npos)
      << refused.message();
}

TEST(JobTable, RefusesMoreJobsThanItsLimitAndNamesIt) {
  JobTable table = book_of(2);
  EXPECT_TRUE(table.create(spec("a")));
  EXPECT_TRUE(table.create(spec("b")));
  const auto third = table.create(spec("c"));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Code::kNoResource);
  EXPECT_THAT(third.error().message(), HasSubstr("user 1000 has 2 jobs, its share"));
  EXPECT_FALSE(table.place_is_coming(kOwner));
  table.ending("a");
  EXPECT_TRUE(table.place_is_coming(kOwner));
  table.erase("a");
  EXPECT_FALSE(table.place_is_coming(kOwner)) << "it is there";
  EXPECT_TRUE(table.create(spec("c")));
}

TEST(JobTable, KeepsPlacesForThoseWhoGovernAndForOtherUsers) {
  JobTable table(Shares({.all = 4, .reserved = 1, .of_one = 2}, 7));
  const auto of = [](const std::string& name, std::uint32_t uid) {
    control::JobSpec job = spec(name);
    job.owner_uid = uid;
    return job;
  };
  ASSERT_TRUE(table.create(of("a", 1000)));
  ASSERT_TRUE(table.adopt(of("b", 1000), {})) << "a predecessor's job counts too";
  EXPECT_THAT(table.create(of("c", 1000)).error().message(), HasSubstr("limits.jobs_per_user_max"));
  ASSERT_TRUE(table.create(of("c", 1001)));
  const Status refused = table.create(of("d", 1001)).error();
  EXPECT_EQ(refused.code(), Code::kNoResource);
  EXPECT_THAT(refused.message(), HasSubstr("1 of 4 places is reserved for root or user 7 (limits.jobs_max)"));
  table.ending("a");
  EXPECT_TRUE(table.place_is_coming(1000));
  EXPECT_TRUE(table.place_is_coming(1001));
  EXPECT_FALSE(table.place_is_coming(0)) << "there is one now";
  ASSERT_TRUE(table.create(of("d", 0)));
  EXPECT_THAT(table.create(of("e", 7)).error().message(), HasSubstr("there are 4 jobs, the limit"));
  EXPECT_TRUE(table.place_is_coming(7));
  table.erase("a");
  table.erase("a");
  EXPECT_FALSE(table.place_is_coming(1001)) << "it is there";
  EXPECT_TRUE(table.create(of("e", 1001)));
  EXPECT_FALSE(table.place_is_coming(1000)) << "nothing ends";
}

TEST(JobTable, CountsSessionsForWhoHasThem) {
  JobTable table = table_with(spec("train"));
  const auto sessions = [&table] {
    Shares counted({.all = 8, .reserved = 1, .of_one = 3}, 7);
    table.count_sessions(counted);
    return counted.by_user();
  };
  using Counted = std::map<std::uint32_t, std::uint64_t>;
  EXPECT_EQ(sessions(), Counted());
  EXPECT_TRUE(table.claim("train", claimant(0, "", 0)).ok());
  EXPECT_TRUE(table.claim("train", claimant(1)).ok());
  EXPECT_EQ(sessions(), (Counted{{0, 1}, {kOwner, 1}})) << "root in a job of its owner";
  table.withdraw("train", Rank(0));
  EXPECT_EQ(sessions(), (Counted{{kOwner, 1}}));
  EXPECT_TRUE(table.reconcile("train", {{true, 78, 1}, {false, 0, 1}}).ok());
  EXPECT_EQ(sessions(), (Counted{{kOwner, 1}})) << "the engine says who is there";
  table.release("train", Rank(0));
  EXPECT_EQ(sessions(), Counted());
  EXPECT_TRUE(table.claim("train", claimant(0)).ok());
  table.erase("train");
  EXPECT_EQ(sessions(), Counted());
}

TEST(JobTable, RefusesNamesThatCouldNotBeWrittenDown) {
  JobTable table = book_of(2);
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a/b"), std::string(64, 'x')})
    EXPECT_EQ(table.create(spec(name)).error().code(), Code::kBadArgument) << name;
  EXPECT_TRUE(table.create(spec(std::string(63, 'x'))));
}

TEST(JobTable, SeatsEachRankOnce) {
  JobTable table = table_with(spec("train"));
  EXPECT_TRUE(table.claim("train", claimant(0)).ok());
  const Status second = table.claim("train", claimant(0));
  EXPECT_EQ(second.code(), Code::kDuplicate);
  EXPECT_NE(second.message().find("77"), std::string::npos) << "the holder is named";
  EXPECT_EQ(table.find("train")->held(), 1u);
  table.release("train", Rank(0));
  EXPECT_TRUE(table.claim("train", claimant(0)).ok());
}

TEST(JobTable, LetsTheOwnerAndRootIn) {
  JobTable table = table_with(spec("train"));
  EXPECT_EQ(table.claim("train", claimant(0, "", 1001)).code(), Code::kDenied);
  EXPECT_EQ(table.find("train")->held(), 0u);
  EXPECT_TRUE(table.claim("train", claimant(0, "", 0)).ok());
  EXPECT_TRUE(JobTable::may_act(*table.find("train"), kOwner).ok());
  EXPECT_EQ(JobTable::may_act(*table.find("train"), 1001).code(), Code::kDenied);
}

TEST(JobTable, ChecksRankAndWorld) {
  JobTable table = table_with(spec("train"));
  EXPECT_EQ(table.claim("train", claimant(2)).code(), Code::kBadArgument);
  EXPECT_EQ(table.claim("train", claimant(-1)).code(), Code::kBadArgument);
  Claimant wrong_world = claimant(0);
  wrong_world.world_size = 3;
  EXPECT_EQ(table.claim("train", wrong_world).code(), Code::kBadArgument);
  wrong_world.world_size = 2;
  EXPECT_TRUE(table.claim("train", wrong_world).ok());
  EXPECT_EQ(table.claim("other", claimant(0)).code(), Code::kNotFound);
}

// Goal:   whoever means other groups than the job has is not let in.
TEST(JobTable, ChecksTheMeshOfWhoNamesOne) {
  control::JobSpec job = spec("train");
  job.mesh = "tp=2";
  JobTable table = table_with(job);
  Claimant other = claimant(0);
  other.mesh = "dp_shard=2";
  const Status refused = table.claim("train", other);
  EXPECT_EQ(refused.code(), Code::kConfig);
  EXPECT_THAT(refused.message(), HasSubstr("rank 0 asks for the mesh"));
  EXPECT_THAT(refused.message(), HasSubstr("muster end --job train"));
  other.mesh = "tp=2,tp=2";
  EXPECT_EQ(table.claim("train", other).code(), Code::kConfig) << "no mesh at all";
  other.mesh = "dp_shard=-1,tp=2";
  EXPECT_TRUE(table.claim("train", other).ok()) << "the same in other words";
  EXPECT_TRUE(table.claim("train", claimant(1)).ok()) << "who names none takes the job's";
}

TEST(JobTable, ATokenOpensItsRankOnce) {
  JobTable table = table_with(spec("train", control::ClaimRule::kToken));
  ASSERT_TRUE(table.issue("train", Rank(0), "first").ok());
  EXPECT_EQ(table.claim("train", claimant(0)).code(), Code::kDenied);
  EXPECT_EQ(table.claim("train", claimant(0, "wrong")).code(), Code::kDenied);
  EXPECT_EQ(table.claim("train", claimant(1, "first")).code(), Code::kDenied) << "another rank's token";
  EXPECT_TRUE(table.claim("train", claimant(0, "first")).ok()) << "wrong attempts do not spend it";
  table.release("train", Rank(0));
  EXPECT_EQ(table.claim("train", claimant(0, "first")).code(), Code::kDenied);
}

TEST(JobTable, ATokenIsNoPassportForOtherUsers) {
  JobTable table = table_with(spec("train", control::ClaimRule::kToken));
  ASSERT_TRUE(table.issue("train", Rank(0), "secret").ok());
  EXPECT_EQ(table.claim("train", claimant(0, "secret", 1001)).code(), Code::kDenied);
}

TEST(JobTable, AFreshTokenVoidsTheFormer) {
  JobTable table = table_with(spec("train", control::ClaimRule::kToken));
  ASSERT_TRUE(table.issue("train", Rank(0), "former").ok());
  ASSERT_TRUE(table.issue("train", Rank(0), "fresh").ok());
  EXPECT_EQ(table.claim("train", claimant(0, "former")).code(), Code::kDenied);
  EXPECT_TRUE(table.claim("train", claimant(0, "fresh")).ok());
}

// A random source that fails gives an empty text, which must not become a key that everybody has.
TEST(JobTable, AnEmptyTokenOpensNothing) {
  JobTable table = table_with(spec("train", control::ClaimRule::kToken));
  ASSERT_TRUE(table.issue("train", Rank(0), "").ok());
  EXPECT_EQ(table.claim("train", claimant(0, "")).code(), Code::kDenied);
}

TEST(JobTable, IssuesForRanksThatExist) {
  JobTable table = table_with(spec("train", control::ClaimRule::kToken));
  EXPECT_EQ(table.issue("train", Rank(2), "x").code(), Code::kBadArgument);
  EXPECT_EQ(table.issue("other", Rank(0), "x").code(), Code::kNotFound);
}

TEST(JobTable, AnEndingJobTakesNobodyIn) {
  JobTable table = table_with(spec("train"));
  EXPECT_EQ(table.find("train")->state, JobState::kStarting);
  table.ready("train");
  EXPECT_EQ(table.find("train")->state, JobState::kReady);
  table.ending("train");
  EXPECT_EQ(table.claim("train", claimant(0)).code(), Code::kJobEnded);
  table.ready("train");
  EXPECT_EQ(table.find("train")->state, JobState::kEnding) << "there is no way back";
}

TEST(JobTable, AReleaseThatComesTooLateChangesNothing) {
  JobTable table = table_with(spec("train"));
  table.release("train", Rank(9));
  table.release("gone", Rank(0));
  EXPECT_EQ(table.find("train")->held(), 0u);
}

// ---- a predecessor's jobs

JobTable adopted(const std::vector<IssuedToken>& tokens = {}) {
  JobTable table = book_of(0);  // whatever the limits now are
  EXPECT_TRUE(table.adopt(spec("train", control::ClaimRule::kToken), tokens));
  return table;
}

TEST(JobTable, LetsNobodyClaimBeforeTheEngineHasSpoken) {
  JobTable table = adopted({{1, 0, "token"}});
  EXPECT_EQ(table.claim("train", claimant(1, "token")).code(), Code::kPending);
  EXPECT_TRUE(table.reconcile("train", {{}, {}}).ok());
  EXPECT_EQ(table.find("train")->state, JobState::kReady);
  EXPECT_TRUE(table.claim("train", claimant(1, "token")).ok());
}

TEST(JobTable, BelievesTheEngineWhoHoldsARank) {
  JobTable table = adopted();
  table.release("train", Rank(0));  // what the engine said before it was asked
  EXPECT_TRUE(table.reconcile("train", {{true, 4711, 3}, {false, 4712, 1}}).ok());
  const Job& job = *table.find("train");
  EXPECT_EQ(job.held(), 1u);
  EXPECT_EQ(job.claims[Rank(0)].pid, 4711);
  EXPECT_EQ(job.claims[Rank(1)].pid, 0);
  EXPECT_EQ(table.reconcile("train", {{}}).code(), Code::kProtocol) << "of another length";
}

// Goal:   whoever attached while no supervisor looked has used the token, also if gone again.
TEST(JobTable, VoidsTokensThatWereUsedUnseen) {
  JobTable table = adopted({{0, 2, "zero"}, {1, 2, "one"}});
  EXPECT_TRUE(table.reconcile("train", {{false, 0, 3}, {false, 0, 2}}).ok());
  EXPECT_EQ(table.claim("train", claimant(0, "zero")).code(), Code::kDenied);
  EXPECT_TRUE(table.claim("train", claimant(1, "one")).ok());
}

TEST(JobTable, KeepsATokenForItsSuccessorUntilTheEngineHasTheRank) {
  JobTable table = table_with(spec("train", control::ClaimRule::kToken));
  EXPECT_TRUE(table.issue("train", Rank(0), "token").ok());
  EXPECT_TRUE(table.claim("train", claimant(0, "token")).ok());
  const Claim& claim = table.find("train")->claims[Rank(0)];
  EXPECT_EQ(claim.token, "token") << "a successor may have to let the claimant in";
  EXPECT_EQ(table.claim("train", claimant(0, "token")).code(), Code::kDenied) << "this one may not, twice";
  EXPECT_FALSE(table.attached("train", Rank(0), 1)) << "nothing that a successor must know";
  EXPECT_TRUE(claim.token.empty());
  table.release("train", Rank(0));
  EXPECT_EQ(table.claim("train", claimant(0, "token")).code(), Code::kDenied);
  EXPECT_TRUE(table.issue("train", Rank(0), "next").ok());
  EXPECT_EQ(claim.token_at, 1u);
}

TEST(JobTable, KeepsATokenThatWasIssuedWhileAnotherIsUsed) {
  JobTable table = table_with(spec("train", control::ClaimRule::kToken));
  EXPECT_TRUE(table.issue("train", Rank(0), "first").ok());
  EXPECT_TRUE(table.claim("train", claimant(0, "first")).ok());
  EXPECT_TRUE(table.issue("train", Rank(0), "second").ok());
  EXPECT_TRUE(table.attached("train", Rank(0), 1)) << "a successor must know from when it counts";
  EXPECT_EQ(table.find("train")->claims[Rank(0)].token_at, 1u);
  table.release("train", Rank(0));
  EXPECT_TRUE(table.claim("train", claimant(0, "second")).ok());
}

// An adopted job whose engine has made nothing yet starts like any other; a rank that comes meanwhile has a
// claim.
TEST(JobTable, LetsAnAdoptedJobStart) {
  JobTable table = adopted({{1, 0, "token"}});
  table.starting("train");
  EXPECT_TRUE(table.claim("train", claimant(1, "token")).ok());
  table.ready("train");
  EXPECT_EQ(table.find("train")->state, JobState::kReady);
  table.starting("train");
  EXPECT_EQ(table.find("train")->state, JobState::kReady) << "only what is being adopted";
}

TEST(JobTable, AdoptsAJobThatIsEnding) {
  JobTable table = adopted();
  table.ending("train");
  EXPECT_TRUE(table.reconcile("train", {{}, {}}).ok());
  EXPECT_EQ(table.find("train")->state, JobState::kEnding);
  EXPECT_FALSE(table.adopt(spec("train"), {}));
}

}  // namespace
}  // namespace muster::supervisor
