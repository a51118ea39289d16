// Which jobs `muster end --of` ends: an in-process daemon with engines of its own.
#include "daemon/supervisor/program/job_commands.hpp"

#include "daemon/control/packet.hpp"
#include "tests/support/node.hpp"
#include "tests/support/users.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::supervisor {
namespace {

using control::Json;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

// Cgroups as Slurm's plugins make them, of the first hierarchy that there is.
//
// Owns    the folders, which are empty at its end.
// Thread  the test's; enter(): a child's.
// Bound   -
// Fails   make() and enter(): this system lets nobody make cgroups.
class SlurmCgroups {
 public:
  SlurmCgroups() {
    for (const char* each : {"/sys/fs/cgroup/freezer", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"})
      if (root_.empty() && std::filesystem::exists(std::string(each) + "/cgroup.procs"))
        root_ = fmt::format("{}/muster-test-{}", each, getpid());
  }
  ~SlurmCgroups() {
    std::error_code error;
    for (auto folder = folders_.rbegin(); folder != folders_.rend(); ++folder)
      std::filesystem::remove(*folder, error);
  }
  SlurmCgroups(const SlurmCgroups&) = delete;
  SlurmCgroups& operator=(const SlurmCgroups&) = delete;

  bool make(const std::filesystem::path& path) {
    if (root_.empty()) return false;
    std::error_code error;
    std::filesystem::path folder = root_;
    for (auto part = path.begin();; ++part) {
      std::filesystem::create_directory(folder, error);
      if (error) return false;
      folders_.push_back(folder);
      if (part == path.end()) return std::filesystem::exists(folder / "cgroup.procs");
      folder /= *part;
    }
  }
  bool enter(const std::string& path) const {
    std::ofstream file(fmt::format("{}/{}/cgroup.procs", root_, path));
    return bool(file << getpid() << std::flush);
  }

 private:
  std::string root_;
  std::vector<std::filesystem::path> folders_;
};

class EndOf : public ::testing::Test {
 protected:
  EndOf() { node_.options.made_job_linger = std::chrono::hours(1); }
  void TearDown() override {
    for (muster_session* session : sessions_) static_cast<void>(muster_close(session));
  }
  Instant soon() const { return clock_.now() + std::chrono::seconds(20); }
  Result<Json> ask(const Json& command) const {
    MUSTER_ASSIGN_OR_RETURN(const auto socket, shm::connect_to(node_.door(), soon(), clock_));
    MUSTER_RETURN_IF_ERROR(control::send_packet(socket, shm::MessageKind::kCommand, 1, command));
    MUSTER_ASSIGN_OR_RETURN(const auto packet, control::receive_packet(socket, soon(), clock_));
    return control::result_of(packet);
  }
  // The names of the jobs that end.
  std::vector<std::string> end_of(const char* of) const {
    const auto result = ask({{"command", "end_of"}, {"of", of}});
    EXPECT_TRUE(result) << result.error().text();
    return result ? result->at("jobs").get<std::vector<std::string>>() : std::vector<std::string>();
  }
  std::set<std::string> jobs() const {
    std::set<std::string> names;
    const auto status = ask({{"command", "status"}});
    for (const Json& job : status ? status->at("jobs") : Json::array())
      if (job.at("state") != "ending") names.insert(job.at("name"));
    return names;
  }
  // A rank that says to be of that Slurm job; nullptr: it is of none. It stays attached.
  muster_session* come(const char* job, const char* slurm, int rank = 0, int world = 1) {
    slurm == nullptr ? unsetenv("SLURM_JOB_ID") : setenv("SLURM_JOB_ID", slurm, 1);
    muster_session* session = nullptr;
    const muster_open_options options = node_.rank(job, rank, world);
    EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << job << ": " << muster_last_error();
    unsetenv("SLURM_JOB_ID");
    sessions_.push_back(session);
    return session;
  }
  void leave(muster_session* session) {
    EXPECT_EQ(muster_close(session), MUSTER_OK);
    std::erase(sessions_, session);
  }
  // The daemon notes where a rank is after it has welcomed it.
  bool noted(const std::string& job, const std::string& slurm) const {
    for (const Instant end = soon(); clock_.now() < end;) {
      const auto status = ask({{"command", "status"}});
      for (const Json& each : status ? status->at("jobs") : Json::array())
        if (each.at("name") == job && each.at("origins").dump().find('"' + slurm + '"') != std::string::npos)
          return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }
  bool gone(const std::string& job) const {
    for (const Instant end = soon(); clock_.now() < end;) {
      const auto status = ask({{"command", "status"}});
      const Json jobs = status ? status->at("jobs") : Json::array({{{"name", job}}});
      if (std::none_of(jobs.begin(), jobs.end(), [&](const Json& each) { return each.at("name") == job; }))
        return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return false;
  }

  SteadyClock clock_;
  test::Node node_;
  std::vector<muster_session*> sessions_;
};

// Goal:   all jobs of the batch job end, whatever their names, whoever has made them, and whether a rank is
//         still there; and no other.
TEST_F(EndOf, EndsJobsWhateverTheirNames) {
  node_.start();
  ASSERT_TRUE(ask({{"command", "job_create"},
                   {"keep", true},
                   {"spec", {{"name", "asked"}, {"world", 1}, {"mesh", "dp_shard=1"}}}}));
  come("at-work", "77");
  come("asked", "77");
  muster_session* idle = come("idle", "77");
  come("other", "78");
  come("no-batch", nullptr);
  for (const char* job : {"at-work", "asked", "idle"}) ASSERT_TRUE(noted(job, "77")) << job;
  ASSERT_TRUE(noted("other", "78"));
  leave(idle);
  EXPECT_THAT(end_of("slurm:7"), IsEmpty());
  EXPECT_THAT(end_of("slurm:777"), IsEmpty());
  EXPECT_THAT(end_of("slurm:77"), UnorderedElementsAre("asked", "at-work", "idle"));
  EXPECT_THAT(jobs(), UnorderedElementsAre("no-batch", "other"));
}

// Goal:   a job is of each batch job that one of its ranks is of, or was last.
TEST_F(EndOf, EndsTheJobOfOneRankOfSeveral) {
  node_.start();
  come("both", "77", 0, 2);
  come("both", "78", 1, 2);
  muster_session* session = come("moved", "77");
  ASSERT_TRUE(noted("both", "78"));
  ASSERT_TRUE(noted("moved", "77"));
  leave(session);
  session = come("moved", "78");
  ASSERT_TRUE(noted("moved", "78"));
  leave(session);
  EXPECT_THAT(end_of("slurm:77"), ElementsAre("both")) << "the other was of 77 before";
  EXPECT_THAT(end_of("slurm:78"), ::testing::Contains("moved"));
  EXPECT_THAT(jobs(), IsEmpty());
}

// Goal:   jobs end by the cgroups of their ranks too, whatever these say: of a step or of the script itself,
//         in a container of the step, and where only one rank of several is there.
TEST_F(EndOf, EndsJobsOfRanksInItsCgroup) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make cgroups";
  SlurmCgroups cgroups;
  const std::string step = "job_77/step_0", script = "job_77/step_batch", other = "job_7/step_77";
  const std::string container = "job_77/step_1/user/task_0/libpod-" + std::string(64, 'c') + ".scope";
  for (const std::string& each : {step, script, other, container})
    if (!cgroups.make(each)) GTEST_SKIP() << "this system lets nobody make cgroups";
  node_.start();
  std::vector<std::unique_ptr<test::Taker>> ranks;
  const auto come_in = [&](const std::string& cgroup, const char* job, const char* slurm, int world = 1) {
    ranks.push_back(std::make_unique<test::Taker>(node_, getuid(), [&] {
      return std::uint64_t{cgroups.enter(cgroup) && come(job, slurm, 0, world) != nullptr};
    }));
    EXPECT_EQ(ranks.back()->taken(), 1u) << job;
  };
  come_in(step, "silent", nullptr);
  come_in(script, "says-78", "78");
  come_in(container, "contained", nullptr);
  come_in(step, "half", nullptr, 2);
  come("half", nullptr, 1, 2);
  come_in(other, "other", nullptr);
  for (const char* job : {"silent", "says-78", "contained", "half"}) ASSERT_TRUE(noted(job, "77")) << job;
  ASSERT_TRUE(noted("other", "7"));
  EXPECT_THAT(end_of("slurm:0"), IsEmpty()) << "a step is no job";
  EXPECT_THAT(end_of("slurm:78"), ElementsAre("says-78")) << "what a rank says counts beside what is seen";
  ASSERT_TRUE(gone("says-78"));
  come_in(script, "says-79", "79");
  ASSERT_TRUE(noted("says-79", "77"));
  EXPECT_THAT(end_of("slurm:77"), UnorderedElementsAre("silent", "contained", "half", "says-79"));
  EXPECT_THAT(jobs(), ElementsAre("other"));
}

// Goal:   text that names no batch job ends nothing, and is said to be wrong.
TEST_F(EndOf, RefusesWhatNamesNoBatchJob) {
  node_.start();
  come("train", "77");
  ASSERT_TRUE(noted("train", "77"));
  for (const char* of : {"", "slurm", "slurm:", "slurm:77.0", "slurm:77 ", "slurm: 77", "slurm:-77", "77",
                         "Slurm:77", "slurm:batch", "pbs:77", "slurm:77,78"}) {
    const auto refused = ask({{"command", "end_of"}, {"of", of}});
    ASSERT_FALSE(refused) << of;
    EXPECT_EQ(refused.error().code(), Code::kBadArgument) << of;
    EXPECT_THAT(refused.error().message(), ::testing::HasSubstr("say slurm: and its number")) << of;
  }
  EXPECT_FALSE(ask({{"command", "end_of"}}));
  for (const Json& of : {Json(77), Json(nullptr), Json::array({"slurm:77"})})
    EXPECT_EQ(ask({{"command", "end_of"}, {"of", of}}).error().code(), Code::kProtocol) << of;
  EXPECT_THAT(jobs(), ElementsAre("train"));
}

// Goal:   numbers of batch jobs are no secret: a user ends his own jobs by one, and a governor all.
TEST_F(EndOf, EndsNoJobOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become other users";
  test::start_for_everybody(node_);
  const auto comes_and_leaves = [this](const char* job) {
    return [this, job] {
      muster_session* session = come(job, "77");
      const bool seen = noted(job, "77");
      leave(session);
      return seen ? 0 : 1;
    };
  };
  const auto ends = [this](const std::vector<std::string>& expected) {
    return [this, expected] { return end_of("slurm:77") == expected ? 0 : 1; };
  };
  EXPECT_EQ(test::as_user(node_, test::kOneUser, comes_and_leaves("train")), 0);
  EXPECT_EQ(test::as_user(node_, test::kOtherUser, ends({})), 0);
  EXPECT_EQ(test::as_user(node_, test::kOtherUser, comes_and_leaves("train")), 0);
  EXPECT_EQ(test::as_user(node_, test::kOtherUser, ends({"train"})), 0);
  EXPECT_THAT(jobs(), ElementsAre("train@65531"));
  EXPECT_EQ(test::as_user(node_, test::kOtherUser, comes_and_leaves("more")), 0);
  EXPECT_THAT(end_of("slurm:77"), ::testing::IsSupersetOf({"train@65531", "more@65532"}));
}

}  // namespace
}  // namespace muster::supervisor
