// musterd itself: what it links, when it refuses to start, and how it ends.
#include "daemon/supervisor/takeover/state_file.hpp"
#include "tests/daemon/cli/program.hpp"

#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

namespace muster::test {
namespace {

Ran musterd(std::vector<std::string> arguments, std::function<void()> in_child = {}) {
  arguments.insert(arguments.begin(), program("musterd"));
  return run({std::move(arguments), {}, std::move(in_child)});
}

// The supervisor stays up when a driver or a network library takes a process down: it must not hold them.
TEST(Musterd, LinksNoDeviceAndNoNetworkLibrary) {
  const Ran ran = run({{"/usr/bin/readelf", "-d", program("musterd")}, {}, {}});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("NEEDED"), std::string::npos);
  for (const char* library : {"libcuda", "libcudart", "libcublas", "libcudnn", "libnccl", "libucp", "libucs",
                              "libuct", "libfabric", "libdnnl", "libmuster_device"})
    EXPECT_EQ(ran.out.find(library), std::string::npos) << library;
}

TEST(Musterd, HoldsNoCodeOfDevices) {
  const Ran ran = run({{"/usr/bin/nm", "-C", program("musterd")}, {}, {}});
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_NE(ran.out.find("muster::supervisor::"), std::string::npos);
  for (const char* space :
       {"muster::device::", "muster::kernels::", "muster::transport::", "muster::scheduler::"})
    EXPECT_EQ(ran.out.find(space), std::string::npos) << space;
}

TEST(Musterd, ChecksAndPrintsItsConfiguration) {
  const Folder folder;
  const std::string good = folder.write("good.yaml", "node:\n  workers: 2\n");
  const std::string bad = folder.write("bad.yaml", "node:\n  worker: 2\nlimits:\n  jobs_max: none\n");
  EXPECT_EQ(musterd({"--check-config", "--config", good}).code, 0);
  const Ran wrong = musterd({"--check-config", "--config", bad});
  EXPECT_EQ(wrong.code, 2);
  EXPECT_NE(wrong.err.find("bad.yaml:2:"), std::string::npos) << wrong.err;
  EXPECT_NE(wrong.err.find("bad.yaml:4:"), std::string::npos) << "all errors, not the first: " << wrong.err;
  const Ran print = musterd({"--print-config", "--config", good, "--set", "log.level=debug"});
  EXPECT_EQ(print.code, 0);
  EXPECT_NE(print.out.find("good.yaml:2"), std::string::npos) << print.out;
  EXPECT_NE(print.out.find("--set log.level"), std::string::npos) << print.out;
}

// Goal:   that reports have no place to go to is known before the first one is lost; a daemon that may have
//         jobs to take over starts all the same.
TEST(Musterd, ChecksThatReportsHaveAPlace) {
  const Folder folder;
  const std::string file = folder.write("file", "");
  for (const std::string& wrong : {folder.path() + "/nowhere", file}) {
    const std::string setting = "log.reports_directory=" + wrong;
    const Ran checked = musterd({"--check-config", "--set", setting});
    EXPECT_EQ(checked.code, 0);
    EXPECT_NE(checked.err.find("warning: log.reports_directory " + wrong + ": "), std::string::npos)
        << checked.err;
    Daemon daemon({"--set", setting});
    EXPECT_NE(daemon.stop().err.find("log.reports_directory " + wrong + ": "), std::string::npos);
  }
  EXPECT_EQ(musterd({"--check-config", "--set", "log.reports_directory=" + folder.path()}).err, "");
}

// The messages of a daemon with this runtime directory, from its start to its end.
std::string said_in(const std::string& folder, const std::vector<std::string>& environment = {}) {
  Running daemon({{program("musterd"), "--directory", folder}, environment, {}});
  for (int waited = 0; waited < kPatienceMs && muster({"status", "--endpoint", folder}).code != 0; ++waited)
    usleep(1000);
  daemon.signal(SIGTERM);
  const Ran ran = daemon.wait();
  EXPECT_EQ(ran.code, 0) << ran.err;
  return ran.err;
}

// Goal:   root's daemon warns of a directory of another user, who could put his own socket in the place of
//         it.
TEST(Musterd, WarnsOfARuntimeDirectoryOfAnotherUser) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a directory away";
  const Folder own, foreign;
  std::filesystem::permissions(own.path(), std::filesystem::perms(0711));
  std::filesystem::permissions(foreign.path(), std::filesystem::perms(0711));
  ASSERT_EQ(chown(foreign.path().c_str(), 65534, 65534), 0);
  EXPECT_EQ(said_in(own.path()).find("belongs to user"), std::string::npos);
  const std::string said = said_in(foreign.path());
  EXPECT_NE(said.find("node.runtime_directory " + foreign.path() + " belongs to user 65534"),
            std::string::npos)
      << said;
  const auto doctor = [](const Folder& folder) {
    return muster({"doctor", "--endpoint", folder.path()}).out;
  };
  EXPECT_EQ(doctor(own).find("owns it"), std::string::npos);
  EXPECT_NE(doctor(foreign).find("user 65534 owns it"), std::string::npos) << doctor(foreign);
}

TEST(Musterd, TellsVariablesThatAreMisspelt) {
  const Folder folder;
  const std::string said = said_in(folder.path(), {"MUSTER_SETT_node__workers=2", "MUSTER_OF_SOMEBODY=1"});
  EXPECT_NE(said.find("did you mean 'MUSTER_SET_node__workers'?"), std::string::npos) << said;
  EXPECT_EQ(said.find("SOMEBODY"), std::string::npos) << said;
}

// Goal:   no other user can put a socket in the place of the daemon's. It closes its own directory, and takes
//         none to which all users may write.
TEST(Musterd, HasItsRuntimeDirectoryForItself) {
  const Folder open, everybodys;
  std::filesystem::permissions(open.path(), std::filesystem::perms(0777));
  said_in(open.path());
  struct stat facts {};
  ASSERT_EQ(stat(open.path().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0750u);
  std::filesystem::permissions(everybodys.path(), std::filesystem::perms(01777));
  const Ran refused = musterd({"--directory", everybodys.path()});
  EXPECT_EQ(refused.code, 1);
  EXPECT_NE(refused.err.find(everybodys.path() + " is everybody's (mode 1777)"), std::string::npos)
      << refused.err;
}

TEST(Musterd, SaysWhenWhatItWasAskedForIsLost) {
  for (const char* argument : {"--print-config", "--help", "--version", "--check-config"}) {
    const Ran ran =
        run({{program("musterd"), argument}, {}, [] { dup2(open("/dev/full", O_WRONLY), STDOUT_FILENO); }});
    EXPECT_EQ(ran.code, 1) << argument;
    EXPECT_NE(ran.err.find("standard output cannot be written"), std::string::npos) << ran.err;
  }
}

TEST(Musterd, AnswersWrongUsageWithTwo) {
  const Ran unknown = musterd({"--directry", "/s", "--last"});
  EXPECT_EQ(unknown.code, 2);
  EXPECT_EQ(unknown.err,
            "musterd: unknown option --directry; did you mean '--directory'? `musterd --help` lists the "
            "options\n");
  EXPECT_EQ(musterd({"--set", "node.workers"}).code, 2);
  EXPECT_EQ(musterd({"--set", "node.worker=1"}).code, 2);
  EXPECT_EQ(musterd({"--config", "/nonexistent/musterd.yaml"}).code, 2);
  EXPECT_EQ(musterd({"--help"}).code, 0);
  for (const char* option : {"--directory", "--config", "--engine"}) {
    const Ran empty = musterd({"--check-config", option, ""});
    EXPECT_EQ(empty.code, 2) << option << " '' is not the same as leaving it out";
    EXPECT_NE(empty.err.find("the value is empty"), std::string::npos) << empty.err;
  }
}

TEST(Musterd, RefusesASocketInUse) {
  const Daemon daemon;
  const Ran second = musterd({"--transient", "--directory", daemon.folder().path() + "/run"});
  EXPECT_EQ(second.code, 1);
  EXPECT_NE(second.err.find(daemon.folder().path() + "/run is served by another musterd"), std::string::npos)
      << second.err;
  EXPECT_EQ(muster({"status", "--endpoint", daemon.socket()}).code, 0) << "the first one must not suffer";
}

TEST(Musterd, TakesOverTheSocketOfOneThatWasKilled) {
  const Folder folder;
  const Start start{{program("musterd"), "--transient", "--directory", folder.path()}, {}, {}};
  for (int i = 0; i < 2; ++i) {
    Running running(start);
    for (int waited = 0; waited < kPatienceMs; waited += 10) {
      if (muster({"status", "--endpoint", folder.path()}).code == 0) break;
      usleep(10000);
    }
    EXPECT_EQ(muster({"status", "--endpoint", folder.path()}).code, 0) << running.err();
    running.signal(SIGKILL);
    running.wait();
  }
}

// Goal:   a signal that means nothing to the daemon ends no jobs, and its sender hears so. A terminal that
//         closes sends one, and a person who wants settings to be read again.
TEST(Musterd, GoesOnAfterSignalsThatMeanNothingToIt) {
  Daemon daemon;
  for (const int number : {SIGHUP, SIGUSR1, SIGALRM}) daemon.running().signal(number);
  EXPECT_EQ(muster({"status", "--endpoint", daemon.socket()}).code, 0);
  const Ran ran = daemon.stop();
  EXPECT_EQ(ran.code, 0) << ran.err;
  for (const char* name : {"SIGHUP", "SIGUSR1", "SIGALRM"})
    EXPECT_NE(ran.err.find(fmt::format("{} changes nothing; `muster upgrade --endpoint {}/run` takes over",
                                       name, daemon.folder().path())),
              std::string::npos)
        << ran.err;
}

TEST(Musterd, MakesItsFolderHoweverThatIsWritten) {
  const Folder folder;
  const std::string run = folder.path() + "/run";
  const std::string& socket = run;
  Running running(
      {{program("musterd"), "--transient", "--set", "node.runtime_directory=" + folder.path() + "/./run/"},
       {},
       {}});
  for (int waited = 0; waited < kPatienceMs; waited += 10) {
    if (muster({"status", "--endpoint", socket}).code == 0) break;
    usleep(10000);
  }
  EXPECT_EQ(muster({"status", "--endpoint", socket}).code, 0) << running.err();
  struct stat facts {};
  ASSERT_EQ(stat(run.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0750u);
  ASSERT_EQ(stat((run + "/daemon").c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 0777, 0700u) << "who may read it may hold its lock, and no daemon could start";
  running.signal(SIGTERM);
  EXPECT_EQ(running.wait().code, 0);
  EXPECT_NE(stat(run.c_str(), &facts), 0) << "and removes it";
}

TEST(Musterd, SaysWhichPermissionItLacks) {
  const Folder folder;
  chmod(folder.path().c_str(), 0555);
  const PublicProgram program("musterd");
  const Ran ran =
      run({{program.path(), "--transient", "--directory", folder.path() + "/run", "--engine", "/bin/true"},
           {},
           give_up_root});
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_NE(ran.err.find(folder.path()), std::string::npos) << ran.err;
  EXPECT_NE(ran.err.find("mode 0555"), std::string::npos) << ran.err;
}

TEST(Musterd, RefusesLimitsThatItsDescriptorsCannotCarry) {
  const Folder folder;
  const auto few = [] {
    const rlimit limit{64, 64};
    setrlimit(RLIMIT_NOFILE, &limit);
  };
  const Ran ran = musterd({"--transient", "--directory", folder.path()}, few);
  EXPECT_EQ(ran.code, 1);
  for (const char* part : {"64", "limits.sessions_max=256", "LimitNOFILE", "ulimit"})
    EXPECT_NE(ran.err.find(part), std::string::npos) << part << ": " << ran.err;
  // One number, and it is enough.
  const std::size_t at = ran.err.find("ulimit -n ");
  ASSERT_NE(at, std::string::npos) << ran.err;
  const rlim_t enough = std::stoul(ran.err.substr(at + 10));
  const Daemon daemon({}, [enough] {
    const rlimit limit{enough, enough};
    setrlimit(RLIMIT_NOFILE, &limit);
  });
}

// Goal:   any user that may pass through the directory may connect. Governors have a socket of their own, and
//         the folder that containers mount holds one socket and nothing else.
TEST(Musterd, GivesItsDirectoryItsModeAndGroup) {
  const Daemon daemon({"--set", "node.directory_mode=0710", "--set",
                       "node.group=" + std::string(getgrgid(getegid())->gr_name)});
  const std::string run = daemon.folder().path() + "/run";
  const auto mode_of = [](const std::string& path) {
    struct stat facts {};
    return stat(path.c_str(), &facts) == 0 ? facts.st_mode & 07777 : 0;
  };
  struct stat facts {};
  ASSERT_EQ(stat(run.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0710u);
  EXPECT_EQ(facts.st_gid, getegid());
  EXPECT_EQ(mode_of(run + "/control.sock"), 0600u);
  EXPECT_EQ(mode_of(run + "/daemon"), 0700u);
  EXPECT_EQ(mode_of(run + "/ranks"), 0755u);
  EXPECT_EQ(mode_of(daemon.socket()), 0666u);
  std::vector<std::string> mounted;
  for (const auto& file : std::filesystem::directory_iterator(run + "/ranks"))
    mounted.push_back(file.path().filename());
  EXPECT_EQ(mounted, std::vector<std::string>{"musterd.sock"});
}

// Goal:   an upgrade asks of the next daemon what it will have to do.
// Method: a user who is no member of node.group.
TEST(Musterd, NeedsItsGroup) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to become another user";
  auto state = supervisor::StateFile::create();
  ASSERT_TRUE(state) << state.error().text();
  supervisor::State empty;
  empty.protocol = supervisor::state_format().protocol;
  ASSERT_TRUE(state->write(empty, supervisor::state_format()).ok());
  const PublicProgram copy("musterd");
  const auto check = [&](std::vector<std::string> more) {
    std::vector<std::string> line{copy.path(),     "--transient", "--engine",          "/bin/true",
                                  "--directory",   "/run/muster", "--check-state",     "3",
                                  "--check-nonce", "n",           "--check-directory", "/run/muster"};
    line.insert(line.end(), more.begin(), more.end());
    return run({line, {}, [&] {
                  dup2(state->descriptor().get(), 3);
                  fcntl(3, F_SETFD, 0);
                  give_up_root();
                }});
  };
  const Ran any = check({});
  EXPECT_EQ(any.code, 0) << any.err;
  const Ran roots = check({"--set", "node.group=root"});
  EXPECT_EQ(roots.code, 1) << roots.out;
  EXPECT_NE(roots.err.find("node.group"), std::string::npos) << roots.err;
}

TEST(Musterd, StartsTheJobsOfItsClusterFile) {
  const Folder files;
  const std::string cluster = files.write("cluster.yaml",
                                          "nodes:\n  - {host: here, devices: {kind: host, count: 2}}\n"
                                          "jobs:\n  - {name: train, mesh: {dims: {dp_shard: -1}}}\n");
  const Daemon daemon({"--set", "jobs_from=" + cluster});
  const Ran groups = muster({"groups", "--job", "train", "--endpoint", daemon.socket(), "--json"});
  EXPECT_EQ(groups.code, 0) << groups.err;
  EXPECT_EQ(groups.json().at("total"), 1);
}

TEST(Musterd, EndsWellOnSignalsAndLeavesNothing) {
  for (const int number : {SIGTERM, SIGINT}) {
    Daemon daemon;
    daemon.running().signal(number);
    EXPECT_EQ(daemon.running().wait().code, 0);
    EXPECT_FALSE(std::filesystem::exists(daemon.folder().path() + "/run"))
        << "a transient daemon removes its directory";
  }
}

// sd_notify(3): a datagram for each change.
TEST(Musterd, TellsTheServiceManagerWhenItIsReady) {
  const Folder folder;
  const std::string path = folder.path() + "/notify";
  const int socket = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  ASSERT_EQ(bind(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  Running running({{program("musterd"), "--transient", "--directory", folder.path()},
                   {"NOTIFY_SOCKET=" + path, "WATCHDOG_USEC=400000"},
                   {}});
  std::string heard;
  const auto hear_until = [&](const std::string& word) {
    constexpr int kWordsMax = 20;  // signs of life go on for ever
    for (int words = 0; heard.find(word) == std::string::npos; ++words) {
      pollfd entry{socket, POLLIN, 0};
      if (words == kWordsMax || poll(&entry, 1, kPatienceMs) != 1) return false;
      char buffer[512];
      const ssize_t n = recv(socket, buffer, sizeof buffer, 0);
      if (n > 0) heard += std::string(buffer, static_cast<std::size_t>(n)) + "\n";
    }
    return true;
  };
  EXPECT_TRUE(hear_until("STATUS=0 sessions, 0 jobs")) << heard << running.err();
  EXPECT_NE(heard.find("READY=1"), std::string::npos) << heard;
  EXPECT_TRUE(hear_until("WATCHDOG=1")) << heard;
  running.signal(SIGTERM);
  EXPECT_TRUE(hear_until("STOPPING=1\nEXTEND_TIMEOUT_USEC=")) << heard;
  EXPECT_EQ(running.wait().code, 0);
  close(socket);
}

}  // namespace
}  // namespace muster::test
