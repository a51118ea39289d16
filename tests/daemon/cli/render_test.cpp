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

Json user(std::uint32_t uid, std::uint64_t jobs_share, std::uint64_t memory_share) {
  return {{"uid", uid},
          {"jobs", 2},
          {"jobs_share", jobs_share},
          {"sessions", 5},
          {"sessions_share", 8},
          {"memory_bytes", 3u << 20},
          {"memory_share_bytes", memory_share}};
}

// Goal:   who shares the node sees the shares; a daemon of one user says nothing of them.
TEST(Render, ShowsSharesWhereThereAreSome) {
  Json status{{"version", "1"}, {"socket", "/s"},        {"pid", 1},
              {"uptime_ns", 1}, {"jobs", Json::array()}, {"sessions", 5}};
  status["limits"] = {{"jobs_max", 16}, {"sessions_max", 256}, {"memory_max", 1u << 30}};
  status["users"] = Json::array({user(0, 16, 1u << 30)});
  EXPECT_THAT(status_text(status), Not(HasSubstr("USER")));
  status["users"].push_back(user(1001, 7, 1u << 28));
  EXPECT_THAT(status_text(status), HasSubstr("2 of 7"));
  EXPECT_THAT(status_text(status), HasSubstr("3.0 MiB of 256 MiB"));
  EXPECT_THAT(status_text(status), HasSubstr("2 of 16"));
  status.erase("users");
  EXPECT_THAT(status_text(status), Not(HasSubstr("USER"))) << "a daemon of an earlier version";
}

}  // namespace
}  // namespace muster::cli
