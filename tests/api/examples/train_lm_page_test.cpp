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
{"ph":"X","name":"all_gather","cat":"gather","pid":3,"tid":3,"ts":2.0,"dur":4.0,"args":{}}
]})";

TEST(TrainLmPage, ReadsTheCompleteEventsOfATrace) {
  const auto events = read_trace(kTrace);
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].name, "linear_forward");
  EXPECT_EQ(events[0].lane, "compute");
  EXPECT_EQ(events[0].duration_us, 2.25);
  EXPECT_EQ(events[1].rank, 3);
  EXPECT_EQ(events[1].begin_us, 2.0);
}

TEST(TrainLmPage, RefusesWhatIsNoTrace) {
  EXPECT_THROW(read_trace(""), std::runtime_error);
  EXPECT_THROW(read_trace("[]"), std::runtime_error);
  EXPECT_THROW(read_trace("{\"traceEvents\""), std::runtime_error);
}

TEST(TrainLmPage, IsOneFileWithBothDrawingsAndNothingFromElsewhere) {
  PageContent content{
      "dp_shard=4", "a <b> & c", {.losses = {3.0F, 2.0F, 1.5F}, .alone = {3.0F, 2.0F, 1.5F}}, {}, {0, 3}};
  content.events = read_trace(kTrace);
  const std::string html = page_html(content);
  EXPECT_THAT(html, HasSubstr("class=\"sharded\""));
  EXPECT_THAT(html, HasSubstr("class=\"alone\""));
  EXPECT_THAT(html, HasSubstr("<title>all_gather, 4 us</title>"));
  EXPECT_THAT(html, HasSubstr("rank 3"));
  EXPECT_THAT(html, HasSubstr("a &lt;b&gt; &amp; c"));
  EXPECT_THAT(html, Not(HasSubstr("<script")));
  EXPECT_THAT(html, Not(HasSubstr("http")));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
}

TEST(TrainLmPage, SurvivesARunOfOneStepWithoutEvents) {
  const std::string html = page_html({"dp_shard=1", "", {.losses = {2.0F}}, {}, {0}});
  EXPECT_THAT(html, HasSubstr("no events"));
  EXPECT_THAT(html, Not(HasSubstr("nan")));
  EXPECT_THAT(html, Not(HasSubstr("inf")));
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
  EXPECT_EQ(without.size(), 6u);
  EXPECT_EQ(without["steps"], 2);
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
