// The commands that ask a daemon, against a real one.
#include "daemon/cli/ask/ask_commands.hpp"

#include "tests/daemon/cli/program.hpp"

#include <sys/socket.h>
#include <sys/un.h>

namespace muster::test {
namespace {

// A daemon with one job that stays.
class AskCommands : public testing::Test {
 protected:
  void SetUp() override {
    const Ran ran = ask({"run", "-n", "8", "--mesh", kMesh, "--flatten", "dp_tp=dp_replicate,dp_shard,tp",
                         "--job", "train", "--keep", "--", "true"});
    ASSERT_EQ(ran.code, 0) << ran.err;
  }
  Ran ask(std::vector<std::string> arguments) const {
    return muster(std::move(arguments), {"MUSTER_ENDPOINT=" + daemon_.socket()});
  }

  static constexpr const char* kMesh = "dp_replicate=2,dp_shard=2,tp=2";
  Daemon daemon_;
};

TEST_F(AskCommands, StatusTellsWhatIsThereAndWhatMayBe) {
  const Ran ran = ask({"status", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json status = ran.json();
  EXPECT_EQ(status.at("schema_version"), 1);
  EXPECT_EQ(status.at("socket"), daemon_.socket());
  EXPECT_EQ(status.at("pid"), daemon_.running().pid());
  EXPECT_EQ(status.at("limits").at("jobs_max"), 16);
  EXPECT_NE(ask({"status"}).out.find("1 of 16 jobs"), std::string::npos);
  EXPECT_EQ(ask({"version", "--json"}).json().at("daemon").at("pid"), daemon_.running().pid());
}

TEST_F(AskCommands, JobsListsRanks) {
  const Json jobs = ask({"jobs", "--json"}).json().at("jobs");
  ASSERT_EQ(jobs.size(), 1u);
  EXPECT_EQ(jobs[0].at("name"), "train");
  EXPECT_EQ(jobs[0].at("claim"), "owner");
  EXPECT_EQ(jobs[0].at("ranks").size(), 8u);
  EXPECT_NE(ask({"jobs"}).out.find("train"), std::string::npos);
}

// Goal:   an engine that is stopped hides no other job, neither from `muster jobs` nor from a run.
TEST_F(AskCommands, AStoppedEngineStandsAlone) {
  ASSERT_EQ(ask({"run", "-n", "1", "--job", "other", "--keep", "--", "true"}).code, 0);
  pid_t engine = 0;
  const Json before = ask({"status", "--json"}).json();
  for (const Json& job : before.at("jobs"))
    if (job.at("name") == "other") engine = job.at("engine_pid");
  ASSERT_GT(engine, 0);
  ASSERT_EQ(kill(engine, SIGSTOP), 0);
  const Ran ran = ask({"jobs", "--json", "--timeout", "30"});
  const Ran text = ask({"jobs", "--timeout", "30"});
  const Ran soon = ask({"jobs", "--timeout", "0.8"});
  const Ran next = ask({"run", "--job", "train", "--timeout", "30", "--", "true"});
  kill(engine, SIGCONT);
  EXPECT_EQ(next.code, 0) << next.err;
  EXPECT_EQ(soon.code, 0) << "engines are waited for no longer than the answer: " << soon.err;
  ASSERT_EQ(ran.code, 0) << ran.err;
  const Json report = ran.json();
  for (const Json& job : report.at("jobs")) {
    EXPECT_EQ(job.at("answered"), job.at("name") == "train") << job;
    EXPECT_EQ(job.at("ranks").size(), job.at("name") == "train" ? 8u : 0u) << job;
  }
  EXPECT_NE(text.out.find("job other: its engine (process " + std::to_string(engine) + ") does not answer"),
            std::string::npos)
      << text.out;
}

// Goal:   each command that an answer names can be typed as it stands: this daemon is not the usual one.
TEST_F(AskCommands, AnAdviceNamesTheDaemon) {
  const std::string at = " --endpoint " + daemon_.folder().path() + "/run";
  EXPECT_NE(ask({"groups", "--job", "none"}).err.find("`muster jobs" + at + "` lists them"),
            std::string::npos);
  const Ran flattened = ask({"run", "--job", "train", "--flatten", "all=dp_shard,tp", "--", "true"});
  EXPECT_NE(flattened.err.find("(`muster groups --endpoint " + daemon_.socket() + " --job train` shows"),
            std::string::npos)
      << flattened.err;
}

// Goal:   the engine makes the groups that the command line foretells.
TEST_F(AskCommands, GroupsAreThoseThatTheMeshCommandForetells) {
  const Json made = ask({"groups", "--job", "train", "--json"}).json();
  const Json foretold = muster({"mesh", "--world", "8", "--mesh", kMesh, "--flatten",
                                "dp_tp=dp_replicate,dp_shard,tp", "--json"})
                            .json();
  for (const char* part : {"groups", "per_rank", "total", "hash"})
    EXPECT_EQ(made.at(part), foretold.at(part)) << part;
  EXPECT_NE(ask({"groups", "--job", "train"}).out.find("dp_tp"), std::string::npos);
}

TEST_F(AskCommands, EachTokenIsFresh) {
  const Ran first = ask({"token", "--job", "train", "--rank", "3"});
  const Ran second = ask({"token", "--job", "train", "--rank", "3"});
  EXPECT_EQ(first.code, 0);
  EXPECT_EQ(first.out.size(), 65u);
  EXPECT_NE(first.out, second.out);
  EXPECT_EQ(ask({"token", "--job", "train", "--rank", "8"}).code, 2);
}

TEST_F(AskCommands, TraceIsWrittenWholeOrNotAtAll) {
  const Folder folder;
  const std::string file = folder.path() + "/t.json";
  const Ran ran = ask({"trace", "--job", "train", "-o", file, "--seconds", "0", "--json"});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.json().at("bytes"), std::filesystem::file_size(file));
  EXPECT_EQ(ask({"trace", "--job", "train", "-o", "/nonexistent/t.json", "--seconds", "0"}).code, 1);
}

// Goal:   a recording goes on, whatever other users ask for; one that was left on can be ended.
TEST_F(AskCommands, TraceLeavesTheRecordingOfAnotherAlone) {
  const Folder folder;
  const std::string file = folder.path() + "/t.json";
  cli::DaemonAddress address;
  address.endpoint = daemon_.socket();
  const Json begin{{"command", "trace_begin"}, {"job", "train"}, {"by", "a test"}};
  ASSERT_TRUE(cli::ask(address, begin));
  ASSERT_TRUE(cli::ask(address, begin)) << "asked again, as after a restart of the daemon";
  for (const std::vector<std::string>& line :
       std::vector<std::vector<std::string>>{{"trace", "--job", "train", "-o", file, "--seconds", "0"},
                                             {"run", "--job", "train", "--trace", file, "--", "true"}}) {
    const Ran ran = ask(line);
    EXPECT_EQ(ran.code, 1) << line[0];
    EXPECT_NE(ran.err.find("a recording of job train is on already, of a test; it ends where it was begun, "
                           "or by `muster trace --endpoint " +
                           daemon_.folder().path() + "/run --job train --end`"),
              std::string::npos)
        << ran.err;
  }
  EXPECT_EQ(ask({"trace", "--job", "train", "-o", file, "--end"}).code, 0);
  EXPECT_TRUE(std::filesystem::exists(file));
  const Ran ran = ask({"trace", "--job", "train", "-o", file, "--end"});
  EXPECT_EQ(ran.code, 1);
  EXPECT_NE(ran.err.find("no recording of job train is on"), std::string::npos) << ran.err;
}

TEST_F(AskCommands, AnswersAnUnknownJobWithFour) {
  for (const std::vector<std::string>& arguments : std::vector<std::vector<std::string>>{
           {"groups"}, {"end"}, {"token", "--rank", "0"}, {"trace", "-o", "/dev/null"}}) {
    std::vector<std::string> line = arguments;
    line.insert(line.end(), {"--job", "nope"});
    const Ran ran = ask(line);
    EXPECT_EQ(ran.code, 4) << ran.err;
    EXPECT_NE(ran.err.find("nope"), std::string::npos) << ran.err;
  }
}

TEST_F(AskCommands, AnEndedJobIsGone) {
  EXPECT_EQ(ask({"end", "--job", "train", "--json"}).code, 0);
  for (int waited = 0; waited < kPatienceMs; waited += 20) {
    if (ask({"groups", "--job", "train"}).code == 4) return;
    usleep(20000);
  }
  FAIL() << "the job does not end";
}

TEST_F(AskCommands, ShutdownEndsTheDaemon) {
  const Ran leaving = ask({"shutdown"});
  EXPECT_EQ(leaving.code, 0);
  EXPECT_NE(leaving.out.find(", in 10.0 s at the latest (liveness.drain_timeout)"), std::string::npos)
      << leaving.out;
  EXPECT_EQ(daemon_.running().wait().code, 0);
  EXPECT_EQ(ask({"status"}).code, 3);
}

// Goal:   a daemon that hangs is not waited for without end.
// Method: a socket whose owner never answers.
TEST(AskWithoutAnswer, EndsWith124) {
  const Folder folder;
  const std::string path = folder.path() + "/deaf.sock";
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(listen(socket, 8), 0);
  const Ran ran = muster({"status", "--endpoint", path, "--timeout", "0.1"});
  EXPECT_EQ(ran.code, 124) << ran.err;
  EXPECT_NE(ran.err.find("--timeout"), std::string::npos);
  EXPECT_EQ(
      muster({"run", "-n", "1", "--job", "j", "--endpoint", path, "--timeout", "0.1", "--", "true"}).code,
      124);
  close(socket);
}

}  // namespace
}  // namespace muster::test
