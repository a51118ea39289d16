#include "api/base/variables.hpp"

#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace muster {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

std::vector<std::string> told(std::vector<std::string> environment) {
  return misspelt_variables(environment);
}

TEST(Variables, NamesWhatWasMeant) {
  EXPECT_THAT(told({"MUSTER_ENDPONT=/s"}),
              ElementsAre("MUSTER_ENDPONT is no variable of Muster; did you mean 'MUSTER_ENDPOINT'?"));
  for (const auto& [name, meant] : std::vector<std::pair<std::string, std::string>>{
           {"MUSTER_RANKS=0", "'MUSTER_RANK'"},
           {"MUSTER_TOKE=x", "'MUSTER_TOKEN'"},
           {"MUSTER_WORLDSIZE=2", "'MUSTER_WORLD_SIZE'"},
           {"MUSTER_WORLD=2", "'MUSTER_WORLD_SIZE'"},
           {"MUSTER_rank=2", "'MUSTER_RANK'"},
           {"MUSTER_CHEK=1", "'MUSTER_CHECK'"},
           {"MUSTER_SETT_node__workers=2", "'MUSTER_SET_node__workers'"},
           {"MUSTER_node__workers=2", "'MUSTER_SET_node__workers'"}})
    EXPECT_THAT(told({name}), ElementsAre(HasSubstr(meant))) << name;
}

TEST(Variables, LeavesKnownOnesAndStrangersAlone) {
  for (const auto& variables : {rank_variables(), session_variables()})
    for (const Variable& variable : variables)
      EXPECT_THAT(told({std::string(variable.name) + "=1"}), IsEmpty());
  EXPECT_THAT(told({"MUSTER_SET_node__workers=2", "MUSTER_LOG=info", "MUSTER_TEST=1", "MUSTER_HOME=/x",
                    "MUSTER_SETUP=skip", "RANK=1", "MASTER_PORT=1", "MUSTER_", "MUSTER_FAULT_AT=a"}),
              IsEmpty());
}

// Goal: a program that has called clearenv(3) has no variables, and can open a session.
TEST(Variables, OfAProcessWithoutAnyAreNone) {
  char** const all = std::exchange(environ, nullptr);
  const std::vector<std::string> none = process_variables();
  environ = all;
  EXPECT_THAT(none, IsEmpty());
}

}  // namespace
}  // namespace muster
