// The reports of `muster flight`, `groups` and `top` on a job of two nodes, asked on either as users ask.
#include "tests/system/nodes_as_programs.hpp"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class WholeJob : public NodesAsPrograms {
 protected:
  // Four ranks that work over both nodes until stop().
  void start_ranks() {
    ranks_ = std::make_unique<Running>(hosts_line({}, "exec " MUSTER_RANK_PROGRAM " " + stop_file()));
    ASSERT_TRUE(until([&] { return all_progress(); })) << ranks_->err();
  }
  void stop_ranks() {
    folder_.write("stop", "");
    const Ran ran = ranks_->wait();
    EXPECT_EQ(ran.code, 0) << ran.err;
  }
  std::string stop_file() const { return folder_.path() + "/stop"; }
  // Each rank has done something.
  bool all_progress() const {
    const Json flight = flight_at(1).first;
    if (!flight.is_object() || flight.at("ranks").size() != 4) return false;
    for (const Json& rank : flight.at("ranks"))
      if (rank.at("entries").size() < 8) return false;
    return true;
  }
  Ran ask(int node, std::vector<std::string> words) const {
    words.insert(words.end(), {"--endpoint", socket(node)});
    return muster(std::move(words));
  }
  // The file, and what the command said.
  std::pair<Json, Ran> flight_at(int node, const std::string& timeout = "10") const {
    const std::string file = fmt::format("{}/flight{}.json", folder_.path(), node);
    std::filesystem::remove(file);
    Ran ran = ask(node, {"flight", "--job", "train", "-o", file, "--timeout", timeout});
    std::ifstream in(file);
    return {in ? Json::parse(in, nullptr, false) : Json(), std::move(ran)};
  }
  pid_t engine(int node) const {
    return ask(node, {"status", "--json"}).json().at("jobs").at(0).at("engine_pid");
  }

  std::unique_ptr<Running> ranks_;
};

// Goal:   each node gives the records of all ranks, and operations of groups that span nodes have all
//         members' records under one number.
TEST_F(WholeJob, FlightHasAllNodes) {
  start_ranks();
  if (HasFatalFailure()) return;
  for (const int n : {1, 2}) {
    const auto [flight, ran] = flight_at(n);
    ASSERT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("operations of 4 ranks"), Not(HasSubstr("nothing is known"))));
    ASSERT_EQ(flight.at("ranks").size(), 4u);
    for (const auto& [rank, dump] : flight.at("ranks").items()) {
      const std::string node = rank < "2" ? "node01" : "node02";
      EXPECT_EQ(dump.at("node"), node);
      for (const Json& entry : dump.at("entries")) EXPECT_EQ(entry.at("node"), node);
    }
    int common = 0;
    int differ = 0;
    for (const Json& operation : flight.at("operations")) {
      if (operation.at("members").size() != 4) continue;
      std::set<std::string> names;
      for (const Json& record : operation.at("records")) {
        const Json& entries = flight.at("ranks").at(record.at("rank").dump()).at("entries");
        for (const Json& entry : entries)
          if (entry.at("record_id") == record.at("record_id")) names.insert(entry.at("profiling_name"));
      }
      common += operation.at("records").size() == 4 ? 1 : 0;
      differ += names.size() > 1 ? 1 : 0;
    }
    EXPECT_GT(common, 2) << "operations with a record of each rank";
    EXPECT_EQ(differ, 0) << "one number is one operation on all nodes";
  }
  const std::string pickles = folder_.path() + "/pickles";
  EXPECT_EQ(ask(1, {"flight", "--job", "train", "--pickles", pickles}).code, 0);
  for (const char* rank : {"0", "1", "2", "3"})
    EXPECT_TRUE(std::filesystem::exists(pickles + "/rank_" + rank)) << rank;
  stop_ranks();
}

TEST_F(WholeJob, GroupsSayWhereTheirMembersAre) {
  for (const int n : {1, 2}) {
    const Ran ran = ask(n, {"groups", "--job", "train"});
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("node01:2 node02:2"), Not(HasSubstr("nothing is known"))));
    const Json groups = ask(n, {"groups", "--job", "train", "--json"}).json();
    EXPECT_TRUE(groups.at("unanswered").empty());
    ASSERT_FALSE(groups.at("groups").empty());
    for (const Json& group : groups.at("groups")) {
      std::size_t members = 0;
      for (const Json& place : group.at("on")) members += place.at("ranks").get<std::size_t>();
      EXPECT_EQ(members, group.at("ranks").size());
    }
  }
}

// Goal:   each node shows the rates of all ranks; a node's engine that is stuck is called so, and a node that
//         is away is named.
TEST_F(WholeJob, TopHasTheRanksOfAllNodes) {
  start_ranks();
  if (HasFatalFailure()) return;
  const auto top = [this](int n) { return ask(n, {"top", "--once", "--interval", "0.5", "--json"}).json(); };
  for (const int n : {1, 2}) {
    Json now;
    EXPECT_TRUE(until([&] {
      now = top(n);
      for (const Json& rank : now.at("ranks"))
        if (rank.at("ops_per_s") == 0.0) return false;
      return now.at("ranks").size() == 4;
    })) << now;
    EXPECT_EQ(now.at("node"), n == 1 ? "node01" : "node02");
    EXPECT_EQ(now.at("nodes").size(), 2u);
    for (int rank = 0; rank < 4; ++rank)
      EXPECT_EQ(now.at("ranks").at(static_cast<std::size_t>(rank)).at("node"),
                rank < 2 ? "node01" : "node02");
  }
  const pid_t second = engine(2);
  ASSERT_EQ(kill(second, SIGSTOP), 0);
  EXPECT_TRUE(until([&] {
    const Ran ran = ask(1, {"top", "--once", "--interval", "0.2"});
    return ran.code == 0 &&
           ran.out.find(fmt::format("node02   engine {}, SILENT", second)) != std::string::npos;
  })) << ask(1, {"top", "--once"}).out;
  ASSERT_EQ(kill(second, SIGCONT), 0);
  daemons_[1]->signal(SIGKILL);
  daemons_[1]->wait();
  EXPECT_TRUE(until([&] {
    const Json now = top(1);
    return now.at("unanswered").size() == 1 && now.at("unanswered").at(0).at("node") == "node02";
  })) << top(1);
}

// Goal:   a node that does not answer, or is away, is named with the reason; the rest is shown.
TEST_F(WholeJob, NameTheNodeThatDoesNotAnswer) {
  start_ranks();
  if (HasFatalFailure()) return;
  const pid_t second = engine(2);
  ASSERT_EQ(kill(second, SIGSTOP), 0);
  for (const int n : {1, 2}) {
    const auto [flight, ran] = flight_at(n, "2");
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.out, AllOf(HasSubstr("operations of 2 ranks"),
                               HasSubstr("nothing is known of ranks 2 3 on node02: "),
                               HasSubstr("did not answer within 1.0 s")));
    ASSERT_EQ(flight.at("unanswered").size(), 1u);
    EXPECT_EQ(flight.at("unanswered").at(0).at("ranks"), Json::array({2, 3}));
    const Ran groups = ask(n, {"groups", "--job", "train", "--timeout", "2"});
    EXPECT_EQ(groups.code, 0) << groups.err;
    EXPECT_THAT(groups.out, AllOf(HasSubstr("node01:2 node02:2"), HasSubstr("ranks 2 3 on node02: ")));
  }
  ASSERT_EQ(kill(second, SIGCONT), 0);
  EXPECT_TRUE(until([&] { return flight_at(1).first.at("unanswered").empty(); }));
  daemons_[1]->signal(SIGKILL);
  daemons_[1]->wait();
  EXPECT_TRUE(until([&] {
    const Ran ran = ask(1, {"groups", "--job", "train"});
    return ran.code == 0 && ran.out.find("on node02: node node02 is away: ") != std::string::npos;
  })) << ask(1, {"groups", "--job", "train"}).out;
  EXPECT_THAT(flight_at(1).second.out,
              HasSubstr("nothing is known of ranks 2 3 on node02: node node02 is away"));
}

}  // namespace
}  // namespace muster::test
