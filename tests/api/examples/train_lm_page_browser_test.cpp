// The page of train_lm --html: what a real run writes, and how a browser shows it. train_lm_page_browser.py
// says what is looked at.
#include "api/examples/train_lm/page.hpp"
#include "tests/support/folder.hpp"

#include <cstdio>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>

namespace train_lm {
namespace {

constexpr int kSkipped = 77;

struct Outcome {
  int status = -1;
  std::string said;
};

Outcome shell(const std::string& command) {
  Outcome outcome;
  FILE* pipe = ::popen((command + " 2>&1").c_str(), "r");
  if (pipe == nullptr) return outcome;
  char part[4096];
  while (const std::size_t size = std::fread(part, 1, sizeof part, pipe)) outcome.said.append(part, size);
  const int raw = ::pclose(pipe);
  outcome.status = WIFEXITED(raw) ? WEXITSTATUS(raw) : -1;
  return outcome;
}

// The last thing that a test does: without a browser it is skipped.
void expect_looks_well(const std::string& page) {
  const Outcome outcome = shell(PYTHON " " PAGE_BROWSER " " + page);
  if (outcome.status == kSkipped) GTEST_SKIP() << outcome.said;
  EXPECT_EQ(outcome.status, 0) << outcome.said;
}

// The page of a small run on the demo's mesh. Fails the test if there is none.
std::string page_of_real_run(const muster::test::Folder& folder) {
  std::string page = folder.path() + "/page.html";
  const Outcome run =
      shell(MUSTER_PROGRAM " run --private -n 8 --mesh dp_replicate=2,dp_shard=2,tp=2 -- " TRAIN_LM_PROGRAM
                           " --steps 3 --layers 2 --width 24 --context 16 --batch 8 --verify --html " +
            page);
  EXPECT_EQ(run.status, 0) << run.said;
  return page;
}

// A bar of the timeline, as the page has it.
struct Bar {
  std::string style, name, lane, step, rest;
};

std::vector<Bar> bars_in(const std::string& html) {
  const std::regex bar(
      "<rect class=\"([a-z]+)\"[^>]*><title>([^,]*),[^\n]*\n"
      "rank [0-9]+, lane ([^,<\n]*)(?:, step ([0-9]+))?([^<]*)</title>");
  std::vector<Bar> bars;
  for (std::sregex_iterator at(html.begin(), html.end(), bar), none; at != none; ++at)
    bars.push_back({(*at)[1], (*at)[2], (*at)[3], (*at)[4], (*at)[5]});
  return bars;
}

// Goal:   the page explains the program's own records: parameters and gradients have their colours, and each
//         bar names its step and its unit.
TEST(TrainLmPageOfARun, SaysWhatTheBarsAre) {
  const muster::test::Folder folder;
  std::ifstream file(page_of_real_run(folder));
  const std::string html{std::istreambuf_iterator<char>(file), {}};
  const std::vector<Bar> bars = bars_in(html);
  std::set<std::string> styles;
  for (const Bar& bar : bars) {
    styles.insert(bar.style);
    const std::string what = bar.name + " on " + bar.lane + bar.rest;
    if (bar.lane == "direct") {  // what ranks compare among themselves is of no step
      EXPECT_EQ(bar.style, "small") << what;
      continue;
    }
    EXPECT_TRUE(bar.step >= "1" && bar.step <= "3") << what << " in step '" << bar.step << "'";
    if (bar.name == "all_gather") EXPECT_EQ(bar.style, "gather") << what;
    if (bar.name == "reduce_scatter") EXPECT_EQ(bar.style, "reduce") << what;
    if (bar.lane.starts_with("allreduce")) EXPECT_EQ(bar.style, "allreduce") << what;
    const bool of_unit = bar.style == "gather" || bar.style == "reduce" || bar.style == "allreduce";
    if (of_unit)
      EXPECT_TRUE(std::regex_search(bar.rest, std::regex("^\n(embedding|block[01]|head)\ngroup "))) << what;
  }
  for (const char* style : {"forward", "backward", "update", "gather", "small", "reduce", "allreduce"})
    EXPECT_TRUE(styles.contains(style)) << style;
  for (const char* shown : {">step 2</span>", ">step 3</span>", ">allreduce/model</span>", "--names:15ch"})
    EXPECT_NE(html.find(shown), std::string::npos) << shown;
}

TEST(TrainLmPageBrowser, ShowsTheLanesOfARealRun) {
  const muster::test::Folder folder;
  expect_looks_well(page_of_real_run(folder));
}

TEST(TrainLmPageBrowser, ShowsEveryColourAndNamesThatLookLikeHtml) {
  const std::string hostile = "</title></pre><img src=x onerror=fail()><b>&\"'</b><script>fail()</script>";
  PageContent content{.mesh = hostile,
                      .sample = hostile,
                      .figures = {.losses = {3.0F, 2.0F, 1.5F}, .alone = {3.0F, 2.5F, 1.5F}},
                      .world = 3};
  double begin = -40.0;
  for (const char* lane :
       {"compute", "gather/model", "small", "reduce/model", "allreduce/model", "halo", hostile.c_str()})
    for (const char* name :
         {"forward", "dgrad", "adamw", "all_gather", "reduce_scatter", "all_reduce", hostile.c_str()})
      for (const std::int32_t rank : {0, 1, 2})
        content.events.push_back({.name = name,
                                  .lane = lane,
                                  .group = lane == std::string("compute") ? "" : hostile,
                                  .site = hostile,
                                  .bytes = 4096,
                                  .rank = rank,
                                  .step = begin < 5000.0 ? 1 : 2,
                                  .begin_us = begin += 70.0,
                                  .duration_us = 65.0});
  const muster::test::Folder folder;
  expect_looks_well(folder.write("page.html", page_html(content)));
}

TEST(TrainLmPageBrowser, ShowsARunWithoutATrace) {
  const muster::test::Folder folder;
  expect_looks_well(folder.write("page.html", page_html({.mesh = "tp=1", .figures = {.losses = {2.0F}}})));
}

}  // namespace
}  // namespace train_lm
