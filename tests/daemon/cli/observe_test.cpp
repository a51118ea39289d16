// hang, top, flight and doctor, against a real daemon.
#include "daemon/cli/ask/hang_command.hpp"

#include "tests/daemon/cli/program.hpp"

namespace muster::test {
namespace {

// A daemon with one job that stays, and whose ranks have left.
class Observe : public testing::Test {
 protected:
  void SetUp() override {
    const Ran ran = ask({"run", "-n", "2", "--job", "train", "--keep", "--", "true"});
    ASSERT_EQ(ran.code, 0) << ran.err;
  }
  Ran ask(std::vector<std::string> arguments) const {
    return muster(std::move(arguments), {"MUSTER_ENDPOINT=" + daemon_.socket()});
  }
  pid_t engine() const { return ask({"status", "--json"}).json().at("jobs").at(0).at("engine_pid"); }

  Daemon daemon_;
};

TEST_F(Observe, HangFindsAJobInWhichNothingWaitsHealthy) {
  const Ran ran = ask({"hang", "--job", "train"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("VERDICT  healthy   confidence high"), std::string::npos) << ran.out;
  const Json json = ask({"hang", "--job", "train", "--json"}).json();
  EXPECT_EQ(json.at("schema_version"), 1);
  EXPECT_EQ(json.at("verdict"), "healthy");
  EXPECT_TRUE(json.at("latest_deadline").is_null());
  EXPECT_EQ(ask({"hang", "--job", "nope"}).code, 4);
}

// Goal:   without a name the only job is meant; where there are several, or none, the message tells so.
TEST_F(Observe, AsksTheOnlyJobIfNoneIsNamed) {
  for (const char* question : {"hang", "groups", "top"}) {
    std::vector<std::string> words{question, "--json"};
    if (question == std::string("top")) words.insert(words.end(), {"--once", "--interval", "0.2"});
    EXPECT_EQ(ask(words).code, 0) << question << ": " << ask(words).err;
  }
  EXPECT_EQ(ask({"flight", "-o", "/dev/null"}).code, 0);
  ASSERT_EQ(ask({"run", "-n", "1", "--job", "other", "--keep", "--", "true"}).code, 0);
  const Ran several = ask({"hang"});
  EXPECT_EQ(several.code, 2);
  EXPECT_NE(several.err.find("say which job with --job: "), std::string::npos) << several.err;
  EXPECT_NE(several.err.find("other"), std::string::npos) << several.err;
  EXPECT_EQ(ask({"end"}).code, 2) << "what ends something has to say what";
  for (const char* job : {"train", "other"}) EXPECT_EQ(ask({"end", "--job", job}).code, 0);
  EXPECT_EQ(ask({"hang"}).code, 4) << "though their engines may take a moment";
}

// Goal:   an engine that is stuck is called so, and top still has its counters.
TEST_F(Observe, HangAndTopAnswerForAnEngineThatIsStopped) {
  const pid_t pid = engine();
  EXPECT_EQ(ask({"top", "--once", "--interval", "0.3"}).code, 0);
  kill(pid, SIGSTOP);
  const Ran hang = ask({"hang", "--job", "train", "--timeout", "0.3", "--json"});
  EXPECT_EQ(hang.code, 5) << hang.err;
  EXPECT_EQ(hang.json().at("verdict"), "engine_stuck");
  EXPECT_EQ(hang.json().at("process"), "stopped");
  EXPECT_TRUE(hang.json().at("wait").is_null());
  for (const char* list : {"culprits", "circle", "ruled_out", "waits", "ranks", "stragglers"})
    EXPECT_EQ(hang.json().at(list), Json::array()) << "as with an engine that answers: " << list;
  EXPECT_EQ(hang.json().at("next").at(0), "kill -CONT " + std::to_string(pid));
  const Ran top = ask({"top", "--job", "train", "--once", "--interval", "1.2", "--json"});
  EXPECT_EQ(top.code, 0) << top.err;
  EXPECT_EQ(top.json().at("engine_stuck"), true);
  EXPECT_EQ(top.json().at("engine_pid"), pid);
  EXPECT_EQ(top.json().at("ranks").size(), 2u);
  kill(pid, SIGCONT);
}

// Goal:   the counters of a job that has ended are not taken for those of an engine that is stuck.
TEST_F(Observe, TopEndsWithItsJob) {
  Running top(
      {{program("muster"), "top", "--job", "train", "--interval", "0.2", "--endpoint", daemon_.socket()},
       {},
       {}});
  ASSERT_TRUE(top.printed("job train")) << top.err();
  ASSERT_EQ(ask({"end", "--job", "train"}).code, 0);
  const Ran ran = top.wait();
  EXPECT_EQ(ran.code, 4) << ran.err;
  EXPECT_NE(ran.err.find("job train has ended"), std::string::npos) << ran.err;
}

TEST_F(Observe, FlightWritesJsonAndPickles) {
  const Folder folder;
  const Ran ran = ask({"flight", "--job", "train", "-o", folder.path() + "/f.json", "--pickles",
                       folder.path() + "/p", "--json"});
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.json().at("ranks"), 2);
  EXPECT_EQ(Json::parse(std::ifstream(folder.path() + "/f.json")).at("job"), "train");
  for (const char* rank : {"/p/rank_0", "/p/rank_1"})
    EXPECT_GT(std::filesystem::file_size(folder.path() + rank), 0u);
  const std::string pickle = folder.path() + "/p/rank_1";
  const auto bytes = std::filesystem::file_size(pickle);
  std::filesystem::resize_file(pickle, bytes + 1000);
  const Ran again = ask({"flight", "--job", "train", "--pickles", folder.path() + "/p"});
  EXPECT_EQ(again.code, 0) << "into the folder that is there: " << again.err;
  EXPECT_EQ(std::filesystem::file_size(pickle), bytes) << "in place of the former";
  const Ran shown = ask({"flight", "--job", "train"});
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_EQ(shown.out, "job train\nno collective is recorded yet\n");
  EXPECT_EQ(ask({"flight", "--job", "train", "--json"}).json().at("ranks").size(), 2u) << "all of it";
  EXPECT_EQ(ask({"flight", "--last", "0"}).code, 2);
}

// Goal:   the pickles are what PyTorch's analyser opens: Python's, with the version and the keys that it
//         reads.
// Method: ranks that operate until a file appears; Python itself loads what was written of them.
TEST_F(Observe, PythonLoadsThePickles) {
  const Folder folder;
  const std::string stop = folder.path() + "/stop";
  Running ranks({{program("muster"), "run", "--job", "train", "--endpoint", daemon_.socket(), "--",
                  MUSTER_RANK_PROGRAM, stop},
                 {},
                 {}});
  const std::string script =
      "import pickle, sys\n"
      "dump = pickle.load(open(sys.argv[1], 'rb'))\n"
      "assert dump['version'] == '2.10', dump['version']\n"
      "assert {'pg_config', 'pg_status', 'entries'} <= set(dump), set(dump)\n"
      "if not dump['entries']: sys.exit(3)\n"
      "wanted = {'record_id', 'pg_id', 'process_group', 'collective_seq_id', 'p2p_seq_id', 'op_id',\n"
      "          'profiling_name', 'time_created_ns', 'input_sizes', 'input_dtypes', 'output_sizes',\n"
      "          'output_dtypes', 'state', 'time_discovered_started_ns',\n"
      "          'time_discovered_completed_ns', 'retired', 'timeout_ms', 'is_p2p', 'frames'}\n"
      "for entry in dump['entries']:\n"
      "    assert wanted <= set(entry), wanted - set(entry)\n"
      "    assert isinstance(entry['record_id'], int) and isinstance(entry['frames'], list)\n";
  for (const char* rank : {"rank_0", "rank_1"}) {
    const std::string pickles = folder.path() + "/" + rank;
    Ran loaded{3, "", ""};  // 3: the rank has not begun yet
    for (int i = 0; i < 500 && loaded.code == 3; ++i) {
      const Ran ran = ask({"flight", "--job", "train", "--pickles", pickles});
      ASSERT_EQ(ran.code, 0) << ran.err;
      loaded = run({{"/usr/bin/env", "python3", "-c", script, pickles + "/" + rank}, {}, {}});
      usleep(10'000);
    }
    EXPECT_EQ(loaded.code, 0) << loaded.err;
  }
  std::ofstream(stop).put('\n');
  const Ran ended = ranks.wait();
  EXPECT_EQ(ended.code, 0) << ended.err;
}

TEST_F(Observe, DoctorChecksTheDaemonThatIsNamed) {
  const Ran ran = ask({"doctor", "--json"});
  EXPECT_EQ(ran.code, 0) << ran.out;
  std::vector<std::string> checks;
  const Json report = ran.json();
  for (const Json& check : report.at("checks")) {
    checks.push_back(check.at("check"));
    EXPECT_EQ(check.at("verdict") == "ok", check.at("fix") == "") << check;
  }
  EXPECT_NE(std::find(checks.begin(), checks.end(), "versions"), checks.end());
  EXPECT_EQ(muster({"doctor", "--endpoint", "/nonexistent/musterd.sock"}).code, 1);
  const std::filesystem::path socket = daemon_.socket();
  const Ran by_name = run({{program("muster"), "doctor", "--endpoint", socket.filename(), "--json"}, {}, [&] {
                             if (chdir(socket.parent_path().c_str()) != 0) _exit(98);
                           }});
  EXPECT_EQ(by_name.code, 0) << by_name.out;
}

// Goal:   doctor warns if another user may write to the runtime directory, and so put another socket there.
TEST_F(Observe, DoctorLooksWhoMayWriteToTheRuntimeDirectory) {
  const std::filesystem::path folder = daemon_.folder().path() + "/run";
  const auto said_of = [&](mode_t mode) {
    EXPECT_EQ(::chmod(folder.c_str(), mode), 0);
    const Json report = ask({"doctor", "--json"}).json();
    for (const Json& check : report.at("checks"))
      if (check.at("check") == "runtime directory") return check;
    return Json();
  };
  EXPECT_EQ(said_of(0711).at("verdict"), "ok");
  const Json group = said_of(0731);
  EXPECT_EQ(group.at("verdict"), "warning");
  EXPECT_NE(group.at("says").get<std::string>().find("group"), std::string::npos) << group;
  EXPECT_EQ(said_of(01731).at("verdict"), "ok") << "nobody replaces what another has made there";
  ::chmod(folder.c_str(), 0700);
}

}  // namespace
}  // namespace muster::test
