#include "daemon/config/hostlist.hpp"

#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::config {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> hosts(std::string_view text) {
  auto expanded = expand_hosts(text);
  EXPECT_TRUE(expanded) << text << ": " << expanded.error().message;
  return expanded ? *expanded : std::vector<std::string>();
}

TEST(Hostlist, ExpandsRangesInTheOrderWritten) {
  EXPECT_THAT(hosts("localhost"), ElementsAre("localhost"));
  EXPECT_THAT(hosts("node[01-03,20],login1"), ElementsAre("node01", "node02", "node03", "node20", "login1"));
  EXPECT_THAT(hosts("n[9-11]"), ElementsAre("n9", "n10", "n11"));
  EXPECT_THAT(hosts("n[09-11]"), ElementsAre("n09", "n10", "n11"));
  EXPECT_THAT(hosts("n[3,1]"), ElementsAre("n3", "n1"));
  EXPECT_THAT(hosts("n[1,01]"), ElementsAre("n1", "n01"));  // padding makes another name
  EXPECT_THAT(hosts("r[1-2]n[1-2].lab"), ElementsAre("r1n1.lab", "r1n2.lab", "r2n1.lab", "r2n2.lab"));
  EXPECT_THAT(hosts("[1-2]"), ElementsAre("1", "2"));
  EXPECT_EQ(hosts("node[01-16]").size(), 16u);
  EXPECT_EQ(hosts("n[0-65535]").size(), kHostsMax);
}

TEST(Hostlist, SaysWhatIsWrongAndWhere) {
  struct Row {
    std::string text;
    std::size_t offset;
    std::string message, suggestion;
  };
  const std::vector<Row> table{
      {"", 0, "at least one host", "node[01-16]"},
      {"a,,b", 2, "missing between commas", "remove the comma"},
      {"a,", 2, "missing between commas", ""},
      {"a, b", 2, "no spaces", "remove the space"},
      {"-a", 0, "starts with", ""},
      {"a/b", 1, "'/' is not allowed", "letters"},
      {"a]", 1, "']' without '['", ""},
      {"a[1-2", 1, "'[' is not closed", "']'"},
      {"a[]", 2, "number is missing", "[01-16,20]"},
      {"a[1-]", 4, "number is missing", ""},
      {"a[x]", 2, "number is missing", ""},
      {"a[1;2]", 3, "';' is not allowed in brackets", ""},
      {"a[1[2]]", 3, "'[' is not allowed in brackets", ""},
      {"a[5-2]", 3, "runs backwards", "write 2-5"},
      {"a[01-100]", 2, "padded to different widths", "write 001-100"},
      {"a[1-010]", 2, "padded to different widths", "write 001-010"},
      {"a[1-5,3]", 6, "3 is named twice", "remove one"},
      {"a[3,1-5]", 4, "3 is named twice", "remove one"},
      {"a[01-05,03-09]", 8, "03 is named twice", ""},
      {"a1,b,a[0-3]", 5, "host 'a1' is named twice", "remove one"},
      {"a[0-65536]", 0, "too many hosts; at most 65536", "name fewer"},
      {"a,b[0-999999999]c[0-999999999]", 2, "too many hosts", ""},
      {"a[1234567890]", 2, "more than 9 digits", ""},
      {"a[1][1][1][1][1]", 13, "at most 4 brackets", ""},
      {std::string(254, 'a'), 0, "at most 253 characters", ""},
      {std::string("a\0b", 3), 1, "is not allowed", ""},
  };
  for (const Row& row : table) {
    const auto expanded = expand_hosts(row.text);
    ASSERT_FALSE(expanded) << row.text;
    EXPECT_EQ(expanded.error().offset, row.offset) << row.text << ": " << expanded.error().message;
    EXPECT_THAT(expanded.error().message, HasSubstr(row.message)) << row.text;
    EXPECT_THAT(expanded.error().suggestion, HasSubstr(row.suggestion)) << row.text;
  }
}

TEST(Hostlist, TakesNumbersOfIpv6AsAddressesAlone) {
  const auto addresses = [](std::string_view text) { return expand_addresses(text).value(); };
  EXPECT_THAT(addresses("2001:db8::1"), ElementsAre("2001:db8::1"));
  EXPECT_THAT(addresses("::1,10.0.0.[1-2],n1"), ElementsAre("::1", "10.0.0.1", "10.0.0.2", "n1"));
  EXPECT_THAT(addresses("fd00::[1-3]"), ElementsAre("fd00::1", "fd00::2", "fd00::3"));
  const auto why = [](std::string_view text) {
    const auto complaint = expand_addresses(text).error();
    return fmt::format("{}: {}; {}", complaint.offset, complaint.message, complaint.suggestion);
  };
  EXPECT_EQ(why("a,fd00::g"), "2: 'fd00::g' is no address of IPv6; ");
  EXPECT_EQ(why("node:7733"), "0: 'node:7733' is no address of IPv6; ");
  EXPECT_EQ(why("fe80::1"),
            "0: 'fe80::1' means something on one link alone; give an address that all nodes reach");
  EXPECT_EQ(why("[2001:db8::1]"), "0: a number of IPv6 in brackets; write it without them");
  EXPECT_EQ(expand_hosts("fd00::1").error().suggestion, "a number of IPv6 belongs into `address`");
}

TEST(Hostlist, HoldsToTheLimitItIsGiven) {
  EXPECT_TRUE(expand_hosts("n[1-4]", 4));
  EXPECT_THAT(expand_hosts("n[1-5]", 4).error().message, HasSubstr("at most 4"));
  EXPECT_FALSE(expand_hosts("n", 0));
}

// Goal:   a short text asks for little memory.
// Method: a name as long as a file may be, times as many hosts as a list may have, would be 64 GiB.
TEST(Hostlist, RefusesALongNameBeforeItIsMultiplied) {
  const auto expanded = expand_hosts("b," + std::string(1 << 20, 'a') + "[0-65000]");
  ASSERT_FALSE(expanded);
  EXPECT_EQ(expanded.error().offset, 2u);
  EXPECT_THAT(expanded.error().message, HasSubstr("at most 253 characters"));
}

}  // namespace
}  // namespace muster::config
