// Refusals of `muster run` before a rank starts: the exit code, and whether the text names the remedy.
#include "tests/daemon/cli/program.hpp"

#include <cerrno>
#include <cstddef>
#include <iterator>

#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>

namespace muster::test {
namespace {

std::vector<std::string> at_home(const Folder& home) {
  return {"XDG_RUNTIME_DIR=" + home.path()};
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

Ran run_private(const Folder& home, std::vector<std::string> options) {
  std::vector<std::string> line{"run", "--private"};
  line.insert(line.end(), options.begin(), options.end());
  line.insert(line.end(), {"--", "echo", "never"});
  const Ran ran = muster(line, at_home(home));
  EXPECT_EQ(ran.out, "") << testing::PrintToString(options);
  EXPECT_TRUE(home.empty()) << testing::PrintToString(options);
  return ran;
}

TEST(RunRefusal, ANamedDaemonThatIsNotThereIsNotReplaced) {
  const Folder home;
  const Ran option = muster({"run", "-n", "1", "--endpoint", home.path() + "/sock", "--", "echo", "never"});
  EXPECT_EQ(option.code, 3);
  EXPECT_EQ(option.out, "");
  EXPECT_EQ(option.err, "muster: no daemon at " + home.path() +
                            "/sock: there is no such socket; start musterd, or leave --endpoint out for a "
                            "private one\n");
  const std::vector<std::string> environment{"MUSTER_ENDPOINT=" + home.path() + "/other"};
  const Ran variable = muster({"run", "-n", "1", "--", "echo", "never"}, environment);
  EXPECT_EQ(variable.code, 3);
  EXPECT_TRUE(has(variable.err, home.path() + "/other") && has(variable.err, "MUSTER_ENDPOINT") &&
              has(variable.err, "--private"))
      << variable.err;
  EXPECT_EQ(muster({"run", "--job", "j", "--", "true"}, environment).code, 3);
  const Ran own = muster({"run", "--private", "-n", "1", "--", "echo", "well"},
                         {environment.front(), "XDG_RUNTIME_DIR=" + home.path()});
  EXPECT_EQ(own.code, 0) << own.err;
}

// Goal:   an endpoint that is a file, or a socket of a daemon that is gone, is named as that.
TEST(RunRefusal, WhatIsNoSocketOfADaemon) {
  const Folder home;
  const std::string file = home.write("file", "");
  const auto refused = [&](std::vector<std::string> options, std::vector<std::string> environment) {
    options.insert(options.begin(), "run");
    options.insert(options.end(), {"-n", "1", "--", "echo", "never"});
    const Ran ran = muster(options, environment);
    EXPECT_EQ(ran.code, 3);
    EXPECT_EQ(ran.out, "");
    return ran.err;
  };
  const std::string begin =
      "muster: no daemon at " + file + ": it is not a socket; name the socket of a musterd";
  EXPECT_EQ(refused({"--endpoint", file}, {}), begin + ", or leave --endpoint out for a private one\n");
  EXPECT_EQ(refused({}, {"MUSTER_ENDPOINT=" + file}),
            begin + " (MUSTER_ENDPOINT names this socket), or add --private for a private one\n");
  EXPECT_TRUE(has(refused({"--endpoint", file + "/x"}, {}), "/x: there is no such socket; start musterd"));
  const Ran hosts = muster({"run", "--endpoint", file, "--hosts", "a:1", "--", "true"});
  EXPECT_TRUE(has(hosts.err, file + ": it is not a socket; name the socket of a musterd")) << hosts.err;
}

// Goal:   a file for output is looked at before anything runs.
TEST(RunRefusal, APlaceWhereNoFileCanBe) {
  const Folder home;
  const std::string folder = home.path() + "/folder", none = home.path() + "/none/trace.json";
  std::filesystem::create_directory(folder);
  EXPECT_EQ(run_private(Folder(), {"-n", "1", "--trace", folder}).err,
            "muster: --trace: " + folder + " is a folder; name a file, such as " + folder + "/NAME\n");
  for (const std::vector<std::string>& asks :
       {std::vector<std::string>{"run", "--private", "-n", "1", "--trace", none, "--", "true"},
        {"trace", "--job", "j", "-o", none},
        {"flight", "--job", "j", "-o", none}}) {
    const Ran ran = muster(asks);
    EXPECT_EQ(ran.code, 1);
    EXPECT_TRUE(has(ran.err, none + " cannot be written: there is no folder ")) << ran.err;
  }
  const std::string file = home.write("file", "");
  const Ran pickles = muster({"flight", "--job", "j", "--pickles", file});
  EXPECT_EQ(pickles.err, "muster: --pickles: " + file + " is a file; name a folder\n");
}

// Fails the calls of that number with EPERM, as a sandbox does, here and in all that is started from here.
void forbid(std::uint32_t number) {
  sock_filter code[] = {BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
                        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
                        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)};
  const sock_fprog program{std::size(code), code};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
    _exit(97);
}

// Goal:   in a sandbox the message names the sandbox that forbids a call, and no limit.
TEST(RunRefusal, ACallThatASandboxForbids) {
  const Folder home;
  for (const auto& [number, call] : {std::pair{SYS_eventfd2, "eventfd"}, {SYS_fallocate, "fallocate"}}) {
    const auto wanted = static_cast<std::uint32_t>(number);
    const Ran ran =
        run({{program("muster"), "run", "--private", "-n", "1", "--", "true"}, at_home(home), [wanted] {
               forbid(wanted);
             }});
    EXPECT_EQ(ran.code, 1);
    EXPECT_TRUE(has(ran.err, call)) << ran.err;
    EXPECT_TRUE(has(ran.err, "Operation not permitted; the call is forbidden here, and no limit helps"))
        << ran.err;
    EXPECT_FALSE(has(ran.err, "ulimit")) << ran.err;
  }
}

// Where /proc is an empty folder; false if this machine does not allow that.
bool hide_proc() {
  if (unshare(CLONE_NEWNS) != 0 && unshare(CLONE_NEWUSER | CLONE_NEWNS) != 0) return false;
  return mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
         mount("tmpfs", "/proc", "tmpfs", 0, nullptr) == 0;
}

TEST(RunRefusal, AMachineWithoutProc) {
  constexpr int kCannotHide = 96;
  const Folder home;
  const auto without_proc = [&](std::vector<std::string> words) {
    return run({std::move(words), at_home(home), [] {
                  if (!hide_proc()) _exit(kCannotHide);
                }});
  };
  const Ran ran = without_proc({program("muster"), "run", "--private", "-n", "1", "--", "true"});
  if (ran.code == kCannotHide) GTEST_SKIP() << "no mounts of its own can be had here";
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "/proc is not mounted here")) << ran.err;
  for (const std::vector<std::string>& words :
       {std::vector<std::string>{program("muster"), "run", "--hosts", "a:1", "--", "true"},
        {program("musterd"), "--transient", "--directory", home.path() + "/run"}}) {
    const Ran other = without_proc(words);
    EXPECT_NE(other.code, 0);
    EXPECT_TRUE(has(other.err, "mount it: mount -t proc proc /proc")) << other.err;
  }
}

TEST(RunRefusal, OptionsThatExcludeEachOther) {
  const Folder home;
  const Ran keep = run_private(home, {"-n", "2", "--keep"});
  EXPECT_EQ(keep.code, 2);
  EXPECT_TRUE(has(keep.err, "--private and --keep exclude each other")) << keep.err;
  EXPECT_EQ(run_private(home, {"-n", "2", "--endpoint", "/nonexistent/sock"}).code, 2);
  const Ran nameless = muster({"run", "-n", "2", "--keep", "--endpoint", home.path() + "/s", "--", "true"});
  EXPECT_EQ(nameless.code, 2) << "a job that stays and that nobody can name";
  EXPECT_TRUE(has(nameless.err, "--keep needs --job")) << nameless.err;
  const Ran job = run_private(home, {"--job", "j"});
  EXPECT_EQ(job.code, 2);
  EXPECT_TRUE(has(job.err, "give -n")) << job.err;
}

TEST(RunRefusal, AWrongMesh) {
  const Folder home;
  const Ran ran = run_private(home, {"-n", "4", "--mesh", "tp=3"});
  EXPECT_EQ(ran.code, 2);
  EXPECT_TRUE(has(ran.err, "3")) << ran.err;
}

TEST(RunRefusal, MoreRanksThanAnEngineHolds) {
  const Folder home;
  const Ran ran = run_private(home, {"-n", "1025"});
  EXPECT_EQ(ran.code, 2);
  for (const char* part : {"-n 1025", "1024 ranks at most", "limits.ranks_per_job_max"})
    EXPECT_TRUE(has(ran.err, part)) << part << " in " << ran.err;
}

TEST(RunRefusal, WrongSettingsOfThePrivateDaemonAreWrongUsage) {
  const Folder home, files;
  const std::string file = files.write("bad.yaml", "node:\n  worker: 2\n");
  const Ran config = run_private(home, {"-n", "1", "--config", file});
  EXPECT_EQ(config.code, 2);
  EXPECT_TRUE(has(config.err, file + ":2:")) << config.err;
  const Ran variable = muster({"run", "--private", "-n", "1", "--", "true"},
                              {"MUSTER_SET_node__workers=many", "XDG_RUNTIME_DIR=" + home.path()});
  EXPECT_EQ(variable.code, 2) << variable.err;
}

TEST(RunRefusal, TooFewOpenFilesWithTheNumberThatIsEnough) {
  const Folder home;
  const auto with_files = [&](rlim_t files, std::vector<std::string> environment = {}) {
    environment.push_back(at_home(home).front());
    return run({{program("muster"), "run", "--private", "-n", "8", "--", "true"}, environment, [files] {
                  const rlimit limit{files, files};
                  setrlimit(RLIMIT_NOFILE, &limit);
                }});
  };
  const Ran few = with_files(64);
  EXPECT_EQ(few.code, 1);
  EXPECT_TRUE(has(few.err, "the open-files limit is 64")) << few.err;
  const std::size_t at = few.err.find("ulimit -n ");
  ASSERT_NE(at, std::string::npos) << few.err;
  const Ran enough = with_files(std::stoul(few.err.substr(at + 10)));
  EXPECT_EQ(enough.code, 0) << enough.err;
  // A configured limit stays, and the text names it where it is too high.
  const Ran much = with_files(1500, {"MUSTER_SET_limits__sessions_max=1000"});
  EXPECT_EQ(much.code, 1);
  const std::size_t remedy = much.err.find("MUSTER_SET_limits__sessions_max=");
  ASSERT_NE(remedy, std::string::npos) << much.err;
  const Ran less = with_files(1500, {much.err.substr(remedy, much.err.find(' ', remedy) - remedy)});
  EXPECT_EQ(less.code, 0) << less.err;
  // The whole need at once, also where not even this program could begin.
  const Ran none = with_files(5);
  EXPECT_EQ(none.code, 1);
  EXPECT_TRUE(has(none.err, few.err.substr(at))) << none.err << few.err;
  EXPECT_TRUE(has(none.err, "this run needs " + few.err.substr(at + 10, few.err.find('\n', at) - at - 10)))
      << none.err;
}

TEST(RunRefusal, ProgramsThatCannotBeRun) {
  const Folder home, files;
  const auto code_and_text = [&](const std::string& path, int code, const std::string& text) {
    const Ran ran = muster({"run", "--private", "-n", "2", "--", path}, at_home(home));
    EXPECT_EQ(ran.code, code) << ran.err;
    EXPECT_TRUE(has(ran.err, path) && has(ran.err, text)) << ran.err;
  };
  code_and_text("/nonexistent/program", 127, "there is no such program");
  code_and_text("no-such-program-in-path", 127, "there is no such program");
  const std::string plain = files.write("plain", "x");
  code_and_text(plain, 126, "not executable; chmod +x " + plain);
  code_and_text(files.path(), 126, "is a directory");
  const std::string script = files.write("script", "#!/nonexistent/interpreter -x\n");
  chmod(script.c_str(), 0755);
  code_and_text(script, 126, "its interpreter /nonexistent/interpreter is not");
}

TEST(RunRefusal, ASocketWithoutPermissionIsLikeNoDaemon) {
  const Daemon daemon({"--set", "node.directory_mode=0700"});
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  chmod(daemon.folder().path().c_str(), 0755);
  const PublicProgram program("muster");
  for (const std::vector<std::string>& line :
       {std::vector<std::string>{"status"}, {"run", "-n", "1", "--", "true"}}) {
    Start start{line, {"MUSTER_ENDPOINT=" + daemon.socket()}, give_up_root};
    start.arguments.insert(start.arguments.begin(), program.path());
    const Ran ran = run(start);
    EXPECT_EQ(ran.code, 3) << ran.err;
    EXPECT_TRUE(has(ran.err, daemon.socket())) << ran.err;
  }
}

TEST(RunRefusal, AMissingEngineIsAFailureThatNamesTheFile) {
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--check-config"}}) {
    std::vector<std::string> line{program("musterd"), "--transient", "--engine", "/nonexistent/engine"};
    line.insert(line.end(), more.begin(), more.end());
    const Ran ran = run({line, {}, {}});
    EXPECT_EQ(ran.code, 1) << ran.err;
    EXPECT_TRUE(has(ran.err, "the engine /nonexistent/engine cannot be run: No such file")) << ran.err;
  }
}

// Goal: an engine that goes away while the daemon runs is a failed run, and not a job that nobody has named.
TEST(RunRefusal, AnEngineThatHasGoneSinceIsAFailureToo) {
  const Folder files;
  const std::string engine = files.write("engine", "#!/bin/sh\n");
  chmod(engine.c_str(), 0755);
  const Daemon daemon({"--engine", engine});
  std::filesystem::remove(engine);
  const Ran ran = muster({"run", "-n", "1", "--endpoint", daemon.socket(), "--", "true"});
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_TRUE(has(ran.err, engine)) << ran.err;
}

}  // namespace
}  // namespace muster::test
