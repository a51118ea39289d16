#include "daemon/cli/ask/top_view.hpp"

#include "api/base/utf8.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

std::vector<std::string> lines_in(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

// A job whose rank r does 10 r operations a second, and of which odd ranks wait half of the time.
Json job_of(int ranks) {
  Json now{{"engine_pid", 77}, {"engine_stuck", false}, {"engine_silent_s", 0.0}};
  now["ranks"] = Json::array();
  now["groups"] = Json::array();
  for (int r = 0; r < ranks; ++r) {
    const Json units{{"whole_bytes", 1024},  {"place_bytes", 4096},  {"budget_bytes", 0},   {"prefetch", 1},
                     {"prefetch_asked", 1u}, {"demands_per_s", 0.0}, {"skipped_per_s", 0.0}};
    now["ranks"].push_back({{"rank", r},
                            {"attached", true},
                            {"pid", 4000 + r},
                            {"ops_per_s", 10.0 * r},
                            {"bytes_per_s", 0.0},
                            {"exposed", r % 2 == 0 ? 0.0 : 0.5},
                            {"compute", 0.25},
                            {"in_flight", 3u},
                            {"late", false},
                            {"late_in", 0u},
                            {"lag", nullptr},
                            {"buffer_bytes", 1u << 20},
                            {"units", units}});
    now["groups"].push_back({{"group", "made" + std::to_string(r)},
                             {"id", r},
                             {"ranks", 2u},
                             {"ops_per_s", 1.0},
                             {"bytes_per_s", 1.0},
                             {"exposed", 0.0},
                             {"busy", 0.1},
                             {"in_flight", 1u},
                             {"failed", 0u}});
  }
  return now;
}

// The numbers of the ranks that are shown, from top to bottom.
std::vector<int> ranks_in(const std::string& text) {
  std::vector<int> ranks;
  bool table = false;
  for (const std::string& line : lines_in(text)) {
    if (line.starts_with("RANK")) {
      table = true;
    } else if (table) {
      if (line.empty() || line.front() < '0' || line.front() > '9') break;
      ranks.push_back(std::stoi(line));
    }
  }
  return ranks;
}

// Goal:   a window shows all that it has room for and never scrolls, whatever its size.
TEST(TopView, FitsEachWindow) {
  for (const int ranks : {1, 8, 300})
    for (const std::size_t rows : {1u, 2u, 5u, 10u, 24u, 60u, 200u})
      for (const std::size_t columns : {20u, 40u, 80u, 100u}) {
        const auto lines = lines_in(TopView().text("train", job_of(ranks), {columns, rows}));
        EXPECT_LT(lines.size(), rows) << ranks << " ranks, " << columns << " columns";
        for (const std::string& line : lines) EXPECT_LE(utf8_characters(line), columns) << line;
      }
  const auto lines = lines_in(TopView().text("train", job_of(300), {100, 24}));
  EXPECT_EQ(lines.size(), 23u) << "no line is given away";
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("… 1 to 5 of 300 ranks")));
  EXPECT_THAT(lines, ::testing::Contains(HasSubstr("of 300 groups")));
  EXPECT_EQ(ranks_in(TopView().text("train", job_of(8), {100, 24})).size(), 5u) << "units and groups too";
  EXPECT_EQ(ranks_in(TopView().text("train", job_of(8), {100, 60})).size(), 8u);
  EXPECT_EQ(ranks_in(TopView().text("train", job_of(300), {100, 0})).size(), 300u) << "a file has room";
}

TEST(TopView, SortsByTheColumnOfAKey) {
  Json job = job_of(4);
  job["ranks"][2]["attached"] = false;
  job["ranks"][1]["lag"] = {{"group", "tp"}, {"group_id", 0}, {"median_ns", 9}, {"others_ns", 1}};
  const TopView::Window window{100, 60};
  TopView view;
  EXPECT_THAT(ranks_in(view.text("train", job, window)), ElementsAre(0, 1, 2, 3));
  EXPECT_THAT(view.text("train", job, window), HasSubstr("h: keys   q: end   by RANK, lowest first\n"));
  ASSERT_TRUE(view.press('o'));
  EXPECT_THAT(ranks_in(view.text("train", job, window)), ElementsAre(3, 1, 0, 2)) << "who is absent is last";
  EXPECT_THAT(view.text("train", job, window), HasSubstr("by OPS/S, highest first"));
  ASSERT_TRUE(view.press('i'));
  EXPECT_THAT(ranks_in(view.text("train", job, window)), ElementsAre(2, 0, 1, 3));
  ASSERT_TRUE(view.press('e'));
  EXPECT_THAT(ranks_in(view.text("train", job, window)), ElementsAre(1, 3, 0, 2)) << "equal ones by rank";
  ASSERT_TRUE(view.press('l'));
  EXPECT_EQ(ranks_in(view.text("train", job, window)).front(), 1);
  for (const char key : {'r', 'b', 'c', 'f', 'm'}) EXPECT_TRUE(view.press(key)) << key;
  EXPECT_FALSE(view.press('x'));
}

TEST(TopView, GoesOnToOtherRanksAndStopsAtTheLast) {
  const Json job = job_of(20);
  const TopView::Window window{100, 24};
  TopView view;
  const auto first = ranks_in(view.text("train", job, window));
  ASSERT_EQ(first, (std::vector<int>{0, 1, 2, 3, 4}));
  std::vector<int> seen = first;
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(view.press('n'));
    for (const int rank : ranks_in(view.text("train", job, window)))
      if (rank > seen.back()) seen.push_back(rank);
  }
  EXPECT_EQ(seen.size(), 20u);
  const auto last = ranks_in(view.text("train", job, window));
  EXPECT_EQ(last.back(), 19);
  view.press('n');
  EXPECT_EQ(ranks_in(view.text("train", job, window)), last);
  view.press('p');
  EXPECT_NE(ranks_in(view.text("train", job, window)), last) << "one key is enough to go back";
}

TEST(TopView, ExplainsItsKeysAndColumns) {
  TopView view;
  ASSERT_TRUE(view.press('h'));
  const std::string help = view.text("train", job_of(2), {80, 24});
  EXPECT_THAT(help,
              AllOf(HasSubstr("e     sort by EXPOSED"), HasSubstr("q     end"), Not(HasSubstr("RANKS"))));
  EXPECT_LT(lines_in(help).size(), 24u);
  EXPECT_THAT(help, Not(HasSubstr("…"))) << "a usual window has room for all of it";
  EXPECT_THAT(view.text("train", job_of(2), {80, 12}), HasSubstr("\n… 1 to 9 of 15 lines\n"));
  ASSERT_TRUE(view.press('?'));
  EXPECT_THAT(view.text("train", job_of(2), {80, 24}), HasSubstr("RANK"));
}

// Goal:   what a narrow window leaves out is said in words that fit it.
TEST(TopView, SaysInANarrowWindowThatColumnsAreLeftOut) {
  EXPECT_THAT(TopView().text("train", job_of(8), {50, 12}), HasSubstr(" of 8 ranks (3 columns left out)\n"));
  EXPECT_THAT(TopView().text("train", job_of(2), {50, 40}), HasSubstr("\n(3 columns left out)\n"));
  EXPECT_THAT(TopView().text("train", job_of(2), {60, 40}), HasSubstr("(60 columns are too few for PID"));
}

// Goal:   no share of a time is shown as more than all of it, whatever a node has said.
TEST(TopView, ShowsNoShareAboveAll) {
  Json job = job_of(2);
  for (const char* share : {"exposed", "compute"}) job["ranks"][0][share] = 1.07;
  for (const char* share : {"exposed", "busy"}) job["groups"][0][share] = 3.5;
  const std::string text = TopView().text("train", job, {});
  EXPECT_THAT(text, AllOf(HasSubstr("100 %"), Not(HasSubstr("107 %")), Not(HasSubstr("350 %"))));
}

TEST(TopView, WritesTablesAloneIntoAFile) {
  EXPECT_EQ(lines_in(TopView().text("train", job_of(2), {})).front(), "job train   engine 77");
}

}  // namespace
}  // namespace muster::cli
