// Runs that join a job which others have made or used: what they find must not depend on how those ended.
#include "daemon/cli/question.hpp"
#include "tests/daemon/cli/program.hpp"

#include <muster/muster.h>

namespace muster::test {
namespace {

class Join : public testing::Test {
 protected:
  Ran run_in(std::vector<std::string> options, const std::string& script) const {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"--endpoint", daemon_.socket(), "--", "sh", "-c", script});
    return muster(options);
  }

  Daemon daemon_;
};

// Goal:   a run joins a job that a rank has made by attaching, though their words for the mesh differ.
TEST_F(Join, AJobThatARankHasMade) {
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  options.endpoint = daemon_.socket().c_str();
  options.job = "made";
  options.rank = 0;
  options.world_size = 1;
  options.mesh = "tp=1,dp_shard=-1";
  muster_session* session = nullptr;
  ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
  EXPECT_EQ(muster_close(session), MUSTER_OK);
  const Ran same = run_in({"--job", "made", "-n", "1", "--mesh", "dp_shard=1"}, "echo $MUSTER_MESH");
  EXPECT_EQ(same.code, 0) << same.err;
  EXPECT_EQ(same.out, "pp=1,dp_replicate=1,dp_shard=1,cp=1,tp=1\n");
  EXPECT_EQ(run_in({"--job", "made"}, "true").code, 0);
}

// The same where whoever asked for the job wrote its mesh short.
TEST_F(Join, AJobWhoseMeshIsWrittenShort) {
  const auto made = cli::ask({daemon_.socket(), std::chrono::seconds(30)},
                             {{"command", "job_create"},
                              {"spec", {{"name", "short"}, {"world", 2}, {"mesh", "tp=2,dp_shard=1"}}},
                              {"keep", true}});
  ASSERT_TRUE(made) << made.error().text;
  EXPECT_EQ(run_in({"--job", "short"}, "true").code, 0);
  const Ran other = run_in({"--job", "short", "--mesh", "dp_shard=2"}, "true");
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("has the mesh pp=1"), std::string::npos) << other.err;
}

// Goal:   a launcher that was killed leaves no word behind about the ranks of the next one.
// Method: send the launcher's report that rank 0 ended before it attached; then a run whose rank 0 comes
//         last.
TEST_F(Join, AJobWhoseLauncherWasKilled) {
  ASSERT_EQ(run_in({"--job", "train", "-n", "2", "--keep"}, "true").code, 0);
  const auto told =
      cli::ask({daemon_.socket(), std::chrono::seconds(30)},
               {{"command", "absent"}, {"job", "train"}, {"rank", 0}, {"text", "rank 0 exited with code 0"}});
  ASSERT_TRUE(told) << told.error().text;
  const std::string stop = daemon_.folder().write("stop", "");
  const Ran ran =
      run_in({"--job", "train"}, "[ $MUSTER_RANK = 0 ] && sleep 0.3; exec " MUSTER_RANK_PROGRAM " " + stop);
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
}

}  // namespace
}  // namespace muster::test
