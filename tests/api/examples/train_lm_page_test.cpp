#include "api/examples/train_lm/page.hpp"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace train_lm {

using namespace training;

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTrace =
    R"({"traceEvents":[
{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0"}},
{"ph":"X","name":"linear_forward","cat":"compute","pid":0,"tid":0,"ts":1.5,"dur":2.25,"args":{}},
{"ph":"X","name":"all_gather","cat":"gather/model","pid":3,"tid":3,"ts":2.0,"dur":4.0,
 "args":{"bytes":1536,"group":"dp_shard","site":"block0","step":7}}
]})";

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(TrainLmPage, ReadsTheCompleteEventsOfATrace) {
  const auto events = read_trace(kTrace);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "linear_forward");
  EXPECT_EQ(events[0].lane, "compute");
  EXPECT_EQ(events[0].duration_us, 2.25);
  EXPECT_EQ(events[1].rank, 3);
  EXPECT_EQ(events[1].begin_us, 2.0);
  EXPECT_EQ(events[1].group, "dp_shard");
  EXPECT_EQ(events[1].bytes, 1536);
  EXPECT_EQ(events[1].site, "block0");
  EXPECT_EQ(events[1].step, 7);
}

TEST(TrainLmPage, RefusesWhatIsNoTrace) {
  EXPECT_THROW(read_trace(""), std::runtime_error);
  EXPECT_THROW(read_trace("[]"), std::runtime_error);
  EXPECT_THROW(read_trace("{\"traceEvents\""), std::runtime_error);
  EXPECT_THROW(read_trace("{\"traceEvents\":[7]}"), std::runtime_error);
  EXPECT_THROW(read_trace(R"({"traceEvents":[{"ph":"X","name":7}]})"), std::runtime_error);
}

TEST(TrainLmPage, IsOneFileWithBothDrawingsAndNothingFromElsewhere) {
  const std::string html = page_html({.mesh = "dp_shard=4",
                                      .sample = "a sample",
                                      .figures = {.losses = {3.0F, 2.0F}, .alone = {3.0F, 2.0F}},
                                      .events = read_trace(kTrace),
                                      .world = 4});
  EXPECT_THAT(html, HasSubstr("<polyline class=\"sharded\""));
  EXPECT_THAT(html, HasSubstr("<polyline class=\"alone\""));
  EXPECT_THAT(html, HasSubstr("<title>all_gather, 4.0 \u00b5s, from 0.001 ms\n"
                              "rank 3, lane gather/model, step 2\nblock0\n"
                              "group dp_shard, 1.5 kB</title>"));
  EXPECT_THAT(html, HasSubstr("a sample"));
  for (const char* unwanted : {"http:", "https:", "@import", "url(", "{{", "nan"})
    EXPECT_THAT(html, Not(HasSubstr(unwanted)));
}

TEST(TrainLmPage, ExplainsEachColourThatItDrawsAndNoOther) {
  const auto page_of = [](const char* lane, const char* name, const char* group) {
    return page_html({.figures = {.losses = {1.0F}},
                      .events = {{.name = name, .lane = lane, .group = group, .duration_us = 1}}});
  };
  const struct {
    const char *lane, *name, *group, *style, *meaning;
  } kinds[] = {{"compute", "linear_forward", "", "forward", "forward pass"},
               {"compute", "linear_dgrad", "", "backward", "backward pass"},
               {"compute", "adamw", "", "update", "optimizer"},
               {"compute", "copy", "", "other", "anything else"},
               {"halo", "exchange", "cp", "other", "anything else"},
               {"gather/model", "all_gather", "dp_shard", "gather", "all-gather"},
               {"gather", "all_gather", "dp_shard", "gather", "all-gather"},
               {"gather/model", "cast", "", "other", "anything else"},
               {"direct", "all_gather", "tp", "small", "what ranks agree on"},
               {"small", "all_reduce", "tp", "small", "small collectives"},
               {"reduce/model", "reduce_scatter", "dp_shard", "reduce", "reduce-scatter"},
               {"reduce/model", "sum_squares", "", "update", "norm of the gradient"},
               {"reduce/model", "all_reduce", "weight", "small", "norm"},
               {"allreduce/model", "all_reduce", "dp_replicate", "allreduce", "all-reduce of gradients"}};
  for (const auto& kind : kinds) {
    const std::string html = page_of(kind.lane, kind.name, kind.group);
    const std::string rect = std::string("<rect class=\"") + kind.style + "\"";
    EXPECT_EQ(count_of(html, rect), 2) << "one in the legend, one in the drawing: " << kind.name;
    EXPECT_EQ(count_of(html, "<rect "), 2) << kind.name;
    EXPECT_THAT(html, HasSubstr(kind.meaning));
    EXPECT_EQ(count_of(html, std::string(".") + kind.style + "{--colour:"), 2) << "light and dark";
  }
}

// Goal:   each rank's steps are marked where it begins them, by their numbers in the training.
TEST(TrainLmPage, MarksTheStepsOfEachRank) {
  const auto event = [](std::int32_t rank, std::int64_t step, const char* lane, double begin_us) {
    return LaneEvent{
        .name = "copy", .lane = lane, .rank = rank, .step = step, .begin_us = begin_us, .duration_us = 100};
  };
  const std::string html = page_html(
      {.figures = {.losses = std::vector<float>(10, 1.0F)},
       .events = {event(0, 0, "direct", 0), event(0, 8, "gather/model", 50), event(0, 8, "compute", 100),
                  event(0, 8, "compute", 300), event(0, 9, "compute", 500), event(1, 8, "gather/model", 200),
                  event(1, 9, "gather/model", 600), event(1, 9, "small", 900)},
       .world = 2,
       .steps_before = 30});
  EXPECT_THAT(html, HasSubstr("<span>step 31</span><span>step 40</span>")) << "of the losses";
  EXPECT_THAT(html, HasSubstr("<span data-at=\"100.00\" style=\"left:10.000%\">step 39</span>"
                              "<span data-at=\"500.00\" style=\"left:50.000%\">step 40</span>"));
  EXPECT_THAT(html, HasSubstr("<path class=\"step\" d=\"M100.00 0V96M500.00 0V96\"/>"));
  EXPECT_THAT(html, HasSubstr("<path class=\"step\" d=\"M200.00 0V96M600.00 0V96\"/>")) << "of rank 1";
  EXPECT_THAT(html, HasSubstr("lane compute, step 39")) << "a bar says its step";
  EXPECT_EQ(count_of(html, "lane direct</title>"), 1) << "nothing is said where no step is known";
}

// Goal:   names fit the column that stands beside the bars, and a very long one does not take their room.
TEST(TrainLmPage, GivesNamesOfLanesTheirRoom) {
  const auto names_of = [](const std::string& lane) {
    return page_html({.figures = {.losses = {1.0F}}, .events = {{.lane = lane, .duration_us = 1}}});
  };
  EXPECT_THAT(names_of("small"), HasSubstr("--names:8ch"));
  EXPECT_THAT(names_of("allreduce/model"), HasSubstr("--names:15ch"));
  EXPECT_THAT(names_of(std::string(64, 'x')), HasSubstr("--names:24ch"));
}

TEST(TrainLmPage, SaysWhatExposedMeansAndWhyItShowsTheseRanks) {
  const auto page_of = [](std::int32_t world) {
    return page_html({.figures = {.losses = {1.0F}, .exposed_fraction = 0.0825},
                      .events = {{.name = "copy", .lane = "compute", .rank = 0, .duration_us = 1},
                                 {.name = "copy", .lane = "compute", .rank = 5, .duration_us = 1},
                                 {.name = "copy", .lane = "compute", .rank = 7, .duration_us = 1}},
                      .world = world});
  };
  const std::string html = page_of(8);
  EXPECT_THAT(html, HasSubstr("<td>8.2 %</td>"));
  EXPECT_THAT(html, HasSubstr("<b>Exposed communication</b> is the time in which a rank computes nothing"));
  EXPECT_THAT(html, HasSubstr("Two of the 8 ranks are shown"));
  EXPECT_THAT(html, HasSubstr("<h3>rank 0</h3>"));
  EXPECT_THAT(html, HasSubstr("<h3>rank 7</h3>"));
  EXPECT_THAT(html, Not(HasSubstr("rank 5")));
  EXPECT_THAT(page_of(2), HasSubstr("Both ranks of the run are shown."));
  EXPECT_THAT(page_of(1), HasSubstr("The run has one rank."));
}

TEST(TrainLmPage, TakesTextOfTheRunForText) {
  const std::string hostile = "</title><script>\"&{{facts}}";
  const std::string safe = "&lt;/title&gt;&lt;script&gt;&quot;&amp;{{facts}}";
  const std::string html = page_html(
      {.mesh = hostile,
       .sample = hostile,
       .figures = {.losses = {1.0F}},
       .events = {{.name = hostile, .lane = hostile, .group = hostile, .site = hostile, .duration_us = 1}}});
  EXPECT_THAT(html, Not(HasSubstr(hostile)));
  EXPECT_EQ(count_of(html, safe), 8) << "mesh, sample; lane, twice; name, lane, site and group of the bar";
  EXPECT_EQ(count_of(html, "<script>"), 1);
}

TEST(TrainLmPage, SurvivesARunOfOneStepWithoutEvents) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::string html = page_html({.mesh = "dp_shard=1", .figures = {.losses = {2.0F}}});
  EXPECT_THAT(html, HasSubstr("no events"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf")));
  EXPECT_THAT(page_html({.figures = {.losses = {nan, nan}}}), HasSubstr("nan nats a byte"));
}

TEST(TrainLmFigures, SayTheLargestDifference) {
  const Figures figures{.losses = {3.0F, 2.0F, 1.0F}, .alone = {3.0F, 2.5F, 0.75F}};
  EXPECT_EQ(figures.max_loss_difference(), 0.5F);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(
      std::isnan(Figures{.losses = {3.0F, nan, 1.0F}, .alone = {1.0F, 2.0F, 1.0F}}.max_loss_difference()));
}

TEST(TrainLmFigures, AreOneLineOfJson) {
  Figures figures{
      .losses = {3.0F, 2.0F}, .tokens_per_second = 1e4, .exposed_fraction = 0.25, .peak_unsharded_bytes = 99};
  const auto without = nlohmann::json::parse(figures_json(figures));
  EXPECT_EQ(without.size(), 8u);
  EXPECT_EQ(without["steps"], 2);
  EXPECT_EQ(without["losses"], (std::vector<float>{3.0F, 2.0F}));
  EXPECT_EQ(without["final_loss"], 2.0);
  EXPECT_TRUE(without["max_loss_difference"].is_null());
  EXPECT_EQ(without["exposed_fraction"], 0.25);
  EXPECT_EQ(without["peak_unsharded_bytes"], 99);
  figures.alone = {3.0F, 1.5F};
  EXPECT_EQ(nlohmann::json::parse(figures_json(figures))["max_loss_difference"], 0.5);
  EXPECT_THAT(figures_json(figures), Not(HasSubstr("\n")));
}

TEST(TrainLmFigures, FitTheTerminalThatTheyAreWrittenOver) {
  const std::string figures = "step 3/8  loss 5.6  9 tokens/s";
  EXPECT_EQ(fitting_line("train", "##--", figures, 80), "train [##--] " + figures);
  EXPECT_EQ(fitting_line("train", "##--", figures, 40), "train  " + figures);
  EXPECT_EQ(fitting_line("train", "##--", figures, 30), "train  step 3/8  loss 5.6");
  for (std::size_t columns = 1; columns < 50; ++columns)
    EXPECT_LT(fitting_line("train", "##--", figures, columns).size(), columns);
}

TEST(TrainLmFigures, WriteSizesAndBytesForPeople) {
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1440000), "1.4 MB");
  EXPECT_EQ(printable("a\nb\x01\xff~"), "a\nb..~");
}

}  // namespace
}  // namespace train_lm
