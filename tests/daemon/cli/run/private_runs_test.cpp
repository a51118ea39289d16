// Commands that ask a daemon and name none find the private runs of their user.
#include "daemon/cli/run/private_runs.hpp"

#include "daemon/cli/run/stale_runs.hpp"
#include "tests/daemon/cli/terminal.hpp"

#include <fstream>

#include <gmock/gmock.h>

namespace muster::test {
namespace {

using cli::DaemonAddress;
using cli::endpoint_of_run;
using cli::PrivateRun;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

const std::vector<PrivateRun> kRuns{{"/tmp/a", {"train"}}, {"/tmp/b", {"train", "eval"}}, {"/tmp/c", {}}};

TEST(EndpointOfRun, IsThatOfTheOnlyRunOrOfTheJob) {
  EXPECT_EQ(*endpoint_of_run({kRuns[0]}, "", "none"), "/tmp/a");
  EXPECT_EQ(*endpoint_of_run({kRuns[2]}, "", "none"), "/tmp/c") << "a run that just begins";
  EXPECT_EQ(*endpoint_of_run(kRuns, "eval", "none"), "/tmp/b");
}

// Goal:   where several fit, the user sees what names each.
TEST(EndpointOfRun, ListsSeveralWithTheirEndpoints) {
  const auto any = endpoint_of_run(kRuns, "", "none");
  ASSERT_FALSE(any);
  EXPECT_EQ(any.error().exit_code, cli::kUsage);
  EXPECT_THAT(any.error().text, AllOf(HasSubstr("3 private runs of this user are on; say which:"),
                                      HasSubstr("--endpoint /tmp/a  (--job train)"),
                                      HasSubstr("--endpoint /tmp/b  (--job train, eval)"),
                                      HasSubstr("--endpoint /tmp/c  (no job yet)")));
  const auto train = endpoint_of_run(kRuns, "train", "none");
  ASSERT_FALSE(train);
  EXPECT_THAT(train.error().text, AllOf(HasSubstr("/tmp/a"), HasSubstr("/tmp/b"), Not(HasSubstr("/tmp/c"))));
}

TEST(EndpointOfRun, SaysWhatElseThereIsWhereNoneFits) {
  const auto none = endpoint_of_run({}, "", "no daemon at all");
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().exit_code, cli::kUnreachable);
  EXPECT_EQ(none.error().text, "no daemon at all");
  const auto other = endpoint_of_run(kRuns, "lost", "no job 'lost'");
  ASSERT_FALSE(other);
  EXPECT_THAT(other.error().text,
              AllOf(HasSubstr("no job 'lost'\nThere are other private runs:"), HasSubstr("eval")));
}

class PrivateRuns : public ::testing::Test {
 protected:
  // A run whose only rank waits until it is told to end.
  Start run_of(const std::string& job) const {
    return {{program("muster"), "run", "--private", "-n", "1", "--job", job, "--", "sh", "-c",
             "echo here; sleep 600"},
            {"XDG_RUNTIME_DIR=" + home_.path()},
            {}};
  }
  Ran ask(std::vector<std::string> arguments) const {
    return muster(std::move(arguments), {"XDG_RUNTIME_DIR=" + home_.path()});
  }
  DaemonAddress nowhere() const { return {home_.path() + "/none", std::chrono::seconds(10)}; }
  std::vector<std::string> parents() const { return {home_.path()}; }

  const Folder home_;
};

TEST_F(PrivateRuns, AreFoundBesideWhatIsNone) {
  std::filesystem::create_directory(cli::fresh_run_directory(home_.path()));  // of a killed run
  std::filesystem::create_directory(home_.path() + "/muster-run-mine");
  EXPECT_TRUE(cli::private_runs(parents()).empty());
  const auto none = cli::daemon_to_ask(nowhere(), "", parents());
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().exit_code, cli::kUnreachable);
  EXPECT_THAT(none.error().text,
              AllOf(HasSubstr("no daemon at " + home_.path() + "/none: there is no such socket"),
                    HasSubstr("no private run of this user in " + home_.path()), HasSubstr("start musterd")));
  Running run(run_of("found"));
  ASSERT_TRUE(run.printed("here")) << run.err();
  const auto runs = cli::private_runs(parents());
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].jobs, std::vector<std::string>{"found"});
  EXPECT_EQ(cli::daemon_to_ask(nowhere(), "", parents())->endpoint, runs[0].endpoint);
  EXPECT_EQ(cli::daemon_to_ask(nowhere(), "found", parents())->endpoint, runs[0].endpoint);
  const auto lost = cli::daemon_to_ask(nowhere(), "lost", parents());
  ASSERT_FALSE(lost);
  EXPECT_THAT(lost.error().text, AllOf(HasSubstr("with a job 'lost'"), HasSubstr("--job found")));
  EXPECT_EQ(run.err(), "") << "a log is no place for advice";
  run.signal(SIGTERM);
  EXPECT_EQ(run.wait().code, 143);
}

// Goal:   a command that `muster run` shows on a terminal works as it stands, with and without a daemon on
//         the machine.
TEST_F(PrivateRuns, AreShownByTheCommandsThatTheyPrint) {
  Terminal run(run_of("shown-by-commands"), 200);
  ASSERT_TRUE(
      run.shows("muster run: on a private daemon; while it runs, `muster top --job shown-by-commands`"))
      << run.shown();
  ASSERT_TRUE(run.shows("here")) << run.shown();
  const std::string trace = home_.path() + "/trace.json";
  for (std::vector<std::string> words :
       std::vector<std::vector<std::string>>{{"top", "--once", "--interval", "0.2"},
                                             {"hang"},
                                             {"flight"},
                                             {"groups"},
                                             {"trace", "--seconds", "0", "-o", trace}}) {
    words.insert(words.end(), {"--job", "shown-by-commands"});
    const Ran ran = ask(words);
    EXPECT_TRUE(ran.code == 0 || (words[0] == "hang" && ran.code == 5)) << words[0] << ran.code << ran.err;
  }
  EXPECT_EQ(ask({"end", "--job", "shown-by-commands"}).code, 0);
  run.type("\x03");
  EXPECT_EQ(run.wait(), 130);
}

// Goal:   a daemon that does not have the named job gives way to the run that has it.
TEST_F(PrivateRuns, AreFoundBesideADaemonWithoutTheJob) {
  Daemon daemon;
  Running run(run_of("private-one"));
  ASSERT_TRUE(run.printed("here")) << run.err();
  const DaemonAddress address{daemon.socket(), std::chrono::seconds(10)};
  EXPECT_EQ(cli::daemon_to_ask(address, "", parents())->endpoint, address.endpoint);
  EXPECT_NE(cli::daemon_to_ask(address, "private-one", parents())->endpoint, address.endpoint);
  EXPECT_EQ(cli::daemon_to_ask(address, "nobodys", parents())->endpoint, address.endpoint) << "it says so";
  run.signal(SIGTERM);
  run.wait();
}

}  // namespace
}  // namespace muster::test
