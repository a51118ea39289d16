// NodeCostBook and how costs travel: what is given counts, what is kept is used on this machine alone, and
// everything else is measured.
#include "daemon/control/node_costs.hpp"

#include "daemon/control/job.hpp"
#include "tests/support/folder.hpp"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <sys/stat.h>
#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

const NodeCosts kGiven{11, 22, 33, 44};

std::vector<int> cores() {
  cpu_set_t set;
  std::vector<int> found;
  EXPECT_EQ(::sched_getaffinity(0, sizeof set, &set), 0);
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(static_cast<unsigned>(core), &set)) found.push_back(core);
  return found;
}

std::string text_of(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(NodeCosts, AreMeasuredAsSomethingThatCanBe) {
  const NodeCosts costs = NodeCostBook(NodeCosts{0, 0, 0, 0}, "").get();
  EXPECT_TRUE(costs.sound());
  EXPECT_GT(costs.turn_ns, 20u) << "a system call takes longer";
  EXPECT_GT(costs.cached_bytes_per_us, 100u) << "even under a sanitizer a core copies 100 MB a second";
}

TEST(NodeCosts, AreZeroWhereOneCoreCannotMeasureThem) {
  const std::vector<int> one = {cores().front()};
  EXPECT_EQ(measure_node_costs(one).meeting_ns, 0u);
  EXPECT_EQ(measure_node_costs({}), (NodeCosts{0, 0, 0, 0}));
}

// Goal:   a busy core neither holds up the daemon nor leaves a cost that nothing has.
// Method: threads that never sleep share the core that is measured.
TEST(NodeCosts, AreMeasuredInBoundedTimeOnABusyCore) {
  const int core = cores().front();
  std::atomic<bool> over{false};
  std::vector<std::jthread> busy(3);
  for (std::jthread& thread : busy)
    thread = std::jthread([&] {
      cpu_set_t set;
      CPU_ZERO(&set);
      CPU_SET(static_cast<unsigned>(core), &set);
      ::pthread_setaffinity_np(::pthread_self(), sizeof set, &set);
      while (!over) {
      }
    });
  const std::vector<int> one = {core};
  // 100 turns within its 8 ms, and a third more for a process's turn.
  EXPECT_LE(measure_node_costs(one).turn_ns, 8'000'000u / 100 * 13 / 10);
  over = true;
}

TEST(NodeCosts, AreThoseGivenAndKeptAsWhatIsUsed) {
  const test::Folder folder;
  NodeCostBook book(kGiven, folder.path());
  EXPECT_EQ(book.get(), kGiven);
  EXPECT_EQ(kept_node_costs(folder.path()), (NodeCostBook::Kept{kGiven, std::nullopt}));
}

TEST(NodeCosts, AreNotReadFromWhatIsNoPlainFile) {
  const test::Folder folder;
  const std::string path = folder.path() + "/costs.json";
  ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  EXPECT_EQ(kept_node_costs(folder.path()), std::nullopt);
  const std::string other = folder.path() + "/other";
  std::ofstream(other) << "theirs";
  std::filesystem::create_symlink(other, path + ".new");
  NodeCostBook book(NodeCosts{0, 0, 0, 0}, folder.path());
  EXPECT_TRUE(book.get().sound());
  EXPECT_EQ(text_of(other), "theirs") << "a link was followed";
  EXPECT_EQ(kept_node_costs(folder.path())->used, book.get());
  std::filesystem::rename(path, other);
  std::filesystem::create_symlink(other, path);
  EXPECT_EQ(kept_node_costs(folder.path()), std::nullopt);
}

// Goal:   the first job measures, later daemons read its measurement.
// Method: the machine's costs are made up. The file is changed by hand; the next book must give the same
//         costs.
TEST(NodeCosts, AreKeptForALaterDaemon) {
  const test::Folder folder;
  const NodeCosts measured{245, 1500, 115120, 28780};
  NodeCostBook first(NodeCosts{0, 0, 0, 0}, folder.path(), [&] { return measured; });
  EXPECT_EQ(first.get(), measured);
  EXPECT_EQ(kept_node_costs(folder.path()), (NodeCostBook::Kept{measured, measured}));

  const std::string path = folder.path() + "/costs.json";
  Json kept = Json::parse(text_of(path));
  kept["measured"]["turn_ns"] = 4321;
  std::ofstream(path) << kept;
  NodeCostBook second(NodeCosts{0, 0, 0, 0}, folder.path());
  EXPECT_EQ(second.get().turn_ns, 4321u);
  NodeCostBook in_part(NodeCosts{7, 0, 0, 0}, folder.path());
  EXPECT_EQ(in_part.get().meeting_ns, 7u);
  EXPECT_EQ(in_part.get().turn_ns, 4321u);
  EXPECT_EQ(kept_node_costs(folder.path())->used, in_part.get());
  EXPECT_NE(kept_node_costs(folder.path())->measured, in_part.get())
      << "what was given has not been measured";
}

// Goal:   a busy machine that leaves costs unmeasured gives no measurement.
TEST(NodeCosts, AreMeasuredAgainWhereTheMachineWasTooBusy) {
  const test::Folder folder;
  const NodeCosts in_part{0, 1688, 115120, 28780};
  NodeCostBook busy(NodeCosts{0, 0, 0, 0}, folder.path(), [&] { return in_part; });
  EXPECT_TRUE(busy.get().sound());
  EXPECT_EQ(busy.get().turn_ns, 1688u);
  EXPECT_EQ(kept_node_costs(folder.path()), (NodeCostBook::Kept{busy.get(), std::nullopt}));
  const NodeCosts whole{245, 1700, 115120, 28780};
  NodeCostBook quiet(NodeCosts{0, 0, 0, 0}, folder.path(), [&] { return whole; });
  EXPECT_EQ(quiet.get(), whole);
}

TEST(NodeCosts, AreMeasuredAgainWhereWhatIsKeptDoesNotFit) {
  for (const char* text :
       {"", "no JSON", "[]", R"({"machine": "another", "costs": {}})", R"({"machine": 3})"}) {
    const test::Folder folder;
    std::ofstream(folder.path() + "/costs.json") << text;
    EXPECT_EQ(kept_node_costs(folder.path()), std::nullopt) << text;
    NodeCostBook book(NodeCosts{0, 0, 0, 0}, folder.path());
    EXPECT_TRUE(book.get().sound()) << text;
    EXPECT_EQ(kept_node_costs(folder.path())->used, book.get()) << text;
  }
}

TEST(NodeCosts, AreMeasuredWhereNothingCanBeKept) {
  NodeCostBook nowhere(NodeCosts{0, 0, 0, 0}, "");
  EXPECT_TRUE(nowhere.get().sound());
  NodeCostBook missing(NodeCosts{0, 0, 0, 0}, "/proc/no such folder");
  EXPECT_TRUE(missing.get().sound());
}

TEST(NodeCosts, TravelWithTheSpecificationOfAJob) {
  JobSpec spec;
  spec.name = "j";
  spec.mesh = "dp_shard=1";
  spec.epoch = 1;
  spec.costs = kGiven;
  Json json = to_json(spec);
  EXPECT_EQ(job_from_json(json)->costs, kGiven);
  json.erase("costs");
  EXPECT_EQ(job_from_json(json)->costs, NodeCosts{}) << "a state of before has none";
  for (const Json& wrong : {Json(0), Json(-1), Json(1'000'000'001), Json("x"), Json(1.5)}) {
    json["costs"] = to_json(kGiven);
    json["costs"]["turn_ns"] = wrong;
    const auto read = job_from_json(json);
    ASSERT_FALSE(read) << wrong;
    EXPECT_NE(read.error().message().find("turn_ns"), std::string::npos) << read.error().message();
  }
}

}  // namespace
}  // namespace muster::control
