// How a rank comes into a job, and what it hears where it does not.
#include "api/shm/socket.hpp"
#include "tests/api/client/session_fixture.hpp"
#include "tests/support/folder.hpp"

#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <map>
#include <set>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace {

using muster::test::Session;
using ::testing::AllOf;
using ::testing::HasSubstr;

class Open : public Session {
 protected:
  static muster_status_t refused(const muster_open_options& options) {
    muster_session* session = nullptr;
    const muster_status_t status = muster_open(&options, &session);
    EXPECT_EQ(session, nullptr);
    return status;
  }
  // How often the rank was in this job before.
  static std::uint32_t attachments_of(muster_session* session) {
    muster_session_info info = MUSTER_SESSION_INFO_INIT;
    EXPECT_EQ(muster_session_query(session, &info), MUSTER_OK);
    return info.attachments;
  }
};

// Goal:   case M11, for the ranks of one node: ranks that disagree on the mesh hear of it, and do not compute
//         in groups that are others than they mean. A job that all have left makes way for another mesh, if
//         there can be such a one.
TEST_F(Open, RefusesAnotherMeshThanTheJobs) {
  muster_session* first = open(0, 2, "train", "tp=2");
  EXPECT_EQ(refused(node_.rank("train", 1, 2, "dp_shard=2")), MUSTER_ERR_CONFIG);
  EXPECT_THAT(muster_last_error(),
              AllOf(HasSubstr("dp_shard=2"), HasSubstr("tp=2"), HasSubstr("muster end")));
  EXPECT_NE(open(1, 2, "train", "dp_shard=-1,tp=2"), nullptr) << "the same in other words";
  close(first);
  EXPECT_NE(open(0, 2, "train"), nullptr) << "who names none takes the job's";
  while (!open_.empty()) close(open_.back());
  EXPECT_EQ(refused(node_.rank("train", 0, 2, "tp=3")), MUSTER_ERR_CONFIG);
  EXPECT_EQ(attachments_of(open(0, 2, "train", "tp=2")), 2u)
      << "it was not given up for a mesh that cannot be";
  close(open_.back());
  EXPECT_EQ(attachments_of(open(0, 2, "train", "dp_shard=2")), 0u) << "a new job";
}

// Goal:   case M2, by ranks: degrees that cannot be are refused to each of them in the same words, at once.
TEST_F(Open, RefusesImpossibleDegreesInTheSameWordsToEachRank) {
  struct Case {
    int world;
    const char* mesh;
    const char* text;
  };
  for (const Case& c : {Case{8, "dp_shard=0", "dp_shard is 0"},
                        {8, "dp_shard=-2", "dp_shard is -2"},
                        {8, "dp_replicate=-1", "dp_replicate is -1"},
                        {8, "dp_replicate=0", "dp_replicate is 0"},
                        {8, "tp=0", "tp is 0"},
                        {10, "dp_replicate=2,dp_shard=2,tp=2", "= 8, but the world has 10 ranks"},
                        {10, "dp_replicate=2,tp=2", "= 8, but the world has 10 ranks"},
                        {2, "dp_replicate=2,tp=2", "= 4 already needs more than the 2 ranks"}}) {
    std::set<std::string> words;
    for (int rank = 0; rank < c.world; ++rank) {
      EXPECT_EQ(refused(node_.rank("train", rank, c.world, c.mesh)), MUSTER_ERR_CONFIG) << c.mesh;
      words.insert(muster_last_error());
    }
    EXPECT_EQ(words.size(), 1U) << c.mesh;
    EXPECT_THAT(*words.begin(), HasSubstr(c.text));
  }
}

TEST_F(Open, SaysHowManyRanksTheJobHas) {
  open(0, 2, "train");
  EXPECT_EQ(refused(node_.rank("train", 1, 3)), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("3 ranks, but job train has 2"), HasSubstr("muster end")));
}

// Goal:   a daemon that is stopped is no wait that somebody could go on with.
TEST_F(Open, NamesTheDaemonThatDoesNotAnswer) {
  const muster::test::Folder folder;
  const std::string path = folder.path() + "/silent.sock";
  const auto silent = muster::shm::Listener::open(path, {});
  ASSERT_TRUE(silent);
  muster_open_options options = node_.rank("train", 0, 1);
  options.endpoint = path.c_str();
  options.timeout_ns = 50'000'000;
  EXPECT_EQ(refused(options), MUSTER_ERR_DAEMON_LOST);
  EXPECT_THAT(muster_last_error(), AllOf(HasSubstr("`muster status --endpoint " + path + "`"),
                                         HasSubstr("`muster jobs --endpoint " + path + "`")));
}

// Variables of this process, taken away at the end.
using Variables = std::map<std::string, std::string>;
class Exported {
 public:
  explicit Exported(const Variables& variables) : variables_(variables) {
    for (const auto& [name, value] : variables_) setenv(name.c_str(), value.c_str(), 1);
  }
  ~Exported() {
    for (const auto& each : variables_) unsetenv(each.first.c_str());
  }

 private:
  Variables variables_;
};

// Goal:   ranks started by hand, or by another launcher, get an error that names the wrong variable.
TEST_F(Open, TellsVariablesThatAreEmptyWrongOrMisspelt) {
  struct Case {
    Variables variables;
    const char* text;
  };
  for (const Case& each :
       {Case{{{"MUSTER_ENDPOINT", ""}}, "MUSTER_ENDPOINT is empty"},
        Case{{{"MUSTER_RANK", "two"}, {"MUSTER_WORLD_SIZE", "4"}}, "MUSTER_RANK='two'"},
        Case{{{"MUSTER_RANK", "4"}, {"MUSTER_WORLD_SIZE", "4"}}, "MUSTER_RANK=4 is not below"},
        Case{{{"MUSTER_RANK", "2"}}, "MUSTER_RANK=2 is set, but MUSTER_WORLD_SIZE is missing"},
        Case{{{"MUSTER_RANKS", "2"}, {"MUSTER_WORLD_SIZE", "4"}}, "did you mean 'MUSTER_RANK'?"}}) {
    const Exported exported(each.variables);
    EXPECT_EQ(refused(MUSTER_OPEN_OPTIONS_INIT), MUSTER_ERR_BAD_ARGUMENT) << each.text;
    EXPECT_THAT(muster_last_error(), HasSubstr(each.text));
  }
}

TEST_F(Open, WarnsOnceOfAMisspeltVariableWhereItWorksAllTheSame) {
  const Exported exported(Variables{{"MUSTER_MESSH", "tp=2"}});
  testing::internal::CaptureStderr();
  EXPECT_NE(open(1, 2, "train"), nullptr);
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "one rank is enough";
  {
    const Exported launcher(Variables{{"MUSTER_RANK", "0"},
                                      {"MUSTER_WORLD_SIZE", "2"},
                                      {"MUSTER_LOCAL_RANK", "0"},
                                      {"MUSTER_LOCAL_SIZE", "2"}});
    testing::internal::CaptureStderr();
    close(open(0, 2, "launched"));
    EXPECT_EQ(testing::internal::GetCapturedStderr(), "") << "`muster run` has told it";
  }
  testing::internal::CaptureStderr();
  muster_session* first = open(0, 2, "train");
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "libmuster: warning: MUSTER_MESSH is no variable of Muster; did you mean 'MUSTER_MESH'?\n");
  close(first);
}

TEST_F(Open, NamesNothingWithAControlCharacter) {
  const Exported exported(Variables{{"MUSTER_RANK", "\x1b[2J"}, {"MUSTER_WORLD_SIZE", "4"}});
  EXPECT_EQ(refused(MUSTER_OPEN_OPTIONS_INIT), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("MUSTER_RANK='?[2J'"));
}

TEST_F(Open, SaysThatTheEndpointIsEmpty) {
  muster_open_options options = node_.rank("train", 0, 1);
  options.endpoint = "";
  EXPECT_EQ(refused(options), MUSTER_ERR_BAD_ARGUMENT);
  EXPECT_THAT(muster_last_error(), HasSubstr("muster_open_options.endpoint is empty"));
}

// Goal:   options of a size that no release has had are refused, and no field is cut in half.
TEST_F(Open, RefusesOptionsThatAreCutInAField) {
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  options.job_key = "0123456789abcdef0123456789abcdef";
  for (const std::size_t size : {std::size_t{0}, std::size_t{1}, offsetof(muster_open_options, job_key) + 1,
                                 sizeof options - 1, sizeof options + 1, std::size_t{4000}}) {
    options.size = static_cast<std::uint32_t>(size);
    muster_session* session = nullptr;
    EXPECT_EQ(muster_open(&options, &session), MUSTER_ERR_BAD_ARGUMENT) << size;
    EXPECT_THAT(muster_last_error(), ::testing::HasSubstr("MUSTER_OPEN_OPTIONS_INIT")) << size;
  }
}

}  // namespace
