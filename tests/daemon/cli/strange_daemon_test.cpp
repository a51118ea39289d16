// The commands against daemons that do not answer as ours does: not at all, in another shape, of another
// release.
#include "tests/daemon/cli/scripted_daemon.hpp"

namespace muster::test {
namespace {

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Ran ask(const ScriptedDaemon& daemon, std::vector<std::string> arguments) {
  arguments.insert(arguments.end(), {"--endpoint", daemon.socket(), "--timeout", "10"});
  return muster(std::move(arguments));
}

TEST(StrangeDaemon, AnAnswerOfAnotherShapeIsAFailureAndNoCrash) {
  for (const Json& result : {Json("text"), Json::array({1, 2}), Json(5)}) {
    const ScriptedDaemon daemon([&](const std::string&) { return result; });
    for (const std::vector<std::string>& arguments :
         std::vector<std::vector<std::string>>{{"status", "--json"},
                                               {"jobs", "--json"},
                                               {"groups", "--job", "j", "--json"},
                                               {"status"},
                                               {"jobs"},
                                               {"version"}}) {
      const Ran ran = ask(daemon, arguments);
      EXPECT_EQ(ran.code, 1) << testing::PrintToString(arguments) << result;
      EXPECT_TRUE(has(ran.err, "not as expected")) << ran.err;
    }
    EXPECT_EQ(ask(daemon, {"version", "--json"}).json().at("daemon"), result);
  }
  const ScriptedDaemon vague([](const std::string&) { return Json{{"draining", "perhaps"}}; });
  EXPECT_EQ(ask(vague, {"status", "--json"}).code, 0);
}

// Goal:   a text of another user's engine moves no cursor and sets no title.
TEST(StrangeDaemon, WritesNothingToTheTerminalButText) {
  const std::string hostile =
      "one\x1b]0;title\x07 two\xC2\x9B"
      "2J three\n";
  const ScriptedDaemon daemon([&](const std::string&) {
    return Json{{"verdict", "healthy"}, {"text", hostile}, {"latest_deadline", nullptr}};
  });
  const Ran ran = ask(daemon, {"hang", "--job", "j"});
  EXPECT_TRUE(has(ran.out, "one?]0;title? two?2J three\n")) << ran.out << ran.err;
}

// Goal:   `muster version` says why it has no daemon's, and not that none runs.
TEST(StrangeDaemon, VersionSaysWhyThereIsNone) {
  const ScriptedDaemon other([](const std::string&) { return Json(); }, shm::kAbiVersion + 1);
  const Ran ran = ask(other, {"version"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "speaks version " + std::to_string(shm::kAbiVersion + 1))) << ran.out;
  const Json answer = ask(other, {"version", "--json"}).json();
  EXPECT_TRUE(answer.at("daemon").is_null());
  EXPECT_TRUE(has(answer.at("daemon_trouble"), "speaks version")) << answer;

  const ScriptedDaemon deaf([](const std::string&) { return std::nullopt; });
  const Ran late = muster({"version", "--endpoint", deaf.socket(), "--timeout", "0.1"});
  EXPECT_TRUE(has(late.out, "did not answer within")) << late.out;
  const Ran about = muster({"groups", "--job", "j", "--endpoint", deaf.socket(), "--timeout", "0.1"});
  EXPECT_TRUE(has(about.err, "`muster jobs --endpoint " + deaf.socket() + "` says whether it is the engine"))
      << about.err;
  const Ran none = muster({"version", "--endpoint", deaf.socket() + ".none"});
  EXPECT_EQ(none.code, 0);
  EXPECT_TRUE(has(none.out, "no daemon at ")) << none.out;
}

TEST(StrangeDaemon, TheDoctorFindsAnotherRelease) {
  const ScriptedDaemon other([](const std::string&) { return Json(); }, shm::kAbiVersion + 1);
  const Ran ran = ask(other, {"doctor", "--json"});
  EXPECT_EQ(ran.code, 1);
  bool found = false;
  const Json report = ran.json();
  for (const Json& check : report.at("checks"))
    if (check.at("check") == "versions") {
      found = true;
      EXPECT_EQ(check.at("verdict"), "failure");
      EXPECT_TRUE(has(check.at("fix"), "same release")) << check;
    }
  EXPECT_TRUE(found) << ran.out;
}

// ---- a job that is there already

Json job(const char* state) {
  return {{"name", "train"}, {"state", state}, {"world", 1}, {"mesh", "dp_shard=1"}, {"claim", "token"}};
}

// A daemon with that job, ready; `more` comes first.
ScriptedDaemon::Script with_job(ScriptedDaemon::Script more) {
  return [more = std::move(more)](const std::string& command) -> std::optional<Json> {
    if (auto own = more(command)) return own->is_null() ? std::nullopt : own;
    if (command == "status") return Json{{"jobs", {job("ready")}}};
    if (command == "token") return Json{{"token", "t"}};
    return Json::object();
  };
}

std::vector<std::string> run_line(const ScriptedDaemon& daemon, std::vector<std::string> options) {
  std::vector<std::string> line{"run", "--job", "train", "--endpoint", daemon.socket()};
  line.insert(line.end(), options.begin(), options.end());
  return line;
}

TEST(StandingJob, ARunThatCannotStartItsRanksLeavesNoTraceOn) {
  const Folder files;
  const ScriptedDaemon daemon(with_job([](const std::string&) { return std::nullopt; }));
  const std::string trace = files.path() + "/t.json";
  const Ran ran = muster(run_line(daemon, {"--trace", trace, "--", "/nonexistent/program"}));
  EXPECT_EQ(ran.code, 127) << ran.err;
  EXPECT_TRUE(daemon.was_asked("trace_end")) << testing::PrintToString(daemon.asked());
  EXPECT_FALSE(std::filesystem::exists(trace));
}

TEST(StandingJob, ASignalWhileATraceBeginsLeavesNoTraceOn) {
  const Folder files;
  const ScriptedDaemon daemon(with_job([](const std::string& command) -> std::optional<Json> {
    if (command == "trace_begin") return Json();
    return std::nullopt;
  }));
  std::vector<std::string> line = run_line(daemon, {"--trace", files.path() + "/t.json", "--", "true"});
  line.insert(line.begin(), program("muster"));
  Running running({line, {}, {}});
  ASSERT_TRUE(daemon.was_asked("trace_begin")) << running.err();
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
  EXPECT_TRUE(daemon.was_asked("trace_end")) << testing::PrintToString(daemon.asked());
}

// Goal:   a run whose trace was refused leaves alone what another records there.
TEST(StandingJob, ARefusedTraceEndsNoOthers) {
  const Folder files;
  const ScriptedDaemon daemon(with_job([](const std::string& command) -> std::optional<Json> {
    if (command == "trace_begin")
      return control::failed(failure(Code::kBusy, "the engine owes 4096 answers"));
    return std::nullopt;
  }));
  const Ran ran = muster(run_line(daemon, {"--trace", files.path() + "/t.json", "--", "echo", "never"}));
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_EQ(ran.out, "");
  EXPECT_TRUE(has(ran.err, "owes 4096 answers")) << ran.err;
  EXPECT_EQ(daemon.count("trace_end"), 0) << testing::PrintToString(daemon.asked());
}

TEST(StandingJob, ASecondSignalDoesNotWaitForTheEndOfTheTrace) {
  const Folder files;
  const ScriptedDaemon daemon(with_job([](const std::string& command) -> std::optional<Json> {
    if (command.starts_with("trace_")) return Json();
    return std::nullopt;
  }));
  std::vector<std::string> line =
      run_line(daemon, {"--trace", files.path() + "/t.json", "--timeout", "1000", "--", "true"});
  line.insert(line.begin(), program("muster"));
  Running running({line, {}, {}});
  ASSERT_TRUE(daemon.was_asked("trace_begin")) << running.err();
  running.signal(SIGTERM);
  ASSERT_TRUE(daemon.was_asked("trace_end"));
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
}

// Goal:   right after `muster end` a run by that name makes a new job, and does not join the old one.
TEST(StandingJob, OneThatIsEndingIsWaitedFor) {
  std::atomic<int> looks = 0;
  const ScriptedDaemon daemon(with_job([&](const std::string& command) -> std::optional<Json> {
    if (command == "job_create") return Json{{"tokens", {"t"}}};
    if (command != "status") return std::nullopt;
    return Json{{"jobs", ++looks < 3 ? Json::array({job("ending")}) : Json::array()}};
  }));
  const Ran ran = muster(run_line(daemon, {"-n", "1", "--", "true"}));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(daemon.count("status"), 3);
  EXPECT_EQ(daemon.count("job_create"), 1);
  EXPECT_EQ(daemon.count("expect_all"), 0) << "that is for the job that ends";
  looks = -1000;
  const Ran late = muster(run_line(daemon, {"-n", "1", "--timeout", "0.3", "--", "true"}));
  EXPECT_EQ(late.code, 124) << late.err;
  EXPECT_TRUE(has(late.err, "job train is ending and does not end in time; `muster jobs --endpoint " +
                                daemon.socket() + "` shows what is there"))
      << late.err;
}

// Goal:   a job that a killed daemon had created, and its successor is about to end, does not fail the run.
TEST(StandingJob, ANameThatIsTakenForAMomentIsAskedForAgain) {
  std::atomic<int> created = 0;
  const ScriptedDaemon daemon([&](const std::string& command) -> std::optional<Json> {
    if (command == "status") return Json{{"jobs", Json::array()}};
    if (command != "job_create" || ++created > 1) return Json::object();
    return control::failed(failure(Code::kDuplicate, "a job of that name exists already"));
  });
  const Ran named = muster(run_line(daemon, {"-n", "1", "--", "true"}));
  EXPECT_EQ(named.code, 0) << named.err;
  EXPECT_EQ(daemon.count("status"), 2) << "somebody else's may be there by now";
  EXPECT_EQ(daemon.count("job_create"), 2);
  created = 0;
  const Ran nameless = muster({"run", "--endpoint", daemon.socket(), "-n", "1", "--", "true"});
  EXPECT_EQ(nameless.code, 0) << nameless.err;
  EXPECT_EQ(daemon.count("job_create"), 4);
  created = -1000;
  const Ran late = muster(run_line(daemon, {"-n", "1", "--timeout", "0.3", "--", "true"}));
  EXPECT_EQ(late.code, 1) << late.err;
  EXPECT_TRUE(has(late.err, "a job of that name exists already")) << late.err;
}

}  // namespace
}  // namespace muster::test
