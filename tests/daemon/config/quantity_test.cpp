#include "daemon/config/quantity.hpp"

#include <cstdint>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::config {
namespace {

using testing::HasSubstr;

TEST(Quantity, ReadsBytesInPowersOfTwoAndOfTen) {
  const std::vector<std::pair<std::string, std::int64_t>> table{
      {"0B", 0},
      {"1B", 1},
      {"1KiB", 1024},
      {"2MiB", 2097152},
      {"2GiB", 2147483648},
      {"1TiB", 1099511627776},
      {"1KB", 1000},
      {"5MB", 5000000},
      {"1GB", 1000000000},
      {"1TB", 1000000000000},
      {"1.5GiB", 1610612736},
      {"0.5KiB", 512},
      {"0.001KB", 1},
      {"9223372036854775807B", -1},
      {"999999999999999999B", 999999999999999999},
      {"8388607TiB", 8388607LL << 40},
  };
  for (const auto& [text, value] : table) {
    const auto bytes = parse_bytes(text);
    if (value < 0) {
      EXPECT_FALSE(bytes) << text;  // 19 digits: the same number fits when a larger unit is used
    } else {
      ASSERT_TRUE(bytes) << text << ": " << bytes.error().message;
      EXPECT_EQ(*bytes, value) << text;
    }
  }
}

TEST(Quantity, ReadsDurations) {
  EXPECT_EQ(parse_duration("0s").value(), Nanos(0));
  EXPECT_EQ(parse_duration("50us").value(), Nanos(50000));
  EXPECT_EQ(parse_duration("100ms").value(), Nanos(100000000));
  EXPECT_EQ(parse_duration("60s").value(), std::chrono::seconds(60));
  EXPECT_EQ(parse_duration("1.5min").value(), std::chrono::seconds(90));
  EXPECT_EQ(parse_duration("24h").value(), std::chrono::hours(24));
  EXPECT_EQ(parse_duration("7ns").value(), Nanos(7));
}

// Goal:   the message on a wrong quantity shows the right text, not only that it is wrong.
TEST(Quantity, SuggestsWhatWasMeant) {
  struct Row {
    std::string text, message, suggestion;
  };
  const std::vector<Row> bytes{
      {"60", "needs a unit", "write 60MiB"},
      {"67108864", "needs a unit", "write 64MiB"},
      {"2G", "'G' is no unit of size", "write 2GiB"},
      {"2gib", "'gib' is no unit", "write 2GiB"},
      {"2 GiB", "no space", "write 2GiB"},
      {"2 gb", "no space", "write 2GB"},
      {"2 parsec", "'parsec' is no unit", "write one of B KiB"},
      {"", "'' is no size", "such as 5MiB"},
      {"GiB", "'GiB' is no size", "such as"},
      {"-2GiB", "not negative", ""},
      {"+2GiB", "is no size", ""},
      {"02GiB", "octal", "write 2GiB"},
      {"0x10B", "'x10B' is no unit", ""},
      {"1.GiB", "a digit must follow the point", ""},
      {".5GiB", "is no size", ""},
      {"0.3B", "no whole number of B", "smaller unit"},
      {"9000000TiB", "too large", ""},
      {"99999999999999999999TiB", "too many digits", "larger unit"},
      {"1e3B", "'e3B' is no unit", ""},
  };
  for (const Row& row : bytes) {
    const auto value = parse_bytes(row.text);
    ASSERT_FALSE(value) << row.text;
    EXPECT_THAT(value.error().message, HasSubstr(row.message)) << row.text;
    EXPECT_THAT(value.error().suggestion, HasSubstr(row.suggestion)) << row.text;
  }
  const std::vector<Row> durations{
      {"60", "needs a unit", "write 60s"}, {"5m", "'m' is no unit", "write 5min"},
      {"5sec", "no unit", "write 5s"},     {"5 minutes", "no space", "write 5min"},
      {"1hour", "no unit", "write 1h"},    {"5µs", "no unit", "write 5us"},
      {"5S", "no unit", "write 5s"},       {"0.5ns", "no whole number of ns", "smaller"},
      {"3000000h", "too large", ""},
  };
  for (const Row& row : durations) {
    const auto value = parse_duration(row.text);
    ASSERT_FALSE(value) << row.text;
    EXPECT_THAT(value.error().message, HasSubstr(row.message)) << row.text;
    EXPECT_THAT(value.error().suggestion, HasSubstr(row.suggestion)) << row.text;
  }
}

TEST(Quantity, IsWrittenInTheLargestUnitThatLeavesAWholeNumber) {
  EXPECT_EQ(format_bytes(0), "0B");
  EXPECT_EQ(format_bytes(64LL << 20), "64MiB");
  EXPECT_EQ(format_bytes(1025), "1025B");
  EXPECT_EQ(format_duration(std::chrono::seconds(60)), "60s");
  EXPECT_EQ(format_duration(std::chrono::minutes(10)), "10min");
  EXPECT_EQ(format_duration(std::chrono::hours(24)), "24h");
  EXPECT_EQ(format_duration(Nanos(1500)), "1500ns");
  EXPECT_EQ(format_duration(Nanos(0)), "0s");
}

// Goal:   a written value reads back as the same value, whatever it is.
// Method: random values of every magnitude, up to the 18 digits that the reader takes.
TEST(Quantity, SurvivesWritingAndReading) {
  constexpr unsigned kSeed = 20240611;
  SCOPED_TRACE(kSeed);
  std::mt19937_64 random(kSeed);
  constexpr std::int64_t kLimit = 999999999999999999;
  for (int i = 0; i < 20000; ++i) {
    const std::int64_t value = static_cast<std::int64_t>(random() >> (1 + random() % 63)) % (kLimit + 1);
    ASSERT_EQ(parse_bytes(format_bytes(value)).value(), value);
    ASSERT_EQ(parse_duration(format_duration(Nanos(value))).value(), Nanos(value));
  }
}

}  // namespace
}  // namespace muster::config
