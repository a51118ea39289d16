#include "tests/bench/report.hpp"

#include "tests/bench/plot.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::bench {
namespace {

using testing::HasSubstr;
using testing::Not;

Row row(const char* peer, const char* path, std::size_t bytes, double microseconds) {
  return {"all_reduce", bytes, 2, path, peer, microseconds, microseconds, 9};
}

Report sample() {
  Report report;
  report.add(row("muster", "direct", 8, 0.5));
  report.add(row("muster", "engine", 8, 4.0));
  report.add(row("openmpi", "vader", 8, 2.0));
  report.add(row("openmpi", "ucx", 8, 3.0));
  report.add(row("gloo", "tcp", 8, 100.0));
  report.set_floor({"all_reduce", 8, 2}, 0.25);
  return report;
}

std::string line_with(const std::string& text, const std::string& word) {
  const std::size_t at = text.find(word);
  if (at == std::string::npos) return {};
  const std::size_t begin = text.rfind('\n', at) + 1;
  return text.substr(begin, text.find('\n', at) - begin);
}

TEST(Report, PutsEachPathBesideTheBestPeerAndTheFloor) {
  const std::string direct = line_with(sample().text(), " direct ");
  EXPECT_THAT(direct, HasSubstr("openmpi/vader"));
  EXPECT_THAT(direct, HasSubstr(" 4.00 "));        // peer/muster
  EXPECT_THAT(direct, testing::EndsWith("50.0"));  // percent of the floor's speed
  EXPECT_THAT(line_with(sample().text(), " engine "), testing::EndsWith("6.25"));
}

TEST(Report, CountsTheBestOfSeveralLooks) {
  Report report = sample();
  report.add({"all_reduce", 8, 2, "direct", "muster", 0.4, 0.3, 9});
  report.add({"all_reduce", 8, 2, "direct", "muster", 0.9, 0.2, 9});
  ASSERT_EQ(report.rows().size(), sample().rows().size());
  EXPECT_EQ(report.rows().front().median_us, 0.4);
  EXPECT_EQ(report.rows().front().minimum_us, 0.2);
  EXPECT_EQ(report.rows().front().samples, 27);
}

TEST(Report, SumsUpEachPath) {
  const std::string text = sample().text();
  EXPECT_THAT(text, HasSubstr("direct: ahead of the best peer in 1 of 1 cells"));
  EXPECT_THAT(text, HasSubstr("engine: ahead of the best peer in 0 of 1 cells"));
}

TEST(Report, ShowsACellThatMusterHasNot) {
  Report report;
  report.add(row("mpich", "ch4", 1024, 2.0));
  EXPECT_THAT(line_with(report.text(), "1 KiB"), HasSubstr("mpich/ch4"));
}

TEST(Report, NamesWhatIsLeftOut) {
  Report report;
  report.leave_out("gloo was not there");
  EXPECT_THAT(report.text(), HasSubstr("left out: gloo was not there"));
  EXPECT_EQ(report.to_json({}).at("left_out").at(0), "gloo was not there");
}

TEST(Report, TakesWhatRanksPrintAndNoOtherWords) {
  Report report;
  const Status status = report.take(
      "a warning of some launcher\n"
      "{\"peer\":\"mpich\",\"version\":\"4.0.2\"}\n"
      "{\"operation\":\"halo\",\"bytes\":8,\"ranks\":2,\"path\":\"ch4\",\"peer\":\"mpich\",\"median_us\":1.5,"
      "\"minimum_us\":1.25,\"samples\":9}\n"
      "{\"figure\":\"memory\",\"ranks\":2,\"path\":\"ch4\",\"peer\":\"mpich\",\"value\":24.5,\"unit\":"
      "\"MiB\"}\n"
      "{\"left_out\":\"mpich: halo: too slow\"}");
  ASSERT_TRUE(status.ok()) << status.message();
  const auto json = report.to_json({});
  EXPECT_EQ(json.at("versions").at("mpich"), "4.0.2");
  EXPECT_EQ(json.at("rows").at(0).at("operation"), "halo");
  EXPECT_EQ(json.at("rows").at(0).at("minimum_us"), 1.25);
  EXPECT_TRUE(json.at("rows").at(0).at("floor_us").is_null());
  EXPECT_EQ(json.at("figures").at(0).at("value"), 24.5);
  EXPECT_EQ(json.at("left_out").size(), 1u);
}

TEST(Report, RefusesALineThatIsNoRow) {
  Report report;
  const Status status = report.take("{\"peer\":\"mpich\",\"median_us\":1.5}\n");
  EXPECT_EQ(status.code(), Code::kProtocol);
  EXPECT_THAT(status.message(), HasSubstr("is no row"));
}

TEST(Report, SaysFiguresWithThreeDigits) {
  EXPECT_EQ(figure_text(12345.6), "12346");
  EXPECT_EQ(figure_text(12.345), "12.3");
  EXPECT_EQ(figure_text(1.2345), "1.23");
  EXPECT_EQ(figure_text(0.12345), "0.123");
  EXPECT_EQ(figure_text(-12.345), "-12.3");
  EXPECT_EQ(size_text(8), "8 B");
  EXPECT_EQ(size_text(65536), "64 KiB");
  EXPECT_EQ(size_text(std::size_t{256} << 20), "256 MiB");
}

TEST(Plot, HasALineForEachPathForEachPeerAndForTheFloor) {
  Report report = sample();
  report.add(row("muster", "direct", 1048576, 50.0));
  const std::string picture = plot_of(report, "all_reduce");
  for (const char* name : {"muster direct", "muster engine", "openmpi", "gloo", "floor"})
    EXPECT_THAT(picture, HasSubstr(std::string(">") + name + "</text>"));
  EXPECT_THAT(picture, HasSubstr("2 ranks"));
  EXPECT_THAT(picture, HasSubstr("1 MiB"));
  EXPECT_THAT(picture, HasSubstr("openmpi, 8 B: 2.00 µs"));
  EXPECT_THAT(picture, Not(HasSubstr("openmpi, 8 B: 3.00 µs")));  // the best of a peer alone
  EXPECT_THAT(picture, Not(HasSubstr("nan")));
}

TEST(Plot, IsNoneOfWhatHasNoSize) {
  EXPECT_EQ(plot_of(sample(), "barrier"), "");
}

}  // namespace
}  // namespace muster::bench
