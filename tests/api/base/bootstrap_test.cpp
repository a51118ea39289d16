#include "api/base/bootstrap.hpp"

#include "api/base/variables.hpp"

#include <map>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::bootstrap {
namespace {

using ::testing::HasSubstr;

Lookup of(std::map<std::string, std::string, std::less<>> variables) {
  return [variables = std::move(variables)](std::string_view name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    return found == variables.end() ? std::nullopt : std::optional(found->second);
  };
}

std::string refusal(std::map<std::string, std::string, std::less<>> variables) {
  const auto identity = identify(of(std::move(variables)));
  return identity ? "" : identity.error().message();
}

// Goal:   who exports a variable without a value is told, whichever it is: nothing could be meant by it, or
//         the default.
TEST(Bootstrap, RefusesEachOfItsVariablesThatIsEmpty) {
  for (const Variable& variable : rank_variables())
    EXPECT_THAT(refusal({{std::string(variable.name), ""}}),
                HasSubstr(std::string(variable.name) + " is empty: set it, or take it out"));
}

TEST(Bootstrap, NamesAWrongRankWithItsValue) {
  EXPECT_THAT(refusal({{"MUSTER_RANK", "two"}, {"MUSTER_WORLD_SIZE", "4"}}),
              HasSubstr("MUSTER_RANK='two' is not a whole number"));
  EXPECT_THAT(refusal({{"MUSTER_RANK", "-1"}, {"MUSTER_WORLD_SIZE", "4"}}), HasSubstr("MUSTER_RANK='-1'"));
  EXPECT_THAT(refusal({{"MUSTER_RANK", "4"}, {"MUSTER_WORLD_SIZE", "4"}}),
              HasSubstr("MUSTER_RANK=4 is not below MUSTER_WORLD_SIZE=4"));
  EXPECT_THAT(refusal({{"MUSTER_RANK", "1"}, {"MUSTER_WORLD_SIZE", "4"}, {"MUSTER_LOCAL_RANK", "x"}}),
              HasSubstr("MUSTER_LOCAL_RANK='x'"));
}

TEST(Bootstrap, SaysWhichHalfIsMissing) {
  EXPECT_THAT(missing_half(of({{"MUSTER_RANK", "3"}})).value_or(""),
              HasSubstr("MUSTER_RANK=3 is set, but MUSTER_WORLD_SIZE is missing"));
  EXPECT_THAT(missing_half(of({{"MUSTER_WORLD_SIZE", "3"}})).value_or(""),
              HasSubstr("MUSTER_RANK is missing"));
  EXPECT_FALSE(missing_half(of({})));
  EXPECT_FALSE(missing_half(of({{"MUSTER_RANK", "0"}, {"MUSTER_WORLD_SIZE", "3"}})));
}

}  // namespace
}  // namespace muster::bootstrap
