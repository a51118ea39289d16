#include "api/examples/train_lm/page.hpp"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace train_lm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr const char* kTrace =
    R"({"traceEvents":[
{"ph":"M","name":"process_name","pid":0,"args":{"name":"rank 0"}},
{"ph":"X","name":"linear_forward","cat":"compute","pid":0,"tid":0,"ts":1.5,"dur":2.25,"args":{}},
{"ph":"X","name":"all_gather","cat":"gather","pid":3,"tid":3,"ts":2.0,"dur":4.0,
 "args":{"bytes":1536,"group":"dp_shard"}}
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
  EXPECT_THAT(html, HasSubstr("<title>all_gather, 4.0 \u00b5s, from 0.001 ms\nrank 3, lane gather\n"
                              "group dp_shard, 1.5 kB</title>"));
  EXPECT_THAT(html, HasSubstr("a sample"));
  for (const char* unwanted : {"http:", "https:", "@import", "url(", "{{", "nan"})
    EXPECT_THAT(html, Not(HasSubstr(unwanted)));
}

TEST(TrainLmPage, ExplainsEachColourThatItDrawsAndNoOther) {
  const auto page_of = [](const char* lane, const char* name) {
    return page_html(
        {.figures = {.losses = {1.0F}}, .events = {{.name = name, .lane = lane, .duration_us = 1}}});
  };
  const struct {
    const char *lane, *name, *style, *meaning;
  } kinds[] = {{"compute", "linear_forward", "forward", "forward pass"},
               {"compute", "linear_dgrad", "backward", "backward pass"},
               {"compute", "adamw", "update", "optimizer"},
               {"compute", "copy", "other", "anything else"},
               {"halo", "exchange", "other", "anything else"},
               {"gather", "all_gather", "gather", "all-gather"},
               {"small", "all_reduce", "small", "small collectives"},
               {"reduce", "reduce_scatter", "reduce", "reduce-scatter"},
               {"allreduce", "all_reduce", "allreduce", "all-reduce of gradients"}};
  for (const auto& kind : kinds) {
    const std::string html = page_of(kind.lane, kind.name);
    const std::string rect = std::string("<rect class=\"") + kind.style + "\"";
    EXPECT_EQ(count_of(html, rect), 2) << "one in the legend, one in the drawing: " << kind.name;
    EXPECT_EQ(count_of(html, "<rect "), 2) << kind.name;
    EXPECT_THAT(html, HasSubstr(kind.meaning));
    EXPECT_EQ(count_of(html, std::string(".") + kind.style + "{--colour:"), 2) << "light and dark";
  }
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
  const std::string html =
      page_html({.mesh = hostile,
                 .sample = hostile,
                 .figures = {.losses = {1.0F}},
                 .events = {{.name = hostile, .lane = hostile, .group = hostile, .duration_us = 1}}});
  EXPECT_THAT(html, Not(HasSubstr(hostile)));
  EXPECT_EQ(count_of(html, safe), 6) << "mesh, sample, name of the lane; name, lane and group of the bar";
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

TEST(TrainLmFigures, WriteSizesAndBytesForPeople) {
  EXPECT_EQ(bytes_text(999), "999 B");
  EXPECT_EQ(bytes_text(1440000), "1.4 MB");
  EXPECT_EQ(printable("a\nb\x01\xff~"), "a\nb..~");
}

}  // namespace
}  // namespace train_lm
