// `muster run` over two nodes: two daemons on loopback addresses, and launchers that only choose a daemon.
#include "tests/support/program_facts.hpp"
#include "tests/system/nodes_as_programs.hpp"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

// Numbers behind "pid " in the text.
std::vector<pid_t> pids_in(const std::string& text) {
  std::vector<pid_t> pids;
  for (std::size_t at = 0; (at = text.find("pid ", at)) != std::string::npos; at += 4)
    pids.push_back(std::stoi(text.substr(at + 4)));
  return pids;
}

class RunHosts : public NodesAsPrograms {
 protected:
  static bool all_gone(const std::vector<pid_t>& pids) {
    return until([&] { return std::none_of(pids.begin(), pids.end(), exists); });
  }
};

constexpr const char* kTellPlace =
    "echo $MUSTER_RANK/$MUSTER_WORLD_SIZE $MUSTER_LOCAL_RANK/$MUSTER_LOCAL_SIZE";

TEST_F(RunHosts, ARunOfAJobOnSeveralNodesStartsTheRanksOfItsOwn) {
  const std::string stop = folder_.write("stop", "");
  const std::string script = std::string(kTellPlace) + "; exec " MUSTER_RANK_PROGRAM " " + stop;
  Start there = run_line({"--job", "train"}, script);
  there.arguments[3] = socket(2);
  Running other(there);
  const Ran here = run(run_line({"--job", "train", "-n", "4"}, script));
  EXPECT_EQ(here.code, 0) << here.out << here.err;
  EXPECT_THAT(here.out, AllOf(HasSubstr("[0] 0/4 0/2\n"), HasSubstr("[1] 1/4 1/2\n"), Not(HasSubstr("[2]"))));
  EXPECT_THAT(here.err, HasSubstr("starts ranks 0,1 of job train, those of node node01\n"));
  const Ran ran = other.wait();
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  EXPECT_THAT(ran.out,
              AllOf(HasSubstr("[2] 2/4 0/2\n"), HasSubstr("[3] 3/4 1/2\n"), HasSubstr("operations")));
  EXPECT_THAT(ran.err, HasSubstr("starts ranks 2,3 of job train, those of node node02\n"));
  const Ran two = run(run_line({"--job", "train", "-n", "2"}, "true"));
  EXPECT_EQ(two.code, 2);
  EXPECT_THAT(two.err, HasSubstr("job train has 4 ranks, not 2"));
}

// Goal:   a rank that ends before it attached is told by its number in the job.
TEST_F(RunHosts, TellsTheAbsenceOfItsRanks) {
  Start there = run_line({"--job", "train"}, "[ $MUSTER_RANK = 2 ] && exit 0; exec " MUSTER_RANK_PROGRAM " " +
                                                 folder_.path() + "/never");
  there.arguments[3] = socket(2);
  const Ran ran = run(there);
  EXPECT_EQ(ran.code, 1) << ran.out << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("rank 2 exited with code 0"));
}

TEST_F(RunHosts, RunsAPartOnEachHost) {
  const std::string stop = folder_.write("stop", "");
  const Ran ran = run(hosts_line({}, std::string(kTellPlace) + "; exec " MUSTER_RANK_PROGRAM " " + stop));
  EXPECT_EQ(ran.code, 0) << ran.out << ran.err;
  for (const char* line : {"[0] 0/4 0/2\n", "[1] 1/4 1/2\n", "[2] 2/4 0/2\n", "[3] 3/4 1/2\n"})
    EXPECT_THAT(ran.out, HasSubstr(line));
  EXPECT_EQ(ran.err, "");
  EXPECT_EQ(state(1, "train"), "ready") << "the job was there before";
}

// Goal:   words reach the program as they were written, whether or not a shell stands between, in the folder
//         in which the run was started.
TEST_F(RunHosts, PassWordsFolderAndVariablesOn) {
  const std::string folder = folder_.path() + "/it's here";
  std::filesystem::create_directory(folder);
  for (const std::string& launcher :
       {"env -i PATH=/usr/bin:/bin MUSTER_ENDPOINT=" + socket(2),
        "env -i PATH=/usr/bin:/bin MUSTER_ENDPOINT=" + socket(2) + " sh -c {command}"}) {
    Start start = run_line({"--hosts", "node[01-02]:2", "--job", "train", "--launcher", launcher, "--env",
                            "DATA", "--no-prefix"},
                           "echo \"$0 $1 $DATA $MUSTER_SET_log__level$OTHER $(pwd)\"",
                           {"DATA=a 'b'", "MUSTER_SET_log__level=debug", "OTHER="});
    start.arguments.insert(start.arguments.end(), {"it's \"$x\"", ""});
    start.in_child = [&folder] { static_cast<void>(!chdir(folder.c_str())); };
    const Ran ran = run(start);
    EXPECT_EQ(ran.code, 0) << ran.err;
    const std::string line = "it's \"$x\"  a 'b' debug " + folder;
    EXPECT_THAT(sorted_lines(ran.out), ElementsAre(line, line, line, line)) << launcher;
  }
}

TEST_F(RunHosts, EndWithTheFirstFailureOfAnyHost) {
  const Ran ran = run(hosts_line({"--grace", "0.2"}, "[ $MUSTER_RANK = 3 ] && exit 7; exec sleep 100"));
  EXPECT_EQ(ran.code, 7);
  EXPECT_THAT(ran.err, AllOf(HasSubstr("muster run: rank 3 exited with code 7\n"),
                             HasSubstr("did not end within 0.2 s of rank 3's failure; sent SIGTERM\n"),
                             Not(HasSubstr("muster-failure"))));
}

// Goal:   the code of the failure that came first, though the part of another host ends before.
// Method: rank 3 fails; its part waits for rank 2, while those of the other host fail in between.
TEST_F(RunHosts, TellTheFirstFailureBeforeTheyEnd) {
  const std::string mark = folder_.path() + "/mark";
  Running running(
      hosts_line({"--grace", "60"}, "[ $MUSTER_RANK = 3 ] && exit 7; while [ ! -e " + mark +
                                        " ]; do sleep 0.02; done; [ $MUSTER_RANK = 2 ] && exec sleep "
                                        "0.5; exit 9"));
  ASSERT_TRUE(until([&] { return running.err().find("rank 3 exited") != std::string::npos; }));
  folder_.write("mark", "");
  const Ran ran = running.wait();
  EXPECT_EQ(ran.code, 7) << ran.err;
}

TEST_F(RunHosts, LetElasticRanksGoOn) {
  const Ran ran =
      run(hosts_line({"--elastic", "--grace", "0"}, "[ $MUSTER_RANK = 3 ] && exit 7; sleep 0.3; echo done"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(sorted_lines(ran.out), ElementsAre("[0] done", "[1] done", "[2] done"));
  EXPECT_THAT(ran.err, HasSubstr("rank 3 exited with code 7; 1 go on\n"));
}

TEST_F(RunHosts, TellRanksOfCheckMode) {
  const Ran ran = run(hosts_line({"--check"}, "[ \"$MUSTER_CHECK\" = 1 ]"));
  EXPECT_EQ(ran.code, 0) << ran.err;
}

TEST_F(RunHosts, PassSignalsOn) {
  Running running(hosts_line({},
                             "trap 'echo one' USR1; trap 'echo int; exit 0' INT; echo ready; while :; do "
                             "sleep 0.05; done"));
  for (const char* rank : {"[0]", "[1]", "[2]", "[3]"})
    ASSERT_TRUE(running.printed(std::string(rank) + " ready")) << running.err();
  running.signal(SIGUSR1);
  for (const char* rank : {"[0]", "[3]"}) ASSERT_TRUE(running.printed(std::string(rank) + " one"));
  running.signal(SIGINT);
  const Ran ran = running.wait();
  EXPECT_EQ(ran.code, 130);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("[1] int"), HasSubstr("[2] int")));
  EXPECT_THAT(ran.err, AllOf(HasSubstr("muster run: interrupted by SIGINT; the ranks on 2 hosts ended\n"),
                             Not(HasSubstr("2 ranks ended"))));
}

TEST_F(RunHosts, ASecondInterruptDoesNotWait) {
  Running running(
      hosts_line({"--grace", "1000"}, "trap 'echo deaf' TERM; echo pid $$; while :; do sleep 0.05; done"));
  ASSERT_TRUE(until([&] { return pids_in(running.out()).size() == 4; })) << running.err();
  running.signal(SIGTERM);
  ASSERT_TRUE(running.printed("[3] deaf") && running.printed("[0] deaf"));
  running.signal(SIGTERM);
  const Ran ran = running.wait();
  EXPECT_EQ(ran.code, 143) << ran.err;
  EXPECT_TRUE(all_gone(pids_in(ran.out)));
}

// Goal:   a head that is killed leaves nothing behind, also where a launcher passes no signal on, as ssh does
//         not.
TEST_F(RunHosts, DieWithTheirHead) {
  for (const std::string& launcher : {choosing(), choosing() + " setsid --wait sh -c {command}"}) {
    Running running(run_line({"--hosts", "node01:2,node02:2", "--job", "train", "--launcher", launcher},
                             "echo pid $$; exec sleep 1000"));
    ASSERT_TRUE(until([&] { return pids_in(running.out()).size() == 4; })) << running.err();
    const std::vector<pid_t> pids = pids_in(running.out());
    running.signal(SIGKILL);
    EXPECT_EQ(running.wait().code, 137);
    EXPECT_TRUE(all_gone(pids)) << launcher;
    EXPECT_EQ(state(2, "train"), "ready");
  }
}

TEST_F(RunHosts, SayWhichHostCannotBeReachedAndHow) {
  const auto with = [&](const std::string& launcher, std::vector<std::string> environment = {}) {
    return run(
        run_line({"--hosts", "node01:2,node02:2", "--job", "train", "--grace", "0", "--launcher", launcher},
                 "sleep 100", std::move(environment)));
  };
  const Ran none = with("/nonexistent/ssh {host} {command}");
  EXPECT_EQ(none.code, 127);
  EXPECT_THAT(none.err, HasSubstr("host node02: /nonexistent/ssh cannot be run: there is no such program"));
  const Ran refused = with("sh -c 'echo no route >&2; exit 255' {host} {command}");
  EXPECT_EQ(refused.code, 255);
  EXPECT_THAT(refused.err, AllOf(HasSubstr("no route\n"), HasSubstr("muster run: host node02: `sh -c "),
                                 HasSubstr("node02 …` exited with code 255\n")));
  const Ran homeless = with("env MUSTER_ENDPOINT=/nonexistent/s");
  EXPECT_EQ(homeless.code, 3);
  EXPECT_THAT(homeless.err, AllOf(HasSubstr("host node02: no daemon at /nonexistent/s"),
                                  HasSubstr("host node02: `env MUSTER_ENDPOINT=/nonexistent/s …` exited with "
                                            "code 3\n")));
  const Ran wrong = with("env", {"MUSTER_ENDPOINT=" + socket(1)});
  EXPECT_EQ(wrong.code, 1);
  EXPECT_THAT(wrong.err, HasSubstr("host node02: the daemon at " + socket(1) + " is that of node node01"));
  const Ran deaf = with(choosing() + " sh -c '{command} </dev/null'");
  EXPECT_NE(deaf.code, 0);
  EXPECT_THAT(deaf.err, HasSubstr("host node02: standard input has ended before a rank ran"));
}

// Goal:   a job that a run makes is on all its hosts while the run lasts, and on none afterwards, however the
//         run ends.
TEST_F(RunHosts, MakeTheirJobOnAllHostsForTheRun) {
  const std::vector<std::string> options{"--hosts", "node02:2,node01:1", "--mesh",  "dp_shard=3", "--job",
                                         "made",    "--launcher",        choosing()};
  const std::string script =
      std::string(kTellPlace) + "; echo pid $$; exec " MUSTER_RANK_PROGRAM " " + folder_.path() + "/stop";
  for (const int signal : {0, SIGKILL}) {
    std::filesystem::remove(folder_.path() + "/stop");
    Running running(run_line(options, script));
    ASSERT_TRUE(until([&] { return pids_in(running.out()).size() == 3; })) << running.err();
    const std::vector<pid_t> pids = pids_in(running.out());
    for (const int n : {1, 2}) EXPECT_EQ(state(n, "made"), "ready");
    signal == 0 ? void(folder_.write("stop", "")) : running.signal(signal);
    const Ran ran = running.wait();
    EXPECT_EQ(ran.code, signal == 0 ? 0 : 128 + signal) << ran.err;
    for (const char* line : {"[0] 0/3 0/2\n", "[1] 1/3 1/2\n", "[2] 2/3 0/1\n"})
      EXPECT_THAT(ran.out, HasSubstr(line));
    EXPECT_TRUE(all_gone(pids));
    for (const int n : {1, 2}) EXPECT_TRUE(until([&] { return state(n, "made").empty(); }));
  }
}

TEST_F(RunHosts, SayWhyTheirJobCannotBeMade) {
  daemons_[1]->signal(SIGKILL);
  daemons_[1]->wait();
  const Ran ran = run(run_line({"--hosts", "node01,node02", "--launcher", choosing()}, "echo never"));
  EXPECT_NE(ran.code, 0);
  EXPECT_EQ(ran.out, "");
  EXPECT_THAT(ran.err, HasSubstr("node02"));
}

TEST_F(RunHosts, RefuseWhatCannotBeBeforeAnythingStarts) {
  const auto refused = [&](std::vector<std::string> options, const std::string& why, int code = 2) {
    const Ran ran = run(run_line(std::move(options), "echo never"));
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_EQ(ran.out, "");
    EXPECT_THAT(ran.err, HasSubstr(why));
  };
  refused({"--hosts", "node01:2,node02:2", "--job", "j", "--keep"}, "--hosts and --keep exclude each other");
  refused({"--hosts", "node01:2,node01"}, "host node01 is named twice");
  refused({"--hosts", "node01:2,node09"},
          "cluster lab-a has no node node09; `muster status --endpoint " + socket(1) + "` lists them");
  refused({"--hosts", "node01:0,node02"}, "0 is not in the range 1 to 1024");
  refused({"--hosts", "node02"}, "this node, node01, must be among them");
  refused({"--hosts", "node01,node02", "-n", "3"}, "-n 3: --hosts gives 2 ranks; leave -n out");
  refused({"--hosts", "node01,node02", "--job", "train"},
          "job train has its ranks on node01:2,node02:2, not on node01:1,node02:1");
  refused({"--hosts", "node02:2,node01:2", "--job", "train"}, "job train has its ranks on node01:2,node02:2");
  refused({"--hosts", "node01,node02", "--mesh", "tp=3"}, "3");
  refused({"--hosts", "node01,node02", "--env", "UNSET"}, "--env UNSET: there is no such variable");
  refused({"--hosts", "node01,node02", "--launcher", "ssh '{host}"}, "' is not closed");
  refused({"--hosts", ""}, "the value is empty");
  refused({"-n", "1", "--launcher", "ssh"}, "--launcher and --env are for parts on other hosts");
  refused({"-n", "1", "--env", "PATH"}, "--launcher and --env are for parts on other hosts");
  const Ran alone = muster({"run", "--private", "--hosts", "node01,node02", "--", "true"});
  EXPECT_EQ(alone.code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--hosts and --private exclude each other"));
  const Daemon outside;
  const Ran ran = muster({"run", "--endpoint", outside.socket(), "--hosts", "node01,node02", "--", "true"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_THAT(ran.err, AllOf(HasSubstr(outside.socket() + " belongs to no cluster"), HasSubstr("jobs_from")));
}

// Goal:   a run of a job that is not there yet waits for its nodes, and then says which is missing.
TEST_F(RunHosts, SayWhatAJobWaitsFor) {
  daemons_[1]->signal(SIGKILL);
  daemons_[1]->wait();
  daemons_[0]->signal(SIGTERM);
  daemons_[0]->wait();
  Start start{{program("musterd"), "--directory", folder_of(1)}, {}, {}};
  for (const std::string& setting :
       {std::string("node.name=node01"), "jobs_from=" + folder_.path() + "/cluster.yaml",
        std::string("peers.plaintext=true")})
    start.arguments.insert(start.arguments.end(), {"--set", setting});
  daemons_[0] = std::make_unique<Running>(start);
  ASSERT_TRUE(until([&] { return muster({"status", "--endpoint", socket(1)}).code == 0; }));
  const Ran ran = run(run_line({"--job", "train", "--timeout", "0.5"}, "true"));
  EXPECT_EQ(ran.code, 124) << ran.err;
  EXPECT_THAT(ran.err,
              AllOf(HasSubstr("job train waits for its nodes: node node02"),
                    HasSubstr("(`muster status --endpoint " + folder_of(1) + "`)"), HasSubstr("--timeout")));
}

}  // namespace
}  // namespace muster::test
