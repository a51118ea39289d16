#include "api/base/bootstrap.hpp"

#include "api/base/variables.hpp"
#include "tests/support/folder.hpp"

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

// Goal:   each variable without a value is refused: it might mean nothing, or the default.
TEST(Bootstrap, RefusesEachOfItsVariablesThatIsEmpty) {
  for (const Variable& variable : rank_variables())
    EXPECT_THAT(refusal({{std::string(variable.name), ""}}),
                HasSubstr(std::string(variable.name) + " is empty: set it, or take it out"));
}

// Goal:   a key comes from its variable or from a file, and whoever gives a bad one is told.
TEST(Bootstrap, ReadsTheKeyOfTheJob) {
  const test::Folder folder;
  const std::string key(32, 'k');
  EXPECT_EQ(*job_key(of({})), "");
  EXPECT_EQ(*job_key(of({{"MUSTER_JOB_KEY", key}})), key);
  const auto of_file = [&](const std::string& text) {
    return job_key(of({{"MUSTER_JOB_KEY_FILE", folder.write("key", text)}}));
  };
  EXPECT_EQ(*of_file(key), key);
  EXPECT_EQ(*of_file(key + "\n"), key);
  EXPECT_EQ(*of_file(key + "\r\n"), key);
  const std::string longest(255, 'k');
  EXPECT_EQ(*of_file(longest + "\n"), longest);
  for (const std::string& text :
       {std::string(), std::string("\n"), longest + longest, key + std::string(1, '\0') + key})
    EXPECT_THAT(of_file(text).error().message(), HasSubstr(folder.path() + "/key has no key"));
  EXPECT_THAT(refusal({{"MUSTER_JOB_KEY_FILE", folder.path() + "/none"}}),
              HasSubstr("MUSTER_JOB_KEY_FILE: " + folder.path() + "/none cannot be read: No such file"));
  EXPECT_THAT(refusal({{"MUSTER_JOB_KEY_FILE", folder.path()}}), HasSubstr("is no plain file"));
  EXPECT_THAT(refusal({{"MUSTER_JOB_KEY_FILE", "/none"}, {"MUSTER_JOB_KEY", key}}),
              HasSubstr("are both set"));
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

// Goal:   a program in a batch script without srun gets the error at once, and not after a deadline.
TEST(Bootstrap, TakesNoBatchScriptForATask) {
  const auto in_step = [](const char* step, const char* tasks) {
    std::map<std::string, std::string, std::less<>> all{
        {"SLURM_JOB_ID", "77"}, {"SLURM_NTASKS", tasks}, {"SLURM_PROCID", "0"}};
    if (step != nullptr) all["SLURM_STEP_ID"] = step;
    const auto identity = identify(of(std::move(all)));
    EXPECT_TRUE(identity && identity->rank == 0) << "whoever says rank and size himself may do so";
    return std::string(identity->doubt.message());
  };
  for (const char* none : {static_cast<const char*>(nullptr), "4294967291", "4294967290", "batch"})
    EXPECT_THAT(in_step(none, "4"), HasSubstr("no task of Slurm job 77, though that has 4: srun has not"));
  EXPECT_EQ(in_step("0", "4"), "");
  EXPECT_EQ(in_step("12", "4"), "");
  EXPECT_EQ(in_step(nullptr, "1"), "") << "one task needs no srun";
  EXPECT_EQ(refusal({{"SLURM_NTASKS", "4"}, {"SLURM_PROCID", "1"}}), "") << "only srun makes a second task";
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
