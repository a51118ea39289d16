#include "daemon/cli/run/rank_environment.hpp"

#include "api/base/bootstrap.hpp"

#include <algorithm>

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

bootstrap::Lookup lookup_in(const std::vector<std::string>& environment) {
  return [&environment](std::string_view name) -> std::optional<std::string> {
    for (const std::string& entry : environment)
      if (entry.starts_with(std::string(name) + "=")) return entry.substr(name.size() + 1);
    return std::nullopt;
  };
}

// Goal:   a run inside another launcher's step, or inside another run, gives its ranks their own places.
// Method: the library's own reading of the environment that the run makes.
TEST(RankEnvironment, IsReadBackAsTheRankItWasMadeFor) {
  const std::vector<std::string> base{
      "PATH=/bin",        "SLURM_PROCID=7",    "SLURM_NTASKS=8",         "RANK=3",
      "WORLD_SIZE=4",     "MUSTER_RANK=5",     "MUSTER_BOOTSTRAP=slurm", "MUSTER_TOKEN=old",
      "MUSTER_LOG=debug", "MUSTER_JOB_KEY=key"};
  const auto made = rank_environment(base, {"/tmp/s", "job", "tp=2", "secret", 5, 8, 1, 4});
  const auto identity = bootstrap::identify(lookup_in(made));
  ASSERT_TRUE(identity) << identity.error().message();
  EXPECT_EQ(identity->launcher, "muster");
  EXPECT_EQ(identity->rank, 5);
  EXPECT_EQ(identity->world_size, 8);
  EXPECT_EQ(identity->local_rank, 1);
  EXPECT_EQ(identity->local_size, 4);
  EXPECT_EQ(identity->job, "job");
  EXPECT_EQ(identity->mesh, "tp=2");
  EXPECT_EQ(identity->token, "secret");
  EXPECT_EQ(identity->key, "key");
  EXPECT_EQ(identity->endpoint, "/tmp/s");
  for (const char* kept : {"PATH=/bin", "MUSTER_LOG=debug", "SLURM_PROCID=7"})
    EXPECT_EQ(std::count(made.begin(), made.end(), kept), 1) << kept;
}

TEST(RankEnvironment, LeavesTheTokenOutWhereNoneIsAskedFor) {
  const auto made = rank_environment({"MUSTER_TOKEN=old"}, {"/tmp/s", "job", "", "", 0, 1, 0, 1});
  EXPECT_FALSE(lookup_in(made)("MUSTER_TOKEN"));
}

// Goal:   the variable is the ranks' own, unless the run asks for check mode.
TEST(RankEnvironment, HasCheckModeAsAskedFor) {
  const RankIdentity facts{"/tmp/s", "job", "", "", 0, 1, 0, 1, true};
  EXPECT_EQ(lookup_in(rank_environment({"MUSTER_CHECK=0"}, facts))("MUSTER_CHECK"), "1");
  EXPECT_EQ(lookup_in(rank_environment({}, facts))("MUSTER_CHECK"), "1");
  EXPECT_EQ(
      lookup_in(rank_environment({"MUSTER_CHECK=1"}, {"/tmp/s", "job", "", "", 0, 1, 0, 1}))("MUSTER_CHECK"),
      "1");
  EXPECT_FALSE(lookup_in(rank_environment({}, {"/tmp/s", "job", "", "", 0, 1, 0, 1}))("MUSTER_CHECK"));
}

TEST(RankEnvironment, NamesWhatARunDoesNotUse) {
  EXPECT_TRUE(unused_by_run({"PATH=/bin", "MUSTER_ENDPOINT=/tmp/s"}).empty());
  const auto texts = unused_by_run({"MUSTER_MESH=tp=2", "MUSTER_JOB="});
  ASSERT_EQ(texts.size(), 2u);
  EXPECT_TRUE(texts[0].starts_with("MUSTER_JOB= is not used") && texts[0].ends_with("--job"));
  EXPECT_TRUE(texts[1].starts_with("MUSTER_MESH=tp=2 is not used") && texts[1].ends_with("--mesh"));
  EXPECT_TRUE(unused_by_run({"MUSTER_RANK=0", "MUSTER_JOB=j", "MUSTER_MESH=tp=2"}).empty())
      << "of the launcher of the rank that starts the run";
}

}  // namespace
}  // namespace muster::cli
