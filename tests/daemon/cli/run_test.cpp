// `muster run` with shells as ranks: what users see when things go well, badly, or are stopped.
#include "api/shm/socket.hpp"
#include "daemon/control/packet.hpp"
#include "tests/daemon/cli/program.hpp"
#include "tests/support/program_facts.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <muster/muster.h>
#include <sys/resource.h>

namespace muster::test {
namespace {

// The temporary directory of a private daemon goes where the test can see it.
std::vector<std::string> at_home(const Folder& home) {
  return {"XDG_RUNTIME_DIR=" + home.path()};
}

std::vector<std::string> run_line(std::vector<std::string> options, const std::string& script) {
  std::vector<std::string> line{"run", "--private"};
  line.insert(line.end(), options.begin(), options.end());
  line.insert(line.end(), {"--", "sh", "-c", script});
  return line;
}

Ran shells(const Folder& home, std::vector<std::string> options, const std::string& script) {
  return muster(run_line(std::move(options), script), at_home(home));
}

Start start_of(const Folder& home, std::vector<std::string> options, const std::string& script) {
  std::vector<std::string> line = run_line(std::move(options), script);
  line.insert(line.begin(), program("muster"));
  return {line, at_home(home), {}};
}

// As proc(5) has it: R, S, T, …
char state_of(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const auto name_end = text.rfind(") ");
  return name_end == std::string::npos ? '?' : text.at(name_end + 2);
}

TEST(Run, GivesEachRankItsPlaceAndPrefixesItsLines) {
  const Folder home;
  const Ran ran =
      shells(home, {"-n", "2", "--mesh", "tp=2,dp_shard=-1"},
             "echo $MUSTER_RANK/$MUSTER_WORLD_SIZE $MUSTER_LOCAL_RANK/$MUSTER_LOCAL_SIZE $MUSTER_MESH; "
             "echo oops >&2; test -S $MUSTER_ENDPOINT && test -z \"$MUSTER_TOKEN\"");
  EXPECT_EQ(ran.code, 0) << ran.err;
  const std::string mesh = "pp=1,dp_replicate=1,dp_shard=1,cp=1,tp=2";
  EXPECT_EQ(sorted_lines(ran.out), (std::vector<std::string>{"[0] 0/2 0/2 " + mesh, "[1] 1/2 1/2 " + mesh}));
  EXPECT_EQ(sorted_lines(ran.err), (std::vector<std::string>{"[0] oops", "[1] oops"}));
  EXPECT_TRUE(home.empty()) << "the private daemon's directory must be gone";
}

TEST(Run, LeavesLinesAloneForOneRankOrOnRequest) {
  const Folder home;
  EXPECT_EQ(shells(home, {"-n", "1"}, "printf plain").out, "plain");
  EXPECT_EQ(shells(home, {"-n", "2", "--no-prefix"}, "echo plain").out, "plain\nplain\n");
}

TEST(Run, EndsWithTheFirstFailuresCode) {
  const Folder home;
  const Ran ran = shells(home, {"-n", "3", "--grace", "0.05"}, "[ $MUSTER_RANK = 1 ] && exit 7; sleep 100");
  EXPECT_EQ(ran.code, 7);
  EXPECT_THAT(ran.err,
              ::testing::MatchesRegex(
                  "muster run: rank 1 exited with code 7\n"
                  "muster run: ranks 0, 2 did not end within 0.05 s of rank 1's failure; sent SIGTERM\n"
                  "muster run: failed first: rank 1, [0-9.]+ s after the start, exited with code 7\n"));
  EXPECT_TRUE(home.empty());
}

TEST(Run, GivesTheOthersTimeToFinish) {
  const Folder home;
  const Ran ran =
      shells(home, {"-n", "2", "--grace", "60"}, "[ $MUSTER_RANK = 1 ] && exit 3; sleep 0.3; echo finished");
  EXPECT_EQ(ran.code, 3);
  EXPECT_EQ(ran.out, "[0] finished\n");
}

TEST(Run, NamesTheSignalThatKilledARank) {
  const Folder home;
  const Ran ran = shells(home, {"-n", "2", "--grace", "0"}, "[ $MUSTER_RANK = 1 ] && kill -9 $$; sleep 100");
  EXPECT_EQ(ran.code, 137);
  EXPECT_EQ(ran.err.find("muster run: rank 1 was killed by signal 9 (Killed)\n"), 0u) << ran.err;
}

// Goal:   elastic ranks go on when one fails, and what the last of them does is the run's end.
TEST(Run, LetsElasticRanksGoOn) {
  const Folder home;
  const Ran well = shells(home, {"-n", "3", "--elastic", "--grace", "0"},
                          "[ $MUSTER_RANK = 1 ] && kill -9 $$; sleep 0.3; echo done");
  EXPECT_EQ(well.code, 0) << well.err;
  EXPECT_EQ(sorted_lines(well.out), (std::vector<std::string>{"[0] done", "[2] done"}));
  EXPECT_EQ(well.err, "muster run: rank 1 was killed by signal 9 (Killed); 2 go on\n");
  const Ran failed =
      shells(home, {"-n", "3", "--elastic"}, "[ $MUSTER_RANK = 1 ] && exit 0; sleep $MUSTER_RANK.5; exit 5");
  EXPECT_EQ(failed.code, 5) << failed.err;
  EXPECT_EQ(failed.err,
            "muster run: rank 0 exited with code 5; 1 go on\nmuster run: rank 2 exited with code 5\n");
}

TEST(Run, TellsItsRanksOfCheckMode) {
  const Folder home;
  const Ran ran = shells(home, {"-n", "2", "--check"}, "echo $MUSTER_CHECK");
  EXPECT_EQ(sorted_lines(ran.out), (std::vector<std::string>{"[0] 1", "[1] 1"})) << ran.err;
}

TEST(Run, KillsARankThatIgnoresTermination) {
  const Folder home;
  const Ran ran = shells(home, {"-n", "2", "--grace", "0"},
                         "[ $MUSTER_RANK = 1 ] && sleep 1 && exit 4; trap '' TERM; exec sleep 99");
  EXPECT_EQ(ran.code, 4);
  EXPECT_NE(ran.err.find("rank 0 did not end within 5 s of SIGTERM; killed\n"), std::string::npos) << ran.err;
}

TEST(Run, EndsWhatARankHasStartedWithIt) {
  const Folder home;
  const Ran ran = shells(home, {"-n", "1"}, "sleep 1000 & echo $!");
  ASSERT_EQ(ran.code, 0) << ran.err;
  const pid_t left = std::stoi(ran.out);
  for (int waited = 0; exists(left) && waited < kPatienceMs; waited += 10)
    usleep(10000);  // until it is reaped
  EXPECT_FALSE(exists(left));
}

TEST(Run, PassesSignalsOn) {
  const Folder home;
  Running running(start_of(home, {"-n", "2"},
                           "trap 'echo user1; exit 0' USR1; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(running.printed("[0] ready") && running.printed("[1] ready")) << running.err();
  running.signal(SIGUSR1);
  const Ran ran = running.wait();
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("[0] user1"), std::string::npos) << ran.out;
  EXPECT_NE(ran.out.find("[1] user1"), std::string::npos) << ran.out;
}

TEST(Run, AnInterruptEndsAllAndCleansUp) {
  const Folder home;
  for (const auto& [number, code] :
       {std::pair{SIGINT, 130}, std::pair{SIGTERM, 143}, std::pair{SIGHUP, 129}, std::pair{SIGQUIT, 131}}) {
    Running running(start_of(home, {"-n", "2"}, "echo ready; exec sleep 1000"));
    ASSERT_TRUE(running.printed("[0] ready") && running.printed("[1] ready")) << running.err();
    running.signal(number);
    const Ran ran = running.wait();
    EXPECT_EQ(ran.code, code) << ran.err;
    const std::string name = std::string("SIG") + sigabbrev_np(number);
    EXPECT_EQ(ran.err, "muster run: interrupted by " + name + "; 2 ranks ended\n");
    EXPECT_TRUE(home.empty());
  }
}

// Goal:   Ctrl-Z stops the whole job and `fg` lets it go on, though a terminal's signals reach the launcher
//         alone; where no shell could say `fg`, nothing stops.
// Method: the rank's shell starts no program. One that is stopped while it does waits in vfork for its child,
//         which is stopped too, and its state then reads D and not T.
TEST(Run, StopsAndGoesOnWithItsRanks) {
  for (const bool orphaned : {false, true}) {
    const Folder home;
    Start start = start_of(home, {"-n", "1", "--no-prefix"},
                           "echo $$; while [ ! -e " + home.path() + "/go ]; do :; done; echo on");
    start.in_child = [orphaned] { orphaned ? void(setsid()) : void(setpgid(0, 0)); };
    Running running(start);
    ASSERT_TRUE(running.printed("\n")) << running.err();
    const pid_t rank = std::stoi(running.out());
    running.signal(SIGTSTP);
    if (!orphaned) {
      for (int waited = 0; state_of(rank) != 'T' || state_of(running.pid()) != 'T'; ++waited, usleep(1000))
        ASSERT_LT(waited, kPatienceMs);
    }
    home.write("go", "");
    usleep(50'000);
    EXPECT_TRUE(orphaned || running.out().find("on") == std::string::npos);
    if (!orphaned) running.signal(SIGCONT);
    ASSERT_TRUE(running.printed("on\n")) << running.err();
    EXPECT_EQ(running.wait().code, 0);
  }
}

// Goal:   a run that was started to outlive its terminal does: nohup, or a shell's `&`.
// Method: a rank sends what a hang-up brings to itself and to its launcher.
TEST(Run, LeavesSignalsIgnoredThatWereIgnoredAtItsStart) {
  const Folder home;
  Start start = start_of(home, {"-n", "1"},
                         "for s in HUP INT QUIT; do kill -$s $$; kill -$s $PPID; done; echo alive; "
                         "exec sleep 1000");
  start.in_child = [] {
    for (const int number : {SIGHUP, SIGINT, SIGQUIT}) std::signal(number, SIG_IGN);
  };
  Running running(start);
  ASSERT_TRUE(running.printed("alive")) << running.err();
  running.signal(SIGTERM);
  const Ran ran = running.wait();
  EXPECT_EQ(ran.code, 143) << ran.err;
  EXPECT_EQ(ran.err, "muster run: interrupted by SIGTERM; 1 rank ended\n");
}

TEST(Run, ASecondInterruptDoesNotWait) {
  const Folder home;
  Running running(start_of(home, {"-n", "1", "--grace", "1000"},
                           "trap 'echo deaf' INT; echo ready; while :; do sleep 0.05; done"));
  ASSERT_TRUE(running.printed("ready"));
  running.signal(SIGINT);
  ASSERT_TRUE(running.printed("deaf"));
  running.signal(SIGINT);
  EXPECT_EQ(running.wait().code, 130);
}

// Goal:   a launcher that is killed leaves neither ranks nor a daemon nor a directory behind.
TEST(Run, DiesWithoutLeavingAnythingBehind) {
  const Folder home;
  Running running(start_of(home, {"-n", "1"}, "echo $$; exec sleep 1000"));
  ASSERT_TRUE(running.printed("\n"));
  const pid_t rank = std::stoi(running.out());
  running.signal(SIGKILL);
  EXPECT_EQ(running.wait().code, 137);
  for (int waited = 0; (exists(rank) || !home.empty()) && waited < kPatienceMs; waited += 10) usleep(10000);
  EXPECT_FALSE(exists(rank));
  EXPECT_TRUE(home.empty());
}

TEST(Run, NeedsNoSeparatorBeforeTheProgram) {
  const Folder home;
  const Ran ran =
      muster({"run", "--private", "-n", "1", "sh", "-c", "echo $0 $1", "--flag", "-n"}, at_home(home));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(ran.out, "--flag -n\n");
}

TEST(Run, StopsLikeItsRanksWhenNobodyReads) {
  const Folder home;
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  Start start = start_of(home, {"-n", "2"}, "while :; do echo more; done");
  start.in_child = [&ends] {
    dup2(ends[1], STDOUT_FILENO);
    close(ends[0]);
    close(ends[1]);
  };
  Running running(start);
  close(ends[1]);
  char some[16];
  EXPECT_GT(read(ends[0], some, sizeof some), 0);
  close(ends[0]);
  EXPECT_EQ(running.wait().code, 128 + SIGPIPE);
  EXPECT_TRUE(home.empty());
}

// A pipe in place of a program's standard output that is read only when the test likes to.
class Unread {
 public:
  Unread() { EXPECT_EQ(pipe2(ends_, O_CLOEXEC), 0); }
  ~Unread() {
    for (const int fd : ends_) close(fd);
  }
  Unread(const Unread&) = delete;
  Unread& operator=(const Unread&) = delete;
  std::function<void()> as_output() const {
    return [end = ends_[1]] { dup2(end, STDOUT_FILENO); };
  }
  // Until it takes no more: in bytes that differs, as small writes leave pages half full.
  bool filled() const {
    for (int waited = 0; waited < kPatienceMs; waited += 5) {
      pollfd entry{ends_[1], POLLOUT, 0};
      if (poll(&entry, 1, 0) == 0) return true;
      usleep(5000);
    }
    return false;
  }
  bool blocks() const { return (fcntl(ends_[1], F_GETFL) & O_NONBLOCK) == 0; }
  // To its end, once the test is the last to hold the other side.
  std::string rest() {
    close(std::exchange(ends_[1], -1));
    std::string all;
    char buffer[65536];
    for (ssize_t n = 0; (n = read(ends_[0], buffer, sizeof buffer)) > 0;)
      all.append(buffer, static_cast<std::size_t>(n));
    return all;
  }

 private:
  int ends_[2] = {-1, -1};
};

// Goal:   a reader that stalls, as `| less` does, does not make the launcher deaf.
// Method: nobody reads; the ranks end at the first signal, the launcher that waits for its reader at the
//         second.
TEST(Run, HearsSignalsWhileNobodyReads) {
  const Folder home;
  const Unread unread;
  Start start = start_of(home, {"-n", "2", "--grace", "1000"}, "exec yes");
  start.in_child = unread.as_output();
  Running running(start);
  ASSERT_TRUE(unread.filled()) << running.err();
  running.signal(SIGINT);
  for (int waited = 0; running.err().empty() && waited < kPatienceMs; waited += 5) usleep(5000);
  EXPECT_EQ(running.err(), "muster run: interrupted by SIGINT; 2 ranks ended\n");
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait().code, 130);
  EXPECT_TRUE(unread.blocks()) << "the pipe is others' too";
  EXPECT_TRUE(home.empty());
}

TEST(Run, DoesNotWaitLongForAReaderOnceInterrupted) {
  const Folder home;
  const Unread unread;
  Start start = start_of(home, {"-n", "2", "--grace", "1000"}, "exec yes");
  start.in_child = unread.as_output();
  Running running(start);
  ASSERT_TRUE(unread.filled()) << running.err();
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait().code, 143);
}

// Goal:   the output of ranks comes to a slow reader whole, also when they ended long before.
TEST(Run, LosesNothingToASlowReader) {
  const Folder home;
  Unread unread;
  Start start = start_of(home, {"-n", "2"}, "seq 1 100000");
  start.in_child = unread.as_output();
  Running running(start);
  ASSERT_TRUE(unread.filled()) << running.err();
  const std::vector<std::string> lines = sorted_lines(unread.rest());
  EXPECT_EQ(running.wait().code, 0);
  EXPECT_EQ(lines.size(), 200000u);
  EXPECT_EQ(std::adjacent_find(lines.begin(), lines.end()), lines.end());
}

TEST(Run, WritesATrace) {
  const Folder home, files;
  const std::string file = files.path() + "/trace.json";
  const Ran ran = shells(home, {"-n", "2", "--trace", file}, "true");
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::ifstream stream(file);
  EXPECT_FALSE(Json::parse(stream, nullptr, false).is_discarded());
  const Ran lost = shells(home, {"-n", "1", "--trace", "/nonexistent/trace.json"}, "echo started");
  EXPECT_EQ(lost.code, 1);
  EXPECT_EQ(lost.out, "") << "it is known before";
  EXPECT_THAT(lost.err,
              ::testing::HasSubstr(
                  "--trace: /nonexistent/trace.json cannot be written: there is no folder /nonexistent"));
}

// Goal: a parent that ignores SIGCHLD, as some service managers do, must not turn a crash into a success.
TEST(Run, SeesAFailureThoughItsParentIgnoresTheEndOfChildren) {
  const Folder home;
  Start start = start_of(home, {"-n", "2", "--grace", "0"}, "kill -9 $$");
  start.in_child = [] { std::signal(SIGCHLD, SIG_IGN); };
  const Ran ran = run(start);
  EXPECT_EQ(ran.code, 137) << ran.err;
}

// Goal: a process that left the rank's group and writes for ever does not keep the run from ending.
TEST(Run, DoesNotWaitForWhoLeftTheGroupAndWrites) {
  const Folder home;
  const Ran ran = shells(home, {"-n", "2"}, "setsid sh -c 'while :; do echo more; done' & sleep 0.2");
  EXPECT_EQ(ran.code, 0) << ran.err;
}

TEST(Run, SaysThatItsOutputCannotBeWritten) {
  const Folder home;
  Start start = start_of(home, {"-n", "2"}, "echo text; sleep 100");
  start.in_child = [] { dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO); };
  const Ran ran = run(start);
  EXPECT_EQ(ran.code, 1);
  EXPECT_EQ(ran.err, "muster run: standard output cannot be written: No space left on device\n");
}

// Goal:   the user's settings for a private daemon's sessions stay, unless the ranks need more.
TEST(Run, APrivateDaemonHasRoomForItsRanks) {
  const Folder home, files;
  const std::string config = files.write("musterd.yaml", "limits:\n  sessions_max: 2\n");
  const std::string sessions = "MUSTER_SET_limits__sessions_max=",
                    ranks = "MUSTER_SET_limits__ranks_per_job_max=";
  struct Case {
    std::vector<std::string> options, environment;
    int sessions, ranks;
  };
  for (const Case& each : {Case{{}, {}, 256, 256}, Case{{}, {sessions + "2"}, 3, 256},
                           Case{{}, {sessions + "1024", ranks + "2"}, 1024, 3},
                           Case{{"--config", config}, {ranks + "400"}, 3, 400}}) {
    std::vector<std::string> options{"-n", "3", "--no-prefix"};
    options.insert(options.end(), each.options.begin(), each.options.end());
    Start start =
        start_of(home, options, "if [ $MUSTER_RANK = 0 ]; then " + program("muster") + " status --json; fi");
    start.environment.insert(start.environment.end(), each.environment.begin(), each.environment.end());
    const Ran ran = run(start);
    ASSERT_EQ(ran.code, 0) << ran.err;
    const Json status = ran.json();
    EXPECT_EQ(status.at("limits").at("sessions_max"), each.sessions);
    EXPECT_EQ(status.at("limits").at("ranks_per_job_max"), each.ranks);
  }
}

// Goal:   where few files may be open a private daemon has less room than by default, and starts.
TEST(Run, APrivateDaemonMakesDoWithTheFilesThatMayBeOpen) {
  const Folder home;
  for (const rlim_t files : {2000, 1024}) {
    Start start = start_of(home, {"-n", "3", "--no-prefix"},
                           "if [ $MUSTER_RANK = 0 ]; then " + program("muster") + " status --json; fi");
    start.in_child = [files] {
      const rlimit limit{files, files};
      setrlimit(RLIMIT_NOFILE, &limit);
    };
    const Ran ran = run(start);
    ASSERT_EQ(ran.code, 0) << files << ": " << ran.err;
    const Json limits = ran.json().at("limits");
    EXPECT_LT(limits.at("sessions_max"), 256) << files;
    EXPECT_GE(limits.at("sessions_max"), 3) << files;
    EXPECT_GE(limits.at("jobs_max"), files == 2000 ? 16 : 1);
  }
}

// ---- with a daemon that runs already

TEST(RunOnADaemon, TwoRunsAtOnceHaveTheirOwnJobs) {
  const Daemon daemon;
  const std::vector<std::string> environment{"MUSTER_ENDPOINT=" + daemon.socket()};
  const std::string script =
      "echo $MUSTER_JOB; while [ ! -e " + daemon.folder().path() + "/go ]; do sleep 0.02; done";
  const Start start{{program("muster"), "run", "-n", "2", "--", "sh", "-c", script}, environment, {}};
  Running first(start), second(start);
  ASSERT_TRUE(first.printed("[1] run-") && second.printed("[1] run-")) << first.err() << second.err();
  const Json jobs = muster({"jobs", "--json"}, environment).json().at("jobs");
  EXPECT_EQ(jobs.size(), 2u) << jobs;
  for (const Json& job : jobs) {
    EXPECT_EQ(job.at("state"), "ready");
    EXPECT_EQ(job.at("world"), 2);
    EXPECT_EQ(job.at("ranks").size(), 2u);
  }
  daemon.folder().write("go", "");
  EXPECT_EQ(first.wait().code, 0);
  EXPECT_EQ(second.wait().code, 0);
  for (int waited = 0; waited < kPatienceMs; waited += 20) {
    if (muster({"jobs", "--json"}, environment).json().at("jobs").empty()) return;
    usleep(20000);
  }
  FAIL() << "the jobs outlive their runs";
}

TEST(RunOnADaemon, AKeptJobIsJoinedByTheNextRun) {
  const Daemon daemon;
  const std::vector<std::string> environment{"MUSTER_ENDPOINT=" + daemon.socket()};
  const auto in_job = [&](std::vector<std::string> options, const std::string& script) {
    options.insert(options.begin(), {"run", "--job", "train"});
    options.insert(options.end(), {"--", "sh", "-c", script});
    return muster(options, environment);
  };
  EXPECT_EQ(in_job({}, "true").code, 4) << "there is no such job yet";
  ASSERT_EQ(in_job({"-n", "2", "--mesh", "dp_shard=2", "--keep"}, "true").code, 0);
  const Ran again = in_job({}, "echo $MUSTER_WORLD_SIZE $MUSTER_MESH");
  EXPECT_EQ(again.code, 0) << again.err;
  const std::string facts = "2 pp=1,dp_replicate=1,dp_shard=2,cp=1,tp=1";
  EXPECT_EQ(sorted_lines(again.out), (std::vector<std::string>{"[0] " + facts, "[1] " + facts}));
  EXPECT_EQ(in_job({"-n", "3"}, "true").code, 2);
  EXPECT_EQ(in_job({"--mesh", "dp_shard=-1"}, "true").code, 0) << "the same mesh in other words";
  const Ran other = in_job({"--mesh", "tp=2,dp_shard=1"}, "echo never");
  EXPECT_EQ(other.code, 2);
  EXPECT_EQ(other.out, "");
  for (const char* mesh : {"dp_shard=2,cp=1,tp=1", "dp_shard=1,cp=1,tp=2"})
    EXPECT_NE(other.err.find(mesh), std::string::npos) << other.err;
  const Ran flatten = in_job({"--flatten", "both=dp_shard,tp"}, "echo never");
  EXPECT_EQ(flatten.code, 2) << flatten.out;
  EXPECT_NE(flatten.err.find("both=dp_shard,tp"), std::string::npos) << flatten.err;
  EXPECT_EQ(muster({"end", "--job", "train"}, environment).code, 0);
}

TEST(RunOnADaemon, AFlattenedJobIsJoinedWithTheSameFlatten) {
  const Daemon daemon;
  const std::vector<std::string> line{"run", "--endpoint", daemon.socket(),    "--job",  "flat", "-n",
                                      "2",   "--flatten",  "both=dp_shard,tp", "--keep", "--",   "true"};
  EXPECT_EQ(muster(line).code, 0);
  const Ran again = muster(line);
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(muster({"end", "--job", "flat", "--endpoint", daemon.socket()}).code, 0);
}

// Goal:   a user who meant a run of his own sees that it is not, and how to have one.
TEST(RunOnADaemon, SaysThatItJoinsOne) {
  const Daemon daemon;
  const Ran variable = muster({"run", "-n", "1", "--", "true"}, {"MUSTER_ENDPOINT=" + daemon.socket()});
  EXPECT_EQ(variable.err, "muster run: joins the daemon at " + daemon.socket() +
                              "; for a daemon of its own, add --private\n");
  const Ran option = muster({"run", "-n", "1", "--endpoint", daemon.socket(), "--", "true"});
  EXPECT_EQ(option.err, "muster run: joins the daemon at " + daemon.socket() +
                            "; for a daemon of its own, leave --endpoint out and add --private\n");
  EXPECT_EQ(muster({"run", "-n", "1", "--private", "--", "true"}).err, "");
}

TEST(RunOnADaemon, AConfigurationIsRefusedThere) {
  const Daemon daemon;
  const std::string file = daemon.folder().write("musterd.yaml", "node:\n  workers: 2\n");
  const Ran ran =
      muster({"run", "-n", "1", "--endpoint", daemon.socket(), "--config", file, "--", "echo", "never"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_EQ(ran.out, "");
  EXPECT_NE(ran.err.find("add --private"), std::string::npos) << ran.err;
}

TEST(RunOnADaemon, ItsRanksGoOnWithoutTheDaemon) {
  Daemon daemon;
  Running running(
      {{program("muster"), "run", "-n", "2", "--endpoint", daemon.socket(), "--", "sh", "-c",
        "echo ready; while [ ! -e " + daemon.folder().path() + "/go ]; do sleep 0.02; done; echo done"},
       {},
       {}});
  ASSERT_TRUE(running.printed("[0] ready") && running.printed("[1] ready")) << running.err();
  daemon.running().signal(SIGKILL);
  const auto told = [&] { return running.err().find("the daemon has gone away") != std::string::npos; };
  for (int waited = 0; !told() && waited < kPatienceMs; waited += 10) usleep(10000);
  EXPECT_TRUE(told()) << running.err();
  daemon.folder().write("go", "");
  const Ran ran = running.wait();
  EXPECT_EQ(ran.code, 0);
  EXPECT_EQ(sorted_lines(ran.out).size(), 4u) << ran.out;
}

// Goal:   a rank's program may close its session and open another, with what the run has given it.
TEST(RunOnADaemon, LetsARankCloseItsSessionAndOpenAnother) {
  const Daemon daemon;
  Running running({{program("muster"), "run", "-n", "1", "--job", "again", "--", "sh", "-c",
                    "echo token:$MUSTER_TOKEN; sleep 60"},
                   {"MUSTER_ENDPOINT=" + daemon.socket()},
                   {}});
  ASSERT_TRUE(running.printed("token:\n")) << running.err();
  // The test itself is the rank.
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  options.endpoint = daemon.socket().c_str();
  options.job = "again";
  options.rank = 0;
  options.world_size = 1;
  for (int time = 0; time < 3; ++time) {
    muster_session* session = nullptr;
    ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << "time " << time << ": " << muster_last_error();
    EXPECT_EQ(muster_close(session), MUSTER_OK);
  }
  running.signal(SIGTERM);
  running.wait();
}

// An engine that is stopped, and has as much to read as its socket holds, refuses to be told anything.
TEST(RunOnADaemon, TellsAnEngineThatARankEndedUntilItHears) {
  const Daemon daemon;
  const std::vector<std::string> environment{"MUSTER_ENDPOINT=" + daemon.socket()};
  const std::string go = daemon.folder().path() + "/go";
  const std::string script = "echo ready; if [ $MUSTER_RANK = 0 ]; then sleep 60; else while [ ! -e " + go +
                             " ]; do sleep 0.02; done; fi";
  Running running(
      {{program("muster"), "run", "-n", "2", "--job", "full", "--", "sh", "-c", script}, environment, {}});
  ASSERT_TRUE(running.printed("[0] ready") && running.printed("[1] ready")) << running.err();
  // The test itself is rank 0.
  muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
  options.endpoint = daemon.socket().c_str();
  options.job = "full";
  options.rank = 0;
  options.world_size = 2;
  options.timeout_ns = 30'000'000'000;
  muster_session* session = nullptr;
  ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();

  const pid_t engine = muster({"jobs", "--json"}, environment).json().at("jobs").at(0).at("engine_pid");
  ASSERT_EQ(kill(engine, SIGSTOP), 0);
  const SteadyClock clock;
  // Each connection may have some questions that wait; the engine is full when a new one has none.
  std::vector<shm::Descriptor> sockets;
  bool full = false;
  while (!full && sockets.size() < 30) {
    auto socket = shm::connect_to(daemon.socket(), clock.now() + std::chrono::seconds(5), clock);
    ASSERT_TRUE(socket);
    std::uint32_t taken = 0;
    for (bool refused = false; !refused; ++taken) {
      const Json question{{"command", "groups"}, {"job", "full"}};
      ASSERT_TRUE(control::send_packet(*socket, shm::MessageKind::kCommand, taken + 1, question).ok());
      const auto answer = control::receive_packet(*socket, clock.now() + std::chrono::milliseconds(2), clock);
      refused = answer && !control::result_of(*answer);
    }
    full = taken == 1;
    sockets.push_back(*std::move(socket));
  }
  ASSERT_TRUE(full) << "the engine's socket takes everything";
  daemon.folder().write("go", "");
  usleep(300'000);  // the first word is refused meanwhile
  ASSERT_EQ(kill(engine, SIGCONT), 0);
  muster_group world = 0;
  ASSERT_EQ(muster_mesh_group(session, "world", &world), MUSTER_OK);
  EXPECT_EQ(muster_barrier(session, world), MUSTER_ERR_PEER_LOST) << muster_last_error();
  muster_close(session);
  running.signal(SIGTERM);
  running.wait();
}

}  // namespace
}  // namespace muster::test
