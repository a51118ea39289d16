#include "daemon/cli/option_checks.hpp"

#include <gtest/gtest.h>

namespace muster::cli {
namespace {

TEST(OptionChecks, AcceptNumbersInTheirRange) {
  for (const char* text : {"1", "8", "65536"}) EXPECT_EQ(whole_number_fault(text, 1, 65536), "") << text;
  EXPECT_EQ(whole_number_fault("0", 0, 1), "");
  EXPECT_EQ(whole_number_fault("-3", -3, 1), "");
  for (const char* text : {"0", "0.5", "1e3", "1000"}) EXPECT_EQ(number_fault(text, 0, 1000), "") << text;
  EXPECT_EQ(empty_fault("x"), "");
}

TEST(OptionChecks, SayWhatIsNoNumber) {
  for (const char* text : {"", "abc", "4x", "1.5", "0x10"})
    EXPECT_EQ(whole_number_fault(text, 1, 9), "'" + std::string(text) + "' is not a whole number");
  EXPECT_EQ(number_fault("ten", 0, 9), "'ten' is not a number");
  EXPECT_EQ(whole_number_fault("010", 1, 99), "010 begins with 0; write it without");
}

TEST(OptionChecks, SayWhatIsOutOfRange) {
  EXPECT_EQ(whole_number_fault("0", 1, 9), "0 is not in the range 1 to 9");
  EXPECT_EQ(whole_number_fault("99999999999999999999", 1, 9),
            "99999999999999999999 is not in the range 1 to 9");
  for (const char* text : {"nan", "inf", "-1", "1e999"})
    EXPECT_NE(number_fault(text, 0, 10).find("is not in the range 0 to 10"), std::string::npos) << text;
  EXPECT_NE(empty_fault(""), "");
}

}  // namespace
}  // namespace muster::cli
