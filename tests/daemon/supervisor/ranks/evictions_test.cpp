// Jobs that all their ranks have left make room: an in-process daemon with engines of its own.
#include "daemon/supervisor/ranks/evictions.hpp"

#include "api/base/log.hpp"
#include "tests/support/node.hpp"
#include "tests/support/users.hpp"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using ::testing::HasSubstr;
using ::testing::UnorderedElementsAre;
using Json = control::Json;

constexpr std::uint64_t kShare = std::uint64_t{256} << 20;

int short_jobs() {
  const char* count = std::getenv("MUSTER_SHORT_JOBS");
  return count != nullptr ? std::atoi(count) : 12;
}

class EvictionsTest : public ::testing::Test {
 protected:
  EvictionsTest() { node_.options.made_job_linger = std::chrono::hours(1); }
  // One rank comes and leaves. Returns the status of muster_open; *attachments: the rank's earlier
  // attachments.
  muster_status_t visit(const std::string& job, int world = 1, const char* mesh = nullptr,
                        std::uint32_t* attachments = nullptr) const {
    muster_session* session = nullptr;
    const muster_open_options options = node_.rank(job.c_str(), 0, world, mesh);
    const muster_status_t opened = muster_open(&options, &session);
    if (opened != MUSTER_OK) return opened;
    muster_session_info info = MUSTER_SESSION_INFO_INIT;
    if (attachments != nullptr && muster_session_query(session, &info) == MUSTER_OK)
      *attachments = info.attachments;
    return muster_close(session);
  }
  static muster_status_t alloc(muster_session* session, std::uint64_t bytes) {
    muster_buffer_options options = MUSTER_BUFFER_OPTIONS_INIT;
    options.name = "state";
    options.bytes = bytes;
    muster_buffer buffer = 0;
    void* address = nullptr;
    return muster_buffer_create(session, &options, &buffer, &address);
  }
  // The same, and leaves a named buffer.
  muster_status_t leave_behind(const std::string& job, std::uint64_t bytes) const {
    muster_session* session = nullptr;
    const muster_open_options options = node_.rank(job.c_str(), 0, 1);
    muster_status_t status = muster_open(&options, &session);
    if (status == MUSTER_OK) status = alloc(session, bytes);
    static_cast<void>(muster_close(session));
    return status;
  }
  Result<Json> answer_on(const shm::Descriptor& socket, const Json& command) const {
    MUSTER_RETURN_IF_ERROR(control::send_packet(socket, shm::MessageKind::kCommand, 1, command));
    MUSTER_ASSIGN_OR_RETURN(const auto packet, control::receive_packet(socket, soon(), clock_));
    return control::result_of(packet);
  }
  Result<Json> answer(const Json& command) const {
    MUSTER_ASSIGN_OR_RETURN(const auto socket, shm::connect_to(node_.door(), soon(), clock_));
    return answer_on(socket, command);
  }
  Json ask(const Json& command) const {
    const auto result = answer(command);
    EXPECT_TRUE(result) << result.error().text();
    return result ? *result : Json();
  }
  std::set<std::string> jobs() const {
    std::set<std::string> names;
    const Json status = ask({{"command", "status"}});
    for (const Json& job : status.at("jobs"))
      if (job.at("state") != "ending") names.insert(job.at("name"));
    return names;
  }
  // Engines report apart from each other who has left.
  bool seen_idle(const std::string& job) const {
    for (const Instant end = soon(); clock_.now() < end;) {
      const Json status = ask({{"command", "status"}});
      for (const Json& each : status.at("jobs"))
        if (each.at("name") == job && each.at("attached") == 0) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  Instant soon() const { return clock_.now() + std::chrono::seconds(20); }

  SteadyClock clock_;
  test::Node node_;
};

// Goal:   no short job is refused because of those before it.
TEST_F(EvictionsTest, EndTheJobThatHasBeenIdleForLongest) {
  node_.options.jobs_max = 3;
  node_.start();
  for (int i = 0; i < 12; ++i)
    ASSERT_EQ(visit(fmt::format("step{}", i)), MUSTER_OK) << i << muster_last_error();
  EXPECT_THAT(jobs(), UnorderedElementsAre("step9", "step10", "step11"));
  std::uint32_t attachments = 0;
  ASSERT_EQ(visit("step9", 1, nullptr, &attachments), MUSTER_OK);
  EXPECT_EQ(attachments, 1u) << "it is warm";
  ASSERT_EQ(visit("step12"), MUSTER_OK);
  EXPECT_THAT(jobs(), UnorderedElementsAre("step9", "step11", "step12")) << "it was used since";
  ASSERT_EQ(visit("step10", 1, nullptr, &attachments), MUSTER_OK);
  EXPECT_EQ(attachments, 0u) << "the rank hears that the job is new";
}

// Goal:   a launcher that comes back with another number of ranks, or another mesh, gets its job.
TEST_F(EvictionsTest, EndAJobForOneOfItsNameWithAnotherSize) {
  node_.start();
  std::uint32_t attachments = 7;
  for (const int world : {4, 3, 4}) {
    ASSERT_EQ(visit("elastic", world, nullptr, &attachments), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(attachments, 0u);
  }
  ASSERT_EQ(visit("elastic", 4, "tp=2,dp_shard=2", &attachments), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(attachments, 0u);
  ASSERT_EQ(visit("elastic", 4, "tp=2,dp_shard=2", &attachments), MUSTER_OK);
  EXPECT_EQ(attachments, 1u) << "the same one comes back to it";
}

// Goal:   torchrun restarts with fewer ranks and with more, and all of them attach to a job that is new.
// Method: its variables, in a process for each rank, as its agent starts them.
TEST_F(EvictionsTest, LetTorchrunRestartWithOtherNumbersOfRanks) {
  node_.start();
  int restarts = 0;
  const auto attaches = [&](int rank, int world) {
    const auto say = [](const char* name, int value) { setenv(name, std::to_string(value).c_str(), 1); };
    setenv("MUSTER_ENDPOINT", node_.endpoint().c_str(), 1);
    setenv("TORCHELASTIC_RUN_ID", "none", 1);
    say("TORCHELASTIC_RESTART_COUNT", restarts);
    say("MASTER_PORT", 29500);
    say("RANK", rank);
    say("LOCAL_RANK", rank);
    say("WORLD_SIZE", world);
    say("LOCAL_WORLD_SIZE", world);
    muster_session* session = nullptr;
    muster_session_info info = MUSTER_SESSION_INFO_INIT;
    if (muster_open(nullptr, &session) != MUSTER_OK || muster_session_query(session, &info) != MUSTER_OK) {
      fmt::print("{}\n", muster_last_error());
      return 1;
    }
    return info.attachments == 0 && muster_close(session) == MUSTER_OK ? 0 : 2;
  };
  for (const int world : {4, 3, 4, 1, 6}) {
    std::vector<pid_t> ranks;
    for (int rank = 0; rank < world; ++rank) {
      ranks.push_back(node_.fork());
      if (ranks.back() == 0) _exit(attaches(rank, world));
    }
    for (const pid_t rank : ranks) {
      int status = -1;
      waitpid(rank, &status, 0);
      EXPECT_EQ(status, 0) << "one of " << world;
    }
    ++restarts;
  }
  EXPECT_THAT(jobs(), UnorderedElementsAre("torchrun-none.29500"));
}

// Goal:   a job that has a rank is not idle: a rank that comes with another size is told so.
TEST_F(EvictionsTest, EndNoJobThatHasARank) {
  node_.options.jobs_max = 2;
  node_.start();
  muster_session* session = nullptr;
  const muster_open_options options = node_.rank("busy", 0, 2);
  ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(visit("busy", 3), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("job busy has 2"));
  for (const char* job : {"a", "b", "c"}) EXPECT_EQ(visit(job), MUSTER_OK) << job;
  EXPECT_THAT(jobs(), UnorderedElementsAre("busy", "c"));
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

// Goal:   jobs that were asked for stay: those of the cluster file and of --keep.
TEST_F(EvictionsTest, EndNoJobThatItsRanksHaveNotMade) {
  node_.options.jobs_max = 2;
  node_.start();
  ask({{"command", "job_create"},
       {"keep", true},
       {"spec", {{"name", "kept"}, {"world", 1}, {"mesh", "dp_shard=1"}}}});
  for (const char* job : {"kept", "a", "kept", "b", "c"}) ASSERT_EQ(visit(job), MUSTER_OK) << job;
  EXPECT_THAT(jobs(), UnorderedElementsAre("kept", "c"));
  EXPECT_EQ(visit("kept", 2), MUSTER_ERR_BAD_ARGUMENT);
  ask({{"command", "job_create"},
       {"keep", true},
       {"spec", {{"name", "second"}, {"world", 1}, {"mesh", "dp_shard=1"}}}});
  EXPECT_THAT(jobs(), UnorderedElementsAre("kept", "second")) << "a command line needs room too";
  EXPECT_EQ(visit("d"), MUSTER_ERR_NO_RESOURCE);
}

// Goal:   memory that idle jobs have left behind does not refuse the next one, however much that is, and jobs
//         that have a rank keep theirs.
TEST_F(EvictionsTest, GiveTheMemoryOfIdleJobsToTheNext) {
  node_.options.memory_max = kShare;
  node_.start();
  Nanos longest{0};
  for (int i = 0; i < short_jobs(); ++i) {
    const Instant begin = clock_.now();
    ASSERT_EQ(leave_behind(fmt::format("step{}", i), kShare / 4), MUSTER_OK) << i << muster_last_error();
    longest = std::max(longest, clock_.now() - begin);
  }
  fmt::print("{} jobs in a row, the slowest {} ms\n", short_jobs(), longest / std::chrono::milliseconds(1));
  EXPECT_THAT(jobs(), ::testing::IsSupersetOf({fmt::format("step{}", short_jobs() - 1),
                                               fmt::format("step{}", short_jobs() - 2)}));
  ASSERT_EQ(leave_behind("whole", kShare * 9 / 10), MUSTER_OK) << muster_last_error();
  EXPECT_THAT(jobs(), UnorderedElementsAre("whole"));
  muster_session* busy = nullptr;
  const muster_open_options options = node_.rank("busy", 0, 1);
  ASSERT_EQ(muster_open(&options, &busy), MUSTER_OK) << muster_last_error();
  ASSERT_EQ(alloc(busy, kShare / 2), MUSTER_OK) << muster_last_error();
  EXPECT_THAT(jobs(), UnorderedElementsAre("busy"));
  EXPECT_EQ(leave_behind("idle", kShare / 4), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(leave_behind("more", kShare * 3 / 4), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(), HasSubstr("limits.memory_max"));
  EXPECT_THAT(jobs(), UnorderedElementsAre("busy", "idle", "more")) << "what does not fit ends nobody's job";
  EXPECT_EQ(leave_behind("less", kShare / 3), MUSTER_OK) << muster_last_error();
  EXPECT_THAT(jobs(), ::testing::Not(::testing::Contains("idle")));
  EXPECT_EQ(muster_close(busy), MUSTER_OK);
}

// Goal:   several ranks that want memory at the same time all get it.
TEST_F(EvictionsTest, GiveMemoryToAllWhoWaitForIt) {
  node_.options.memory_max = kShare;
  node_.start();
  for (int i = 0; i < 3; ++i)
    ASSERT_EQ(leave_behind(fmt::format("step{}", i), kShare * 3 / 10), MUSTER_OK) << muster_last_error();
  std::vector<std::thread> ranks;
  for (int rank = 0; rank < 4; ++rank)
    ranks.emplace_back([this, rank] {
      muster_session* session = nullptr;
      const muster_open_options options = node_.rank("wide", rank, 4);
      ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(alloc(session, kShare / 5), MUSTER_OK) << muster_last_error();
      EXPECT_EQ(muster_close(session), MUSTER_OK);
    });
  for (std::thread& rank : ranks) rank.join();
}

// Goal:   a rank that means the job that is there gets it, however it writes that, and an odd one ends
// nothing.
TEST_F(EvictionsTest, EndNoJobForARankThatMeansIt) {
  node_.start();
  ASSERT_EQ(visit("elastic", 4, "tp=2,dp_shard=2"), MUSTER_OK) << muster_last_error();
  std::uint32_t attachments = 0;
  for (const char* mesh : {"dp_shard=2,tp=2", "tp=2,dp_shard=-1", static_cast<const char*>(nullptr)}) {
    const std::uint32_t before = attachments;
    ASSERT_EQ(visit("elastic", 4, mesh, &attachments), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(attachments, before + 1) << (mesh == nullptr ? "no mesh" : mesh);
  }
  EXPECT_EQ(visit("elastic", 4, "tp=3"), MUSTER_ERR_CONFIG);
  EXPECT_EQ(visit("elastic", 6, "tp=4"), MUSTER_ERR_BAD_ARGUMENT);
  ASSERT_EQ(visit("elastic", 4, nullptr, &attachments), MUSTER_OK);
  EXPECT_EQ(attachments, 4u) << "meshes that cannot be have ended nothing";
  ASSERT_EQ(visit("elastic", 4, "dp_shard=-1", &attachments), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(attachments, 0u) << "and one that can be has";
}

// Goal:   a job that cannot be made, for whatever reason, ends none that is idle: neither for its place nor
//         for its name.
TEST_F(EvictionsTest, EndNoJobForOneThatCannotBeMade) {
  node_.options.jobs_max = 2;
  node_.options.ranks_per_job_max = 4;
  node_.start();
  ASSERT_EQ(visit("warm", 2), MUSTER_OK) << muster_last_error();
  ASSERT_EQ(visit("other"), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(visit("wide", 5), MUSTER_ERR_NO_RESOURCE);
  EXPECT_THAT(muster_last_error(), HasSubstr("limits.ranks_per_job_max"));
  EXPECT_EQ(visit("bent", 4, "tp=3"), MUSTER_ERR_CONFIG);
  EXPECT_EQ(visit("anothers@4711"), MUSTER_ERR_NOT_FOUND);
  EXPECT_EQ(visit("no name"), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_EQ(visit("warm", 5), MUSTER_ERR_BAD_ARGUMENT);
  const auto wide =
      answer({{"command", "job_create"}, {"spec", {{"name", "wide"}, {"world", 5}, {"mesh", "dp_shard=5"}}}});
  ASSERT_FALSE(wide);
  EXPECT_THAT(wide.error().message(), HasSubstr("limits.ranks_per_job_max"));
  EXPECT_THAT(jobs(), UnorderedElementsAre("warm", "other"));
  std::uint32_t attachments = 0;
  ASSERT_EQ(visit("warm", 2, nullptr, &attachments), MUSTER_OK);
  EXPECT_EQ(attachments, 1u);
}

// Goal:   the oldest is the one that its last rank left first, and not the one that was made first.
TEST_F(EvictionsTest, EndTheJobThatWasLeftFirst) {
  node_.options.jobs_max = 2;
  node_.start();
  muster_session* session = nullptr;
  const muster_open_options first = node_.rank("first", 0, 1);
  ASSERT_EQ(muster_open(&first, &session), MUSTER_OK) << muster_last_error();
  ASSERT_EQ(visit("second"), MUSTER_OK) << muster_last_error();
  ASSERT_TRUE(seen_idle("second"));
  ASSERT_EQ(muster_close(session), MUSTER_OK);
  ASSERT_EQ(visit("third"), MUSTER_OK) << muster_last_error();
  EXPECT_THAT(jobs(), UnorderedElementsAre("first", "third"));
}

// Goal:   jobs that come at the same time each find room, and no more end than must.
TEST_F(EvictionsTest, MakeRoomForSeveralAtOnce) {
  node_.options.jobs_max = 4;
  node_.start();
  for (const char* job : {"a", "b", "c", "d"}) ASSERT_EQ(visit(job), MUSTER_OK) << job << muster_last_error();
  std::vector<std::thread> ranks;
  for (const char* job : {"e", "f", "g"})
    ranks.emplace_back([this, job] { EXPECT_EQ(visit(job), MUSTER_OK) << job << muster_last_error(); });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_THAT(jobs(), UnorderedElementsAre("d", "e", "f", "g"));
}

// Goal:   the log says which job has ended for which; the next rank of one that has ended for memory hears
//         that its job is new, and so does that of one whose size has changed.
TEST_F(EvictionsTest, AreLoggedAndHeardOf) {
  log::configure(log::Level::kInfo, log::Format::kText);
  testing::internal::CaptureStderr();
  node_.options.jobs_max = 2;
  node_.options.memory_max = kShare;
  node_.start();
  std::uint32_t attachments = 7;
  EXPECT_EQ(leave_behind("large", kShare / 2), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(leave_behind("larger", kShare * 3 / 4), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(visit("large", 1, nullptr, &attachments), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(attachments, 0u);
  EXPECT_EQ(visit("third"), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(visit("third", 2, nullptr, &attachments), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(attachments, 0u);
  const std::string log = testing::internal::GetCapturedStderr();
  log::configure(log::Level::kOff, log::Format::kText);
  for (const char* line : {"job large has no rank, and makes room for the memory of job larger",
                           "job larger has no rank, and makes room for job third",
                           "job third has no rank, and makes room for one of its name with 2 ranks"})
    EXPECT_THAT(log, HasSubstr(line));
}

// Goal:   jobs that were asked for stay: those of the cluster file, and of a `muster run` that still runs.
TEST_F(EvictionsTest, EndNoJobOfTheClusterFileOrOfARun) {
  node_.options.jobs_max = 3;
  control::JobSpec file = node_.options.job_defaults;
  file.name = "file";
  file.owner = getuid();
  file.world = 1;
  file.mesh = "dp_shard=1";
  node_.options.jobs = {file};
  node_.start();
  const auto run = shm::connect_to(node_.door(), soon(), clock_);
  ASSERT_TRUE(run) << run.error().text();
  ASSERT_TRUE(answer_on(
      *run, {{"command", "job_create"}, {"spec", {{"name", "run"}, {"world", 1}, {"mesh", "dp_shard=1"}}}}));
  for (const char* job : {"file", "run", "a", "file", "run", "b", "c"})
    ASSERT_EQ(visit(job), MUSTER_OK) << job << muster_last_error();
  EXPECT_THAT(jobs(), UnorderedElementsAre("file", "run", "c"));
  for (const char* job : {"file", "run"}) {
    EXPECT_EQ(visit(job, 2), MUSTER_ERR_BAD_ARGUMENT) << "it is of one rank";
    std::uint32_t attachments = 0;
    ASSERT_EQ(visit(job, 1, nullptr, &attachments), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(attachments, 2u) << "the same job";
  }
}

// Goal:   a rank that comes with another mesh than that of a job in use hears so, and gets its own job once
//         the last rank has left.
TEST_F(EvictionsTest, EndAJobForAnotherMeshOnceItIsIdle) {
  node_.start();
  muster_session* session = nullptr;
  const muster_open_options options = node_.rank("busy", 0, 2, "dp_shard=2");
  ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(visit("busy", 2, "tp=2"), MUSTER_ERR_CONFIG);
  ASSERT_EQ(muster_close(session), MUSTER_OK);
  std::uint32_t attachments = 7;
  ASSERT_EQ(visit("busy", 2, "tp=2", &attachments), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(attachments, 0u);
}

// Goal:   two users who start short jobs at the same time hinder each other in nothing.
TEST_F(EvictionsTest, LetTwoUsersHaveShortJobsAtOnce) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
  node_.options.memory_max = 2 * kShare;
  node_.options.memory_per_user_max = kShare / 2;
  node_.options.jobs_max = 12;
  node_.options.jobs_per_user_max = 5;
  test::start_for_everybody(node_);
  const auto jobs_in_a_row = [this](const char* name, int count) {
    return [this, name, count] {
      for (int i = 0; i < count; ++i)
        if (leave_behind(fmt::format("{}{}", name, i), kShare / 8) != MUSTER_OK) {
          fmt::print("{}{}: {}\n", name, i, muster_last_error());
          return 1;
        }
      return 0;
    };
  };
  std::thread one(
      [&] { EXPECT_EQ(test::as_user(node_, test::kOneUser, jobs_in_a_row("a", short_jobs())), 0); });
  EXPECT_EQ(test::as_user(node_, test::kOtherUser, jobs_in_a_row("b", short_jobs())), 0);
  one.join();
  const std::string a = fmt::format("a{}@65531", short_jobs() - 1);
  const std::string b = fmt::format("b{}@65532", short_jobs() - 1);
  EXPECT_THAT(jobs(), ::testing::IsSupersetOf({a, b}));
  // A lone user goes on without the other user; the last job of that one stays.
  EXPECT_EQ(test::as_user(node_, test::kOtherUser, jobs_in_a_row("c", 20)), 0);
  EXPECT_THAT(jobs(), ::testing::IsSupersetOf({a, std::string("c19@65532")}));
}

// Goal:   nobody's idle job ends for another user.
TEST_F(EvictionsTest, EndNoJobOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
  node_.options.jobs_max = 3;
  node_.options.jobs_per_user_max = 2;
  test::start_for_everybody(node_);
  const auto visits = [this](const char* first, const char* second) {
    return [this, first, second] { return visit(first) == MUSTER_OK && visit(second) == MUSTER_OK ? 0 : 1; };
  };
  EXPECT_EQ(test::as_user(node_, test::kOneUser, visits("a", "b")), 0);
  // One place is root's: the other user finds none, and ends no job that is not his.
  EXPECT_EQ(
      test::as_user(node_, test::kOtherUser, [this] { return visit("c") == MUSTER_ERR_NO_RESOURCE ? 0 : 1; }),
      0);
  EXPECT_THAT(jobs(), UnorderedElementsAre("a@65531", "b@65531"));
  EXPECT_EQ(test::as_user(node_, test::kOneUser, visits("c", "d")), 0);
  EXPECT_THAT(jobs(), UnorderedElementsAre("c@65531", "d@65531"));
}

// Goal:   memory that another user's idle job holds is his: whoever lacks it is refused.
TEST_F(EvictionsTest, TakeNoMemoryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
  node_.options.memory_max = kShare;
  node_.options.memory_per_user_max = kShare * 3 / 4;
  test::start_for_everybody(node_);
  const auto leaves = [this](const char* job, std::uint64_t bytes) {
    return [this, job, bytes] { return leave_behind(job, bytes); };
  };
  EXPECT_EQ(test::as_user(node_, test::kOneUser, leaves("mine", kShare / 2)), MUSTER_OK);
  EXPECT_EQ(test::as_user(node_, test::kOtherUser,
                          [this] {
                            const bool refused = leave_behind("his", kShare / 2) == MUSTER_ERR_NO_RESOURCE;
                            return refused ? 0 : 1;
                          }),
            0);
  EXPECT_THAT(jobs(), ::testing::Contains("mine@65531"));
  EXPECT_EQ(test::as_user(node_, test::kOneUser, leaves("more", kShare * 5 / 8)), MUSTER_OK);
  EXPECT_THAT(jobs(), ::testing::Not(::testing::Contains("mine@65531"))) << "his own makes room for him";
}

// Goal:   also root's jobs end none of another user: whoever governs may end jobs, and does so by name.
TEST_F(EvictionsTest, EndNoJobOfAUserForRoot) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
  node_.options.jobs_max = 3;
  node_.options.jobs_per_user_max = 2;
  test::start_for_everybody(node_);
  EXPECT_EQ(test::as_user(node_, test::kOneUser,
                          [this] { return visit("a") == MUSTER_OK && visit("b") == MUSTER_OK ? 0 : 1; }),
            0);
  for (const char* job : {"r1", "r2", "r3"}) ASSERT_EQ(visit(job), MUSTER_OK) << job << muster_last_error();
  EXPECT_THAT(jobs(), UnorderedElementsAre("a@65531", "b@65531", "r3"));
  EXPECT_NE(visit("a@65531", 2), MUSTER_OK) << "nor is one replaced by a governor's";
  EXPECT_THAT(jobs(), ::testing::Contains("a@65531"));
}

}  // namespace
}  // namespace muster::supervisor
