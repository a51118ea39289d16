// A daemon in a container of podman, and containers on several nodes.
#include "tests/system/containers_fixture.hpp"
#include "tests/system/nodes_as_programs.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>

namespace muster::test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

// A daemon in a container, read-only, with the capabilities that it needs.
class ContainedDaemon : public Containers {
 protected:
  void SetUp() override { set_up(Make::kPodman); }
  void contain(std::vector<std::string> options) {
    daemon_->signal(SIGTERM);
    daemon_->wait();
    options.insert(options.end(), {"--read-only", "--cap-drop", "all", "--security-opt", "no-new-privileges",
                                   "--volume", closed_.path() + ":" + closed_.path()});
    for (const char* each : {"SETUID", "SETGID", "KILL", "SYS_PTRACE", "SYS_NICE", "IPC_LOCK", "CHOWN"})
      options.insert(options.end(), {"--cap-add", each});
    daemon_ = std::make_unique<Running>(
        podman_->start(options, fmt::format("exec {} --directory {} --config {}/musterd.yaml",
                                            program("musterd"), directory(), folder_.path())));
    ASSERT_TRUE(until([this] { return host({"status"}).code == 0; })) << daemon_->err();
  }
};

bool has_peer_pidfd() {
  int pair[2], pidfd = -1;
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) return false;
  constexpr int kPeerPidfd = 77;  // SO_PEERPIDFD of Linux 6.5
  socklen_t size = sizeof(pidfd);
  const bool has = getsockopt(pair[0], SOL_SOCKET, kPeerPidfd, &pidfd, &size) == 0;
  for (const int fd : {pair[0], pair[1], pidfd}) close(fd);
  return has;
}

// Goal:   with the host's processes in sight it serves and governs as on the host.
TEST_F(ContainedDaemon, WithTheHostsPidsIsAsOnTheHost) {
  ASSERT_NO_FATAL_FAILURE(contain({"--pid", "host"}));
  for (const Start& each : {on_host(pair_of_which_one_dies()), in(kRoot, pair_of_which_one_dies()),
                            in(kUsersReadOnly, pair_of_which_one_dies())})
    expect_blame(each);
  Running waiting(on_host(rank("half", "stop", 0, 2), {"MUSTER_LOCAL_SIZE=2"}));
  ASSERT_TRUE(attached("half", 1)) << daemon_->err() << waiting.err();
  EXPECT_TRUE(until([this] {
    return host({"hang", "--job", "half"}).out.find("rank 1") != std::string::npos;
  })) << host({"hang", "--job", "half"}).out;
  EXPECT_EQ(host({"end", "--job", "half"}).code, 0) << "its root governs";
  EXPECT_EQ(waiting.wait().code, 1);
  EXPECT_THAT(run(in(kRoot, "muster shutdown")).err, HasSubstr("only root may shut the daemon down"));
  EXPECT_EQ(host({"shutdown"}).code, 0);
}

// Goal:   without the host's processes in sight each rank is served, and its death is seen; nobody governs.
TEST_F(ContainedDaemon, WithoutThemServesAndIsGovernedByNobody) {
  ASSERT_NO_FATAL_FAILURE(contain({}));
  folder_.write("there", "");
  const Ran one = run(on_host(rank("one", "there")));
  if (!has_peer_pidfd()) {
    EXPECT_THAT(one.err, HasSubstr("hostPID"));
    GTEST_SKIP() << "this kernel has no SO_PEERPIDFD, and the refusal names the remedy";
  }
  EXPECT_EQ(one.code, 0) << one.err;
  for (const Start& each : {on_host(pair_of_which_one_dies()), in(kUsers, pair_of_which_one_dies())})
    expect_blame(each);
  EXPECT_THAT(host({"shutdown"}).err, HasSubstr("only root may shut the daemon down"));
  EXPECT_THAT(run(in(kRoot, "muster shutdown")).err, HasSubstr("only root may shut the daemon down"));
  EXPECT_EQ(host({"status"}).code, 0) << daemon_->err();
}

class ContainersOfNodes : public NodesAsPrograms {
 protected:
  ContainersOfNodes() : podman_(open_.path()) {
    std::filesystem::permissions(open_.path(), std::filesystem::perms(0777));
  }
  void SetUp() override {
    if (const std::string why = podman_.refusal(); !why.empty()) GTEST_SKIP() << why;
  }
  // Rank `number` of four in a container on that node, with nothing mounted but its ranks' socket.
  Start rank(int number, const std::string& key, const std::string& stop, bool users) const {
    const int n = number < 2 ? 1 : 2;
    std::vector<std::string> options{"--cap-drop", "all", "--volume", folder_of(n) + "/ranks:/mnt:ro"};
    if (users) options.insert(options.end(), {"--uidmap", "0:200000:65536", "--gidmap", "0:200000:65536"});
    return podman_.start(options, "echo begins; exec " MUSTER_RANK_PROGRAM " " + open_.path() + "/" + stop,
                         {"MUSTER_ENDPOINT=/mnt/musterd.sock", "MUSTER_JOB=pods", "MUSTER_JOB_KEY=" + key,
                          fmt::format("MUSTER_RANK={}", number), "MUSTER_WORLD_SIZE=4", "MUSTER_LOCAL_SIZE=2",
                          fmt::format("MUSTER_LOCAL_RANK={}", number % 2)});
  }
  const Folder open_;  // in each container
  const Podman podman_;
};

// Goal:   two containers on each of two nodes form one job by the key that they show; no log has it.
TEST_F(ContainersOfNodes, AreOneJobByKey) {
  const std::string key(32, 'k'), other(32, 'o');
  Running stranger(rank(3, other, "stop", false));
  ASSERT_TRUE(stranger.printed("begins")) << stranger.err();
  std::vector<std::unique_ptr<Running>> ranks;
  for (int number = 0; number < 4; ++number)
    ranks.push_back(std::make_unique<Running>(rank(number, key, "stop", number % 2 == 1)));
  const auto pods = [this](int n) {
    int attached = 0;
    const Json status = muster({"status", "--json", "--endpoint", socket(n)}).json();
    for (const Json& each : status.at("jobs"))
      if (each.at("name").get<std::string>().starts_with("pods@")) attached += each.at("attached").get<int>();
    return attached;
  };
  EXPECT_TRUE(until([&] { return pods(1) == 2 && pods(2) == 2; }))
      << ranks[0]->err() << daemons_[0]->err() << muster({"status", "--endpoint", socket(1)}).out;
  EXPECT_EQ(stranger.err(), "") << "who shows another key waits for others of that key";
  std::ofstream(open_.path() + "/stop").close();
  for (const auto& each : ranks) {
    EXPECT_EQ(each->wait().code, 0) << each->err();
    EXPECT_THAT(each->out(), HasSubstr("operations"));
  }
  for (const auto& daemon : daemons_) EXPECT_THAT(daemon->err(), Not(HasSubstr(key)));
  podman_.kill_all();
}

}  // namespace
}  // namespace muster::test
