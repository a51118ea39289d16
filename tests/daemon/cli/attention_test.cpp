// `muster top` and `muster trace` hear their user: q, Ctrl-C, Ctrl-Z, also while a daemon does not answer.
#include "daemon/cli/attention.hpp"

#include "tests/daemon/cli/scripted_daemon.hpp"
#include "tests/daemon/cli/terminal.hpp"

namespace muster::test {
namespace {

// A daemon with one job that stays.
class TopOnATerminal : public testing::Test {
 protected:
  void SetUp() override {
    const Ran ran =
        muster({"run", "-n", "2", "--job", "train", "--keep", "--endpoint", daemon_.socket(), "--", "true"});
    ASSERT_EQ(ran.code, 0) << ran.err;
  }
  std::vector<std::string> line() const {
    return {program("muster"), "top", "--job", "train", "--interval", "0.2", "--endpoint", daemon_.socket()};
  }

  Daemon daemon_;
};

TEST_F(TopOnATerminal, EndsAtQAndGivesTheTerminalBack) {
  for (const char* key : {"q", "Q", "xyq"}) {
    Terminal terminal({line(), {}, {}});
    ASSERT_TRUE(terminal.shows("job train")) << terminal.shown();
    EXPECT_TRUE(terminal.is_as_a_shell_wants_it(false)) << "or q would wait for Enter";
    terminal.type(key);
    EXPECT_TRUE(terminal.is_as_a_shell_wants_it(true));
    EXPECT_EQ(terminal.wait(), 0) << key;
  }
}

TEST_F(TopOnATerminal, DoesWhatAKeySaysAtOnce) {
  Terminal terminal({line(), {}, {}});
  ASSERT_TRUE(terminal.shows("by RANK, lowest first")) << terminal.shown();
  terminal.type("e");
  EXPECT_TRUE(terminal.shows("by EXPOSED, highest first")) << terminal.shown();
  terminal.type("i");
  EXPECT_TRUE(terminal.shows("by EXPOSED, lowest first")) << terminal.shown();
  terminal.type("h");
  EXPECT_TRUE(terminal.shows("sort by EXPOSED")) << terminal.shown();
  terminal.type("q");
  EXPECT_EQ(terminal.wait(), 0);
}

TEST_F(TopOnATerminal, EndsAtASignalWithItsCodeAndGivesTheTerminalBack) {
  Terminal terminal({line(), {}, {}});
  ASSERT_TRUE(terminal.shows("job train")) << terminal.shown();
  terminal.type("\x03");
  EXPECT_TRUE(terminal.is_as_a_shell_wants_it(true));
  EXPECT_EQ(terminal.wait(), 130);
  Terminal quit({line(), {}, {}});
  ASSERT_TRUE(quit.shows("job train")) << quit.shown();
  quit.type("\x1c");
  EXPECT_TRUE(quit.is_as_a_shell_wants_it(true));
  EXPECT_EQ(quit.wait(), 128 + SIGQUIT);
  Terminal ended({line(), {}, {}});
  ASSERT_TRUE(ended.shows("job train")) << ended.shown();
  ended.signal(SIGTERM);  // as from a service manager, or kill(1)
  EXPECT_TRUE(ended.is_as_a_shell_wants_it(true));
  EXPECT_EQ(ended.wait(), 128 + SIGTERM);
}

// Method: a shell with job control that leaves the terminal's settings alone; `fg` and `bg` as a user would.
TEST_F(TopOnATerminal, LendsTheTerminalToItsShellAtCtrlZ) {
  Terminal shell({{"/bin/dash", "-i"}, {"PS1=ready> "}, {}});
  ASSERT_TRUE(shell.shows("ready> ")) << shell.shown();
  std::string command;
  for (const std::string& word : line()) command += word + " ";
  shell.type(command + "\n");
  ASSERT_TRUE(shell.is_as_a_shell_wants_it(false)) << shell.shown();
  ASSERT_TRUE(shell.shows("job train   engine")) << shell.shown();
  shell.type("\x1a");
  EXPECT_TRUE(shell.is_as_a_shell_wants_it(true));
  ASSERT_TRUE(shell.shows("ready> ")) << shell.shown();
  shell.type("fg\n");
  EXPECT_TRUE(shell.is_as_a_shell_wants_it(false)) << shell.shown();
  ASSERT_TRUE(shell.shows("job train   engine")) << shell.shown();
  shell.type("q");
  EXPECT_TRUE(shell.is_as_a_shell_wants_it(true));
  ASSERT_TRUE(shell.shows("ready> ")) << shell.shown();
  shell.type("echo code $?.\n");
  EXPECT_TRUE(shell.shows("code 0.")) << shell.shown();
  shell.type("exit\n");
  EXPECT_EQ(shell.wait(), 0);
}

// Goal:   in the background it neither reads what is typed for others nor changes the terminal.
TEST_F(TopOnATerminal, LeavesTheTerminalAloneInTheBackground) {
  Terminal shell({{"/bin/dash", "-i"}, {"PS1=ready> "}, {}});
  ASSERT_TRUE(shell.shows("ready> ")) << shell.shown();
  std::string command;
  for (const std::string& word : line()) command += word + " ";
  shell.type(command + "&\n");
  ASSERT_TRUE(shell.shows("job train   engine")) << shell.shown();
  shell.type("echo typed by lines\n");
  EXPECT_TRUE(shell.shows("typed by lines")) << shell.shown();
  EXPECT_TRUE(shell.is_as_a_shell_wants_it(true));
  shell.type("fg\n");
  EXPECT_TRUE(shell.is_as_a_shell_wants_it(false)) << shell.shown();
  shell.type("q");
  EXPECT_TRUE(shell.is_as_a_shell_wants_it(true));
  shell.type("exit\n");
  EXPECT_EQ(shell.wait(), 0);
}

TEST_F(TopOnATerminal, FitsSixtyColumns) {
  Terminal terminal({line(), {}, {}}, 60);
  ASSERT_TRUE(terminal.shows("(60 columns are too few for ")) << terminal.shown();
  terminal.type("q");
  EXPECT_EQ(terminal.wait(), 0);
  std::istringstream lines(terminal.shown());
  for (std::string text; std::getline(lines, text);) EXPECT_LE(text.size(), 60u + 7u) << text;  // and its end
}

// ---- while a daemon does not answer

// Leaves some questions open.
ScriptedDaemon::Script silent_at(const std::string& question) {
  return [question](const std::string& command) -> std::optional<Json> {
    if (command == question) return std::nullopt;
    return Json::object();
  };
}

TEST(WithoutAnAnswer, TopEndsAtASignalWithItsCode) {
  const ScriptedDaemon daemon(silent_at("counters"));
  for (const int number : {SIGINT, SIGTERM}) {
    Running top({{program("muster"), "top", "--job", "j", "--endpoint", daemon.socket()}, {}, {}});
    ASSERT_TRUE(daemon.was_asked("counters"));
    usleep(50'000);  // so that it waits for the answer; a signal before ends it in the same way
    top.signal(number);
    const Ran ran = top.wait();
    EXPECT_EQ(ran.code, 128 + number) << ran.err;
    EXPECT_EQ(ran.err, "");
  }
}

TEST(WithoutAnAnswer, TraceEndsAtASignalAndLeavesNoRecordingOn) {
  const Folder folder;
  for (const char* question : {"trace_begin", "trace_end"}) {
    const ScriptedDaemon daemon(silent_at(question));
    Running trace({{program("muster"), "trace", "--job", "j", "--seconds", "0", "-o", folder.path() + "/t",
                    "--endpoint", daemon.socket()},
                   {},
                   {}});
    ASSERT_TRUE(daemon.was_asked(question));
    trace.signal(SIGINT);
    const Ran ran = trace.wait();
    EXPECT_EQ(ran.code, 130) << question << ran.err;
    EXPECT_TRUE(daemon.was_asked("trace_end")) << "after " << question;
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/t"));
  }
}

}  // namespace
}  // namespace muster::test
