// The page of train_lm --html, as a browser shows it: train_lm_page_browser.py says what is looked at.
#include "api/examples/train_lm/page.hpp"
#include "tests/support/folder.hpp"

#include <cstdio>
#include <string>

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

TEST(TrainLmPageBrowser, ShowsTheLanesOfARealRun) {
  const muster::test::Folder folder;
  const std::string page = folder.path() + "/page.html";
  const Outcome run =
      shell(MUSTER_PROGRAM " run --private -n 8 --mesh dp_replicate=2,dp_shard=2,tp=2 -- " TRAIN_LM_PROGRAM
                           " --steps 3 --layers 2 --width 24 --context 16 --batch 8 --verify --html " +
            page);
  ASSERT_EQ(run.status, 0) << run.said;
  expect_looks_well(page);
}

TEST(TrainLmPageBrowser, ShowsEveryColourAndNamesThatLookLikeHtml) {
  const std::string hostile = "</title></pre><img src=x onerror=fail()><b>&\"'</b><script>fail()</script>";
  PageContent content{.mesh = hostile,
                      .sample = hostile,
                      .figures = {.losses = {3.0F, 2.0F, 1.5F}, .alone = {3.0F, 2.5F, 1.5F}},
                      .world = 3};
  double begin = -40.0;
  for (const char* lane : {"compute", "gather", "small", "reduce", "allreduce", "halo", hostile.c_str()})
    for (const char* name : {"forward", "dgrad", "adamw", hostile.c_str()})
      for (const std::int32_t rank : {0, 1, 2})
        content.events.push_back({.name = name,
                                  .lane = lane,
                                  .group = hostile,
                                  .bytes = 4096,
                                  .rank = rank,
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
