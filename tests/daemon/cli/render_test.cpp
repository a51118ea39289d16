#include "daemon/cli/render.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// As `jobs` tells of a job whose engine kept its word back.
Json silent(const char* state) {
  const Json job{{"name", "train"},        {"state", state},   {"world", 2},        {"mesh", "tp=2"},
                 {"owner_uid", 0},         {"claim", "token"}, {"engine_pid", 411}, {"attached", 1},
                 {"ranks", Json::array()}, {"answered", false}};
  return {{"jobs", Json::array({job})}};
}

// Goal:   an engine that is being made, or ends, is not called stuck.
TEST(Render, CallsTheEngineOfAReadyJobAloneSilent) {
  EXPECT_THAT(jobs_text(silent("ready")), HasSubstr("its engine (process 411) does not answer"));
  for (const char* state : {"starting", "adopting", "ending"}) {
    EXPECT_THAT(jobs_text(silent(state)), HasSubstr(state));
    EXPECT_THAT(jobs_text(silent(state)), Not(HasSubstr("does not answer")));
  }
}

}  // namespace
}  // namespace muster::cli
