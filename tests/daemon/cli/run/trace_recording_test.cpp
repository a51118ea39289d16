#include "daemon/cli/run/trace_recording.hpp"

#include "tests/daemon/cli/run/scripted_link.hpp"

#include <gmock/gmock.h>

namespace muster::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

JobJoiner::Job job_to_record(bool stays) {
  JobJoiner::Job job;
  job.name = "train";
  job.stays = stays;
  return job;
}

std::optional<Json> do_all(const std::string&) {
  return Json::object();
}

// The trouble of a step of the recording, once it is done.
using Step = void (TraceRecording::*)(const TraceRecording::Next&);
std::optional<Trouble> trouble_after(test::ScriptedLink& scripted, TraceRecording& recording, Step step) {
  bool done = false;
  std::optional<Trouble> trouble;
  (recording.*step)([&](const std::optional<Trouble>& why) {
    trouble = why;
    done = true;
  });
  EXPECT_TRUE(scripted.turn_until([&] { return done; }));
  return trouble;
}

void abandon(test::ScriptedLink& scripted, TraceRecording& recording) {
  bool done = false;
  recording.abandon([&] { done = true; });
  EXPECT_TRUE(scripted.turn_until([&] { return done; }));
}

TEST(TraceRecording, WithoutAFileThereIsNone) {
  test::ScriptedLink scripted(do_all);
  TraceRecording recording(scripted.link(), job_to_record(true), "");
  EXPECT_FALSE(trouble_after(scripted, recording, &TraceRecording::begin));
  EXPECT_FALSE(trouble_after(scripted, recording, &TraceRecording::write));
  abandon(scripted, recording);
  EXPECT_THAT(scripted.daemon().asked(), IsEmpty());
}

TEST(TraceRecording, EndsOnceAndSaysWhatIsWrong) {
  test::ScriptedLink scripted(do_all);
  TraceRecording recording(scripted.link(), job_to_record(true), "/nonexistent/t.json");
  EXPECT_FALSE(trouble_after(scripted, recording, &TraceRecording::begin));
  const auto trouble = trouble_after(scripted, recording, &TraceRecording::write);
  ASSERT_TRUE(trouble);
  EXPECT_THAT(trouble->text, HasSubstr("the daemon sent no trace"));
  abandon(scripted, recording);
  EXPECT_THAT(scripted.daemon().asked(), ElementsAre("trace_begin", "trace_end"));
}

// Goal:   the recording of somebody else goes on.
TEST(TraceRecording, OneThatWasRefusedIsNotEnded) {
  test::ScriptedLink scripted(
      [](const std::string&) { return control::failed(failure(Code::kBusy, "another records")); });
  TraceRecording recording(scripted.link(), job_to_record(true), "t.json");
  const auto trouble = trouble_after(scripted, recording, &TraceRecording::begin);
  ASSERT_TRUE(trouble);
  EXPECT_EQ(trouble->text, "another records");
  abandon(scripted, recording);
  EXPECT_THAT(scripted.daemon().asked(), ElementsAre("trace_begin"));
}

TEST(TraceRecording, OneThatMayHaveBegunIsEndedInAJobThatStays) {
  for (const bool stays : {true, false}) {
    test::ScriptedLink scripted(
        [](const std::string& command) {
          return command == "trace_begin" ? std::nullopt : std::optional(Json::object());
        },
        std::chrono::milliseconds(200));
    TraceRecording recording(scripted.link(), job_to_record(stays), "t.json");
    const auto trouble = trouble_after(scripted, recording, &TraceRecording::begin);
    ASSERT_TRUE(trouble);
    EXPECT_EQ(trouble->exit_code, kTimedOut);
    abandon(scripted, recording);
    EXPECT_EQ(scripted.daemon().count("trace_end"), stays ? 1 : 0);
  }
}

}  // namespace
}  // namespace muster::cli
