#include "daemon/supervisor/jobs/job_table.hpp"

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
  job.owner = kOwner;
  job.claim = claim;
  return job;
}

JobTable::Claimant claimant(std::int32_t rank, const std::string& token = "", std::uint32_t uid = kOwner) {
  return {{uid, uid == 0}, 77, rank, -1, token, ""};
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

// A user of that number in a container.
control::Identity foreign(std::uint32_t uid, std::uint64_t container) {
  control::Identity who(uid);
  who.pid_namespace = container;
  who.user_namespace = container + 1;
  who.account = control::Account(0, container);
  return who;
}

control::JobSpec job_of(const std::string& name, const control::Identity& owner) {
  control::JobSpec job = spec(name);
  job.owner = owner;
  job.scope = control::scope_of(owner, 0);
  return job;
}

// Goal:   a name belongs to who has given it: nobody's job is refused because another has one of that name.
TEST(JobTable, KeepsJobsOfOneNameApart) {
  JobTable table(Shares({16, 0, 4}, 0));
  const control::Identity first = foreign(0, 4711), second = foreign(0, 4811);
  for (const control::Identity& owner : {control::Identity(0), control::Identity(1000), first, second})
    ASSERT_TRUE(table.create(job_of("train", owner)));
  EXPECT_EQ(table.create(job_of("train", second)).error().code(), Code::kDuplicate);
  EXPECT_EQ(table.own_id("train", {1000, false}), "train@1000");
  EXPECT_EQ(*table.id_of("train", {1000, false}), "train@1000");
  EXPECT_EQ(*table.id_of("train", {first, false}), "train@0.4711-4712");
  EXPECT_EQ(*table.id_of("train", {0, true}), "train") << "the daemon's own user";
  EXPECT_EQ(*table.id_of("train@1000", {0, true}), "train@1000");
  const Job& job = *table.find("train@0.4711-4712");
  EXPECT_TRUE(may_act(job, {first, false}).ok());
  EXPECT_TRUE(may_act(job, {0, true}).ok());
  EXPECT_EQ(may_act(job, {0, false}).code(), Code::kDenied) << "root, but not where he governs";
  const Status denied = may_act(job, {second, false});
  EXPECT_THAT(denied.message(),
              HasSubstr("belongs to user 0 of container 4711, not to user 0 of container 4811"));
  EXPECT_EQ(table.name_for(job, {first, false}), "train");
  EXPECT_EQ(table.name_for(job, {0, true}), "train@0.4711-4712");
}

// Goal:   a job that has a key belongs to the clients that show it, and to none that knows its name alone.
TEST(JobTable, KnowsAJobByItsKey) {
  JobTable table(Shares({16, 0, 4}, 0));
  const std::string key(control::kKeyDigestChars, 'a'), wrong(control::kKeyDigestChars, 'b');
  control::JobSpec spec = job_of("train", foreign(0, 4711));
  spec.scope = control::scope_of({spec.owner, false, key}, 0);
  ASSERT_TRUE(table.create(spec));
  const Job& job = *table.find("train@key." + key);
  const control::Actor restarted(foreign(0, 4811), false, key), guesses(foreign(0, 4811), false, wrong);
  const control::Actor maker(spec.owner), stranger(foreign(0, 4811));
  EXPECT_EQ(table.own_id("train", restarted), job.spec.id());
  EXPECT_EQ(table.name_for(job, restarted), "train");
  EXPECT_EQ(table.name_for(job, maker), job.spec.id());
  for (const control::Actor& own : {restarted, maker}) {
    EXPECT_TRUE(is_own(job, own));
    EXPECT_TRUE(may_act(job, own).ok());
    EXPECT_EQ(*table.id_of("train", own), job.spec.id());
  }
  for (const control::Actor& other : {guesses, stranger}) {
    EXPECT_FALSE(is_own(job, other));
    EXPECT_EQ(may_act(job, other).code(), Code::kDenied);
    EXPECT_NE(*table.id_of("train", other), job.spec.id());
  }
  EXPECT_NE(table.own_id("train", maker), job.spec.id()) << "without the key he makes another";
}

// Goal:   a batch job's jobs are those of its ranks, also of those that have left, and nobody else's.
TEST(JobTable, FindsTheJobsOfABatchJob) {
  JobTable table(Shares({16, 0, 4}, 0));
  const auto with_rank = [&](const std::string& name, std::uint32_t uid, const char* slurm) {
    ASSERT_TRUE(table.create(job_of(name, uid)));
    const JobTable::Claimant rank = claimant(0, "", uid);
    RankOrigin origin;
    origin.said = origin_said(slurm);
    const std::string id = table.own_id(name, rank.actor);
    table.ready(id);
    ASSERT_TRUE(table.claim(id, rank).ok());
    EXPECT_TRUE(table.came_from(id, Rank(0), origin));
    EXPECT_FALSE(table.came_from(id, Rank(0), origin)) << "it is no news";
  };
  with_rank("a", 1000, "77.0");
  with_rank("b", 1000, "78.0");
  with_rank("c", 1000, "77.batch");
  with_rank("d", 1001, "77.0");
  table.release("c@1000", Rank(0));
  EXPECT_THAT(jobs_of_slurm(table, "77", 1000), ::testing::ElementsAre("a@1000", "c@1000"));
  EXPECT_THAT(jobs_of_slurm(table, "77", {0, true}), ::testing::ElementsAre("a@1000", "c@1000", "d@1001"));
  EXPECT_THAT(jobs_of_slurm(table, "7", {0, true}), ::testing::IsEmpty());
}

// Goal:   a governor may use a name that only one job has, and gets all ids where several jobs have it.
TEST(JobTable, FindsAnothersJobForWhoGoverns) {
  JobTable table(Shares({16, 0, 4}, 0));
  ASSERT_TRUE(table.create(job_of("one", 1000)));
  ASSERT_TRUE(table.create(job_of("two", 1000)));
  ASSERT_TRUE(table.create(job_of("two", 1001)));
  EXPECT_EQ(*table.id_of("one", {0, true}), "one@1000");
  EXPECT_EQ(*table.id_of("one", {1001, false}), "one@1001") << "his own, which is not there";
  const auto both = table.id_of("two", {0, true});
  ASSERT_FALSE(both);
  EXPECT_THAT(both.error().message(), HasSubstr("several jobs are named two; say which: two@1000, two@1001"));
}

// Goal:   a container's root has an ordinary share, whatever namespaces he makes, and root has all the rest.
TEST(JobTable, GivesAContainersRootAnOrdinaryShare) {
  JobTable table(Shares({.all = 4, .reserved = 1, .of_one = 2}, 0));
  control::Identity root = foreign(0, 4711), nested = foreign(0, 4712);
  nested.account = root.account;  // in a namespace within that of the container
  ASSERT_TRUE(table.create(job_of("a", root)));
  ASSERT_TRUE(table.create(job_of("b", nested)));
  EXPECT_THAT(table.create(job_of("c", root)).error().message(),
              HasSubstr("container 4711 has 2 jobs, its share (limits.jobs_per_user_max)"));
  ASSERT_TRUE(table.create(job_of("a", foreign(0, 4811))));
  EXPECT_EQ(table.create(job_of("b", foreign(0, 4811))).error().code(), Code::kNoResource);
  EXPECT_TRUE(table.create(job_of("mine", 0)));
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

// Goal:   each command that a refusal names reaches this daemon, which is not the usual one.
TEST(JobTable, NamesItsDaemonInEachCommandThatItTellsToType) {
  control::JobSpec job = spec("train", control::ClaimRule::kToken);
  job.endpoint = "/tmp/other";
  job.mesh = "tp=2";
  JobTable table = table_with(job);
  JobTable::Claimant of_three = claimant(0), of_another_mesh = claimant(0);
  of_three.world_size = 3;
  of_another_mesh.mesh = "dp_shard=2";
  for (const JobTable::Claimant& refused : {of_three, of_another_mesh})
    EXPECT_THAT(table.claim("train", refused).message(),
                HasSubstr("(muster end --endpoint /tmp/other --job train)"));
  EXPECT_THAT(table.claim("train", claimant(1, "wrong")).message(),
              HasSubstr("`muster token --endpoint /tmp/other --job train --rank 1`"));
  table.ending("train");
  EXPECT_THAT(table.claim("train", claimant(1)).message(), HasSubstr("`muster jobs --endpoint /tmp/other`"));
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
    job.owner = uid;
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
    count_sessions(table, counted);
    return counted.by_user();
  };
  using Counted = std::map<Account, std::uint64_t>;
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
  EXPECT_TRUE(may_act(*table.find("train"), {kOwner, false}).ok());
  EXPECT_EQ(may_act(*table.find("train"), {1001, false}).code(), Code::kDenied);
}

TEST(JobTable, ChecksRankAndWorld) {
  JobTable table = table_with(spec("train"));
  EXPECT_EQ(table.claim("train", claimant(2)).code(), Code::kBadArgument);
  EXPECT_EQ(table.claim("train", claimant(-1)).code(), Code::kBadArgument);
  JobTable::Claimant wrong_world = claimant(0);
  wrong_world.world_size = 3;
  EXPECT_EQ(table.claim("train", wrong_world).code(), Code::kBadArgument);
  wrong_world.world_size = 1;
  EXPECT_EQ(table.claim("train", wrong_world).code(), Code::kBadArgument) << "the others would never come";
  wrong_world.world_size = 2;
  EXPECT_TRUE(table.claim("train", wrong_world).ok());
  EXPECT_EQ(table.claim("other", claimant(0)).code(), Code::kNotFound);
}

// Goal:   a rank that expects other groups than those of the job is not let in.
TEST(JobTable, ChecksTheMeshOfWhoNamesOne) {
  control::JobSpec job = spec("train");
  job.mesh = "tp=2";
  JobTable table = table_with(job);
  JobTable::Claimant other = claimant(0);
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
  EXPECT_EQ(table.find("train")->state, Job::State::kStarting);
  table.ready("train");
  EXPECT_EQ(table.find("train")->state, Job::State::kReady);
  table.ending("train");
  EXPECT_EQ(table.claim("train", claimant(0)).code(), Code::kJobEnded);
  table.ready("train");
  EXPECT_EQ(table.find("train")->state, Job::State::kEnding) << "there is no way back";
}

TEST(JobTable, AReleaseThatComesTooLateChangesNothing) {
  JobTable table = table_with(spec("train"));
  table.release("train", Rank(9));
  table.release("gone", Rank(0));
  EXPECT_EQ(table.find("train")->held(), 0u);
}

// ---- a predecessor's jobs

JobTable adopted(const std::vector<SavedJob::Token>& tokens = {}) {
  JobTable table = book_of(0);  // whatever the limits now are
  EXPECT_TRUE(table.adopt(spec("train", control::ClaimRule::kToken), tokens));
  return table;
}

TEST(JobTable, LetsNobodyClaimBeforeTheEngineHasSpoken) {
  JobTable table = adopted({{1, 0, "token"}});
  EXPECT_EQ(table.claim("train", claimant(1, "token")).code(), Code::kPending);
  EXPECT_TRUE(table.reconcile("train", {{}, {}}).ok());
  EXPECT_EQ(table.find("train")->state, Job::State::kReady);
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

// Goal:   a rank that attached while no supervisor looked has used its token, also if it is gone again.
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
  const Job::Claim& claim = table.find("train")->claims[Rank(0)];
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
  EXPECT_EQ(table.find("train")->state, Job::State::kReady);
  table.starting("train");
  EXPECT_EQ(table.find("train")->state, Job::State::kReady) << "only what is being adopted";
}

TEST(JobTable, AdoptsAJobThatIsEnding) {
  JobTable table = adopted();
  table.ending("train");
  EXPECT_TRUE(table.reconcile("train", {{}, {}}).ok());
  EXPECT_EQ(table.find("train")->state, Job::State::kEnding);
  EXPECT_FALSE(table.adopt(spec("train"), {}));
}

}  // namespace
}  // namespace muster::supervisor
