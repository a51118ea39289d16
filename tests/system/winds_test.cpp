// winds as its users start it: real processes, a private daemon for each run, fields from files.
#include "tests/api/examples/npy_file.hpp"
#include "tests/support/folder.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>
#include <nlohmann/json.hpp>

namespace winds {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

struct Ended {
  int status = -1;
  std::string out, err;
  nlohmann::json figures() const {
    const std::string text = out.substr(0, out.find_last_not_of('\n') + 1);
    return nlohmann::json::parse(text.substr(text.find_last_of('\n') + 1), nullptr, false);
  }
  std::vector<double> losses() const { return figures().at("losses"); }
};

std::string text_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A process of the program that saves into the folder.
pid_t rank_that_saves_into(const std::string& folder) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string command = text_of(entry.path().string() + "/cmdline");
    if (command.starts_with(WINDS_PROGRAM) && command.find(folder) != std::string::npos)
      return std::stoi(entry.path().filename());
  }
  return 0;
}

class Winds : public ::testing::Test {
 protected:
  void SetUp() override { test::NpyFile{}.write(field()); }
  std::string field() const { return folder_.path() + "/field.npy"; }
  std::string command(int ranks, const std::string& mesh, const std::string& arguments) const {
    return std::string(MUSTER_PROGRAM) + " run --private --no-prefix -n " + std::to_string(ranks) +
           " --mesh " + mesh + " -- " + WINDS_PROGRAM +
           (arguments.find("--width") == std::string::npos ? " --width 4" : "") + " --json " + arguments;
  }
  Ended start(int ranks, const std::string& mesh, const std::string& arguments) const {
    return shell(command(ranks, mesh, "--field " + field() + " " + arguments));
  }
  Ended shell(const std::string& command) const {
    const std::string out = folder_.path() + "/out", err = folder_.path() + "/err";
    const int raw = std::system((command + " >" + out + " 2>" + err).c_str());
    return {WIFEXITED(raw) ? WEXITSTATUS(raw) : -1, text_of(out), text_of(err)};
  }
  muster::test::Folder folder_;
};

struct Shared {
  int ranks;
  const char* mesh;
  const char* more;
};

// Goal:   any mesh and cut has the losses of one rank, and halos bring in what they take out.
TEST_F(Winds, HasTheLossesOfOneRank) {
  for (const Shared& each : {Shared{1, "domain=1", "--batch 2"},
                             {2, "domain=2", "--scatter"},
                             {5, "domain=5", ""},
                             {4, "domain=2,dp_replicate=2", ""},
                             {4, "domain=2,dp_shard=2", "--prefetch 2"},
                             {4, "domain=4", "--cut 2x2"},
                             {3, "domain=3", "--cut 1x3 --recompute"}}) {
    const Ended ended = start(each.ranks, each.mesh, std::string("--steps 3 --verify ") + each.more);
    ASSERT_EQ(ended.status, 0) << each.mesh << ": " << ended.err;
    const auto figures = ended.figures();
    EXPECT_LT(figures.at("max_loss_difference").get<double>(), 1e-5) << each.mesh << " " << each.more;
    EXPECT_LT(figures.at("max_norm_difference").get<double>(), 1e-4) << each.mesh << " " << each.more;
    EXPECT_LT(figures.at("losses").back().get<double>(), figures.at("losses").front().get<double>());
    const bool alone = std::string(each.mesh) == "domain=1";
    EXPECT_EQ(figures.at("halo_bytes").at("forward_in").get<std::int64_t>() > 0, !alone) << each.mesh;
  }
}

// Goal:   by default a step has two samples, or one for each group of `domain`, whatever the mesh.
TEST_F(Winds, HasTwoSamplesByDefault) {
  const auto losses = [this](int ranks, const char* mesh, const char* more) {
    return start(ranks, mesh, std::string("--steps 2 ") + more).losses();
  };
  EXPECT_EQ(losses(1, "domain=1", ""), losses(1, "domain=1", "--batch 2"));
  EXPECT_EQ(losses(3, "dp_replicate=3", ""), losses(3, "dp_replicate=3", "--batch 3"));
  EXPECT_NE(losses(1, "domain=1", ""), losses(1, "domain=1", "--batch 1"));
}

// Goal:   ranks that have no row of the coarse levels, or none at all, change nothing.
TEST_F(Winds, TakesEmptyShards) {
  test::NpyFile{.rows = 16, .columns = 16}.write(field());
  for (const auto& [ranks, mesh] : {std::pair(7, "domain=7"), {18, "domain=18"}}) {
    const Ended ended = start(ranks, mesh, "--steps 2 --verify");
    ASSERT_EQ(ended.status, 0) << ended.err;
    EXPECT_LT(ended.figures().at("max_loss_difference").get<double>(), 1e-5);
    EXPECT_LT(ended.figures().at("max_norm_difference").get<double>(), 1e-4);
  }
}

TEST_F(Winds, TakesEachWidthThatItPromises) {
  EXPECT_EQ(start(2, "domain=2", "--steps 1 --width 36").status, 0);
}

// Goal:   to compute forward again, to read by one rank, and to be late now and then changes no bit.
TEST_F(Winds, KeepsItsBits) {
  const Ended plain = start(3, "domain=3", "--steps 4");
  ASSERT_EQ(plain.status, 0) << plain.err;
  for (const char* more :
       {"--recompute", "--scatter", "--delay-ranks 7", "--recompute --scatter --delay-ranks 8"}) {
    const Ended other = start(3, "domain=3", std::string("--steps 4 ") + more);
    ASSERT_EQ(other.status, 0) << other.err;
    EXPECT_EQ(other.losses(), plain.losses()) << more;
    EXPECT_EQ(other.figures().at("rmse"), plain.figures().at("rmse")) << more;
    const bool less = other.figures().at("activation_bytes") < plain.figures().at("activation_bytes");
    EXPECT_EQ(less, std::string(more).find("recompute") != std::string::npos) << more;
  }
}

// Goal:   the gradient is that of the loss, by differences, for the parameters of each layer.
TEST_F(Winds, HasTheGradientOfItsLoss) {
  const Ended ended =
      shell(std::string(MUSTER_PROGRAM) + " run --private --no-prefix -n 1 -- " + WINDS_GRADIENTS_PROGRAM);
  EXPECT_EQ(ended.status, 0) << ended.out << ended.err;
  EXPECT_EQ(std::count(ended.out.begin(), ended.out.end(), '\n'), 10) << ended.out;
}

// Goal:   a checkpoint goes on under another cut, with the position that was cut over `domain`.
TEST_F(Winds, GoesOnUnderAnotherCut) {
  const Ended whole = start(2, "domain=2", "--steps 6 --batch 2");
  ASSERT_EQ(whole.status, 0) << whole.err;
  const std::string saved = folder_.path() + "/saved";
  const Ended first = start(2, "domain=2", "--steps 6 --batch 2 --save-every 3 --keep 0 --save " + saved);
  ASSERT_EQ(first.status, 0) << first.err;
  std::string third;
  for (const auto& entry : std::filesystem::directory_iterator(saved))
    if (entry.path().string().find("0003") != std::string::npos) third = entry.path();
  ASSERT_NE(third, "");
  for (const Shared& each :
       {Shared{3, "domain=3", ""}, {4, "domain=4", "--cut 2x2"}, {4, "domain=2,dp_replicate=2", ""}}) {
    const Ended rest =
        start(each.ranks, each.mesh, "--steps 6 --batch 2 --resume " + third + " " + each.more);
    ASSERT_EQ(rest.status, 0) << rest.err;
    const std::vector<double> losses = rest.losses(), expected = whole.losses();
    ASSERT_EQ(losses.size(), 3U);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_NEAR(losses[i], expected[3 + i], 1e-5) << each.mesh;
  }
  EXPECT_THAT(start(2, "domain=2", "--steps 6 --batch 2 --seed 9 --resume " + third).err,
              HasSubstr("--seed 1"));
  test::NpyFile other;
  std::vector<float> values = other.values();
  for (float& value : values) value *= 1.5F;
  other.write(field(), values);
  EXPECT_THAT(start(2, "domain=2", "--steps 6 --batch 2 --resume " + third).err,
              HasSubstr("a field of the digest"));
}

// Goal:   after kill -9 of a rank in mid-run the others end soon and name it, and another cut goes on.
TEST_F(Winds, SurvivesAKilledRankByItsCheckpoint) {
  const std::string saved = folder_.path() + "/saved", err = folder_.path() + "/killed";
  const std::string all = command(
      3, "domain=3", "--field " + field() + " --steps 100000 --batch 1 --save-every 2 --save " + saved);
  std::thread killer([&] {
    for (int i = 0; i < 600 && text_of(err).find("train 10/") == std::string::npos; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const pid_t rank = rank_that_saves_into(saved);
    ASSERT_GT(rank, 0);
    ASSERT_EQ(kill(rank, SIGKILL), 0);
  });
  const auto before = std::chrono::steady_clock::now();
  const int raw = std::system((all + " >/dev/null 2>" + err).c_str());
  killer.join();
  EXPECT_LT(std::chrono::steady_clock::now() - before, std::chrono::seconds(90));
  EXPECT_NE(WEXITSTATUS(raw), 0);
  EXPECT_THAT(text_of(err), ContainsRegex("rank [0-2]"));
  std::int64_t newest = 0;
  for (const auto& entry : std::filesystem::directory_iterator(saved)) {
    const std::string name = entry.path().filename();
    if (name.starts_with("step-")) newest = std::max<std::int64_t>(newest, std::stoll(name.substr(5)));
  }
  ASSERT_GE(newest, 2);
  const Ended rest =
      start(2, "domain=2", "--steps " + std::to_string(newest + 2) + " --batch 1 --resume " + saved);
  EXPECT_EQ(rest.status, 0) << rest.err;
  EXPECT_GE(rest.losses().size(), 2U);
}

// Goal:   wrong use ends all ranks alike, with one sentence that names it, and nothing runs.
TEST_F(Winds, RefusesWrongUseAtAllRanks) {
  const std::vector<std::pair<Ended, std::string>> all{
      {start(2, "domain=2", "--cut 3x1"), "--cut 3x1 is for 3 ranks, but the mesh has domain=2"},
      {start(2, "tp=2", ""), "has tp=2"},
      {start(2, "dp_replicate=2", "--batch 3"), "--batch 3 is not a multiple of dp_replicate x dp_shard = 2"},
      {start(2, "domain=2", "--month 2"), "--month 2, but the field has the months 0 to 1"},
      {shell(command(2, "domain=2", "--field /nosuch.npy")), "cannot read the field /nosuch.npy"},
      {start(2, "domain=2", "--html /nosuch/x.html"), "cannot write /nosuch/x.html"},
  };
  for (const auto& [ended, text] : all) {
    EXPECT_THAT(ended.err, HasSubstr(text));
    EXPECT_NE(ended.status, 0) << text;
    EXPECT_THAT(ended.err, Not(HasSubstr("train 1"))) << text;
  }
}

TEST_F(Winds, WritesAPageOfMapsLossesAndLanes) {
  const std::string html = folder_.path() + "/page.html";
  const Ended ended = start(3, "domain=3", "--steps 3 --verify --html " + html);
  ASSERT_EQ(ended.status, 0) << ended.err;
  const std::string page = text_of(html);
  for (const char* part :
       {"\"title\":\"eastward\"", "\"rows\":11", "geostrophic", "<polyline", "lane halo", "</html>"})
    EXPECT_THAT(page, HasSubstr(part));
  EXPECT_THAT(page, Not(HasSubstr("{{")));
  EXPECT_FALSE(std::filesystem::exists(html + ".trace.json"));
}

}  // namespace
}  // namespace winds
