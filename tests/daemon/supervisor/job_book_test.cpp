#include "daemon/supervisor/job_book.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using ::testing::HasSubstr;

constexpr std::uint32_t kOwner = 1000;

control::JobSpec spec(const std::string& name, control::Claim claim = control::Claim::kOwner) {
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
JobBook book_of(std::uint64_t jobs) {
  return JobBook(Shares({jobs, 0, jobs}, 0));
}

JobBook book_with(const control::JobSpec& job) {
  JobBook book = book_of(4);
  EXPECT_TRUE(book.create(job));
  return book;
}

TEST(JobBook, RefusesASecondJobOfTheSameName) {
  JobBook book = book_with(spec("train"));
  const auto again = book.create(spec("train"));
  ASSERT_FALSE(again);
  EXPECT_EQ(again.error().code(), Code::kDuplicate);
  book.erase("train");
  EXPECT_TRUE(book.create(spec("train")));
}

TEST(JobBook, SaysWhoseJobHasTheNameAlready) {
  JobBook book = book_with(spec("train"));
  auto others = spec("train");
  others.owner_uid = kOwner + 1;
  const auto refused = book.create(others);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::kDenied);
  EXPECT_NE(refused.error().message().find("belongs to user 1000"), std::string::npos)
      << refused.error().message();
}

// Goal:   who leaves before its engine was asked leaves seat and token as they were.
TEST(JobBook, AWithdrawnClaimCostsNothing) {
  JobBook book = book_with(spec("train", control::Claim::kToken));
  ASSERT_TRUE(book.issue("train", Rank(1), "token").ok());
  ASSERT_TRUE(book.claim("train", claimant(1, "token")).ok());
  book.withdraw("train", Rank(1));
  EXPECT_TRUE(book.claim("train", claimant(1, "token")).ok());
  book.release("train", Rank(1));
  EXPECT_EQ(book.claim("train", claimant(1, "token")).code(), Code::kDenied) << "that one was used";
}

TEST(JobBook, SaysHowToComeByAToken) {
  JobBook book = book_with(spec("train", control::Claim::kToken));
  const Status refused = book.claim("train", claimant(1, "wrong"));
  EXPECT_EQ(refused.code(), Code::kDenied);
  EXPECT_NE(refused.message().find("`muster token --job train --rank 1`"), std::string::npos)
      << refused.message();
}

TEST(JobBook, RefusesMoreJobsThanItsLimitAndNamesIt) {
  JobBook book = book_of(2);
  EXPECT_TRUE(book.create(spec("a")));
  EXPECT_TRUE(book.create(spec("b")));
  const auto third = book.create(spec("c"));
  ASSERT_FALSE(third);
  EXPECT_EQ(third.error().code(), Code::kNoResource);
  EXPECT_THAT(third.error().message(), HasSubstr("user 1000 has 2 jobs, its share"));
  EXPECT_FALSE(book.place_is_coming(kOwner));
  book.ending("a");
  EXPECT_TRUE(book.place_is_coming(kOwner));
  book.erase("a");
  EXPECT_FALSE(book.place_is_coming(kOwner)) << "it is there";
  EXPECT_TRUE(book.create(spec("c")));
}

TEST(JobBook, KeepsPlacesForThoseWhoGovernAndForOtherUsers) {
  JobBook book(Shares({.all = 4, .reserved = 1, .of_one = 2}, 7));
  const auto of = [](const std::string& name, std::uint32_t uid) {
    control::JobSpec job = spec(name);
    job.owner_uid = uid;
    return job;
  };
  ASSERT_TRUE(book.create(of("a", 1000)));
  ASSERT_TRUE(book.adopt(of("b", 1000), {})) << "a predecessor's job counts too";
  EXPECT_THAT(book.create(of("c", 1000)).error().message(), HasSubstr("limits.jobs_per_user_max"));
  ASSERT_TRUE(book.create(of("c", 1001)));
  const Status refused = book.create(of("d", 1001)).error();
  EXPECT_EQ(refused.code(), Code::kNoResource);
  EXPECT_THAT(refused.message(), HasSubstr("1 of 4 places is reserved for root or user 7 (limits.jobs_max)"));
  book.ending("a");
  EXPECT_TRUE(book.place_is_coming(1000));
  EXPECT_TRUE(book.place_is_coming(1001));
  EXPECT_FALSE(book.place_is_coming(0)) << "there is one now";
  ASSERT_TRUE(book.create(of("d", 0)));
  EXPECT_THAT(book.create(of("e", 7)).error().message(), HasSubstr("there are 4 jobs, the limit"));
  EXPECT_TRUE(book.place_is_coming(7));
  book.erase("a");
  book.erase("a");
  EXPECT_FALSE(book.place_is_coming(1001)) << "it is there";
  EXPECT_TRUE(book.create(of("e", 1001)));
  EXPECT_FALSE(book.place_is_coming(1000)) << "nothing ends";
}

TEST(JobBook, CountsSessionsForWhoHasThem) {
  JobBook book = book_with(spec("train"));
  const auto sessions = [&book] {
    Shares counted({.all = 8, .reserved = 1, .of_one = 3}, 7);
    book.count_sessions(counted);
    return counted.by_user();
  };
  using Counted = std::map<std::uint32_t, std::uint64_t>;
  EXPECT_EQ(sessions(), Counted());
  EXPECT_TRUE(book.claim("train", claimant(0, "", 0)).ok());
  EXPECT_TRUE(book.claim("train", claimant(1)).ok());
  EXPECT_EQ(sessions(), (Counted{{0, 1}, {kOwner, 1}})) << "root in a job of its owner";
  book.withdraw("train", Rank(0));
  EXPECT_EQ(sessions(), (Counted{{kOwner, 1}}));
  EXPECT_TRUE(book.reconcile("train", {{true, 78, 1}, {false, 0, 1}}).ok());
  EXPECT_EQ(sessions(), (Counted{{kOwner, 1}})) << "the engine says who is there";
  book.release("train", Rank(0));
  EXPECT_EQ(sessions(), Counted());
  EXPECT_TRUE(book.claim("train", claimant(0)).ok());
  book.erase("train");
  EXPECT_EQ(sessions(), Counted());
}

TEST(JobBook, RefusesNamesThatCouldNotBeWrittenDown) {
  JobBook book = book_of(2);
  for (const std::string& name :
       {std::string(), std::string("a b"), std::string("a/b"), std::string(64, 'x')})
    EXPECT_EQ(book.create(spec(name)).error().code(), Code::kBadArgument) << name;
  EXPECT_TRUE(book.create(spec(std::string(63, 'x'))));
}

TEST(JobBook, SeatsEachRankOnce) {
  JobBook book = book_with(spec("train"));
  EXPECT_TRUE(book.claim("train", claimant(0)).ok());
  const Status second = book.claim("train", claimant(0));
  EXPECT_EQ(second.code(), Code::kDuplicate);
  EXPECT_NE(second.message().find("77"), std::string::npos) << "the holder is named";
  EXPECT_EQ(book.find("train")->held(), 1u);
  book.release("train", Rank(0));
  EXPECT_TRUE(book.claim("train", claimant(0)).ok());
}

TEST(JobBook, LetsTheOwnerAndRootIn) {
  JobBook book = book_with(spec("train"));
  EXPECT_EQ(book.claim("train", claimant(0, "", 1001)).code(), Code::kDenied);
  EXPECT_EQ(book.find("train")->held(), 0u);
  EXPECT_TRUE(book.claim("train", claimant(0, "", 0)).ok());
  EXPECT_TRUE(JobBook::may_act(*book.find("train"), kOwner).ok());
  EXPECT_EQ(JobBook::may_act(*book.find("train"), 1001).code(), Code::kDenied);
}

TEST(JobBook, ChecksRankAndWorld) {
  JobBook book = book_with(spec("train"));
  EXPECT_EQ(book.claim("train", claimant(2)).code(), Code::kBadArgument);
  EXPECT_EQ(book.claim("train", claimant(-1)).code(), Code::kBadArgument);
  Claimant wrong_world = claimant(0);
  wrong_world.world_size = 3;
  EXPECT_EQ(book.claim("train", wrong_world).code(), Code::kBadArgument);
  wrong_world.world_size = 2;
  EXPECT_TRUE(book.claim("train", wrong_world).ok());
  EXPECT_EQ(book.claim("other", claimant(0)).code(), Code::kNotFound);
}

// Goal:   whoever means other groups than the job has is not let in.
TEST(JobBook, ChecksTheMeshOfWhoNamesOne) {
  control::JobSpec job = spec("train");
  job.mesh = "tp=2";
  JobBook book = book_with(job);
  Claimant other = claimant(0);
  other.mesh = "dp_shard=2";
  const Status refused = book.claim("train", other);
  EXPECT_EQ(refused.code(), Code::kConfig);
  EXPECT_THAT(refused.message(), HasSubstr("rank 0 asks for the mesh"));
  EXPECT_THAT(refused.message(), HasSubstr("muster end --job train"));
  other.mesh = "tp=2,tp=2";
  EXPECT_EQ(book.claim("train", other).code(), Code::kConfig) << "no mesh at all";
  other.mesh = "dp_shard=-1,tp=2";
  EXPECT_TRUE(book.claim("train", other).ok()) << "the same in other words";
  EXPECT_TRUE(book.claim("train", claimant(1)).ok()) << "who names none takes the job's";
}

TEST(JobBook, ATokenOpensItsRankOnce) {
  JobBook book = book_with(spec("train", control::Claim::kToken));
  ASSERT_TRUE(book.issue("train", Rank(0), "first").ok());
  EXPECT_EQ(book.claim("train", claimant(0)).code(), Code::kDenied);
  EXPECT_EQ(book.claim("train", claimant(0, "wrong")).code(), Code::kDenied);
  EXPECT_EQ(book.claim("train", claimant(1, "first")).code(), Code::kDenied) << "another rank's token";
  EXPECT_TRUE(book.claim("train", claimant(0, "first")).ok()) << "wrong attempts do not spend it";
  book.release("train", Rank(0));
  EXPECT_EQ(book.claim("train", claimant(0, "first")).code(), Code::kDenied);
}

TEST(JobBook, ATokenIsNoPassportForOtherUsers) {
  JobBook book = book_with(spec("train", control::Claim::kToken));
  ASSERT_TRUE(book.issue("train", Rank(0), "secret").ok());
  EXPECT_EQ(book.claim("train", claimant(0, "secret", 1001)).code(), Code::kDenied);
}

TEST(JobBook, AFreshTokenVoidsTheFormer) {
  JobBook book = book_with(spec("train", control::Claim::kToken));
  ASSERT_TRUE(book.issue("train", Rank(0), "former").ok());
  ASSERT_TRUE(book.issue("train", Rank(0), "fresh").ok());
  EXPECT_EQ(book.claim("train", claimant(0, "former")).code(), Code::kDenied);
  EXPECT_TRUE(book.claim("train", claimant(0, "fresh")).ok());
}

// A random source that fails gives an empty text, which must not become a key that everybody has.
TEST(JobBook, AnEmptyTokenOpensNothing) {
  JobBook book = book_with(spec("train", control::Claim::kToken));
  ASSERT_TRUE(book.issue("train", Rank(0), "").ok());
  EXPECT_EQ(book.claim("train", claimant(0, "")).code(), Code::kDenied);
}

TEST(JobBook, IssuesForRanksThatExist) {
  JobBook book = book_with(spec("train", control::Claim::kToken));
  EXPECT_EQ(book.issue("train", Rank(2), "x").code(), Code::kBadArgument);
  EXPECT_EQ(book.issue("other", Rank(0), "x").code(), Code::kNotFound);
}

TEST(JobBook, AnEndingJobTakesNobodyIn) {
  JobBook book = book_with(spec("train"));
  EXPECT_EQ(book.find("train")->state, JobState::kStarting);
  book.ready("train");
  EXPECT_EQ(book.find("train")->state, JobState::kReady);
  book.ending("train");
  EXPECT_EQ(book.claim("train", claimant(0)).code(), Code::kJobEnded);
  book.ready("train");
  EXPECT_EQ(book.find("train")->state, JobState::kEnding) << "there is no way back";
}

TEST(JobBook, AReleaseThatComesTooLateChangesNothing) {
  JobBook book = book_with(spec("train"));
  book.release("train", Rank(9));
  book.release("gone", Rank(0));
  EXPECT_EQ(book.find("train")->held(), 0u);
}

// ---- a predecessor's jobs

JobBook adopted(const std::vector<IssuedToken>& tokens = {}) {
  JobBook book = book_of(0);  // whatever the limits now are
  EXPECT_TRUE(book.adopt(spec("train", control::Claim::kToken), tokens));
  return book;
}

TEST(JobBook, LetsNobodyClaimBeforeTheEngineHasSpoken) {
  JobBook book = adopted({{1, 0, "token"}});
  EXPECT_EQ(book.claim("train", claimant(1, "token")).code(), Code::kPending);
  EXPECT_TRUE(book.reconcile("train", {{}, {}}).ok());
  EXPECT_EQ(book.find("train")->state, JobState::kReady);
  EXPECT_TRUE(book.claim("train", claimant(1, "token")).ok());
}

TEST(JobBook, BelievesTheEngineWhoHoldsARank) {
  JobBook book = adopted();
  book.release("train", Rank(0));  // what the engine said before it was asked
  EXPECT_TRUE(book.reconcile("train", {{true, 4711, 3}, {false, 4712, 1}}).ok());
  const Job& job = *book.find("train");
  EXPECT_EQ(job.held(), 1u);
  EXPECT_EQ(job.seats[0].pid, 4711);
  EXPECT_EQ(job.seats[1].pid, 0);
  EXPECT_EQ(book.reconcile("train", {{}}).code(), Code::kProtocol) << "of another length";
}

// Goal:   whoever attached while no supervisor looked has used the token, also if gone again.
TEST(JobBook, VoidsTokensThatWereUsedUnseen) {
  JobBook book = adopted({{0, 2, "zero"}, {1, 2, "one"}});
  EXPECT_TRUE(book.reconcile("train", {{false, 0, 3}, {false, 0, 2}}).ok());
  EXPECT_EQ(book.claim("train", claimant(0, "zero")).code(), Code::kDenied);
  EXPECT_TRUE(book.claim("train", claimant(1, "one")).ok());
}

TEST(JobBook, KeepsATokenForItsSuccessorUntilTheEngineHasTheRank) {
  JobBook book = book_with(spec("train", control::Claim::kToken));
  EXPECT_TRUE(book.issue("train", Rank(0), "token").ok());
  EXPECT_TRUE(book.claim("train", claimant(0, "token")).ok());
  const Seat& seat = book.find("train")->seats[0];
  EXPECT_EQ(seat.token, "token") << "a successor may have to let the claimant in";
  EXPECT_EQ(book.claim("train", claimant(0, "token")).code(), Code::kDenied) << "this one may not, twice";
  EXPECT_FALSE(book.attached("train", Rank(0), 1)) << "nothing that a successor must know";
  EXPECT_TRUE(seat.token.empty());
  book.release("train", Rank(0));
  EXPECT_EQ(book.claim("train", claimant(0, "token")).code(), Code::kDenied);
  EXPECT_TRUE(book.issue("train", Rank(0), "next").ok());
  EXPECT_EQ(seat.token_at, 1u);
}

TEST(JobBook, KeepsATokenThatWasIssuedWhileAnotherIsUsed) {
  JobBook book = book_with(spec("train", control::Claim::kToken));
  EXPECT_TRUE(book.issue("train", Rank(0), "first").ok());
  EXPECT_TRUE(book.claim("train", claimant(0, "first")).ok());
  EXPECT_TRUE(book.issue("train", Rank(0), "second").ok());
  EXPECT_TRUE(book.attached("train", Rank(0), 1)) << "a successor must know from when it counts";
  EXPECT_EQ(book.find("train")->seats[0].token_at, 1u);
  book.release("train", Rank(0));
  EXPECT_TRUE(book.claim("train", claimant(0, "second")).ok());
}

// An adopted job whose engine has made nothing yet starts like any other; who comes meanwhile has a seat.
TEST(JobBook, LetsAnAdoptedJobStart) {
  JobBook book = adopted({{1, 0, "token"}});
  book.starting("train");
  EXPECT_TRUE(book.claim("train", claimant(1, "token")).ok());
  book.ready("train");
  EXPECT_EQ(book.find("train")->state, JobState::kReady);
  book.starting("train");
  EXPECT_EQ(book.find("train")->state, JobState::kReady) << "only what is being adopted";
}

TEST(JobBook, AdoptsAJobThatIsEnding) {
  JobBook book = adopted();
  book.ending("train");
  EXPECT_TRUE(book.reconcile("train", {{}, {}}).ok());
  EXPECT_EQ(book.find("train")->state, JobState::kEnding);
  EXPECT_FALSE(book.adopt(spec("train"), {}));
}

}  // namespace
}  // namespace muster::supervisor
