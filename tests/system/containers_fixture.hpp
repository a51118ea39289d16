// A daemon on the host and clients in containers. A container is what unshare(1) and mount(8) make of a
// shell, or one of podman; nothing of the runtime directory is mounted there but the folder of the ranks'
// socket. Needs root.
#pragma once

#include "tests/daemon/cli/program.hpp"
#include "tests/support/podman.hpp"

#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace muster::test {

enum class Make { kUnshare, kPodman };

// Which namespaces a container has besides those of mounts and processes, and what it sees of the runtime
// directory.
struct Container {
  bool users = false;
  bool network = false;  // podman's have always their own
  bool read_only = false;
  bool whole = false;  // all of the directory is mounted, against the advice
};
constexpr Container kRoot{};
constexpr Container kRootReadOnly{.read_only = true};
constexpr Container kUsers{.users = true};
constexpr Container kUsersReadOnly{.users = true, .read_only = true};
constexpr Container kApart{.users = true, .network = true};
constexpr Container kTooMuch{.whole = true};
constexpr Container kUsersTooMuch{.users = true, .whole = true};

class Containers : public ::testing::Test {
 protected:
  static constexpr unsigned kMappedRoot = 200000;  // root of podman's containers with users of their own

  void SetUp() override { set_up(Make::kUnshare); }
  void set_up(Make make) {
    if (geteuid() != 0) GTEST_SKIP() << "needs root, to make containers";
    if (make == Make::kPodman) {
      podman_ = std::make_unique<Podman>(folder_.path());
      if (const std::string why = podman_->refusal(); !why.empty()) GTEST_SKIP() << why;
    } else if (run({{"/usr/bin/unshare", "--pid", "--fork", "--mount", "--user", "--map-root-user",
                     "/bin/true"},
                    {},
                    {}})
                   .code != 0) {
      GTEST_SKIP() << "this system lets nobody make namespaces";
    }
    std::filesystem::permissions(folder_.path(), std::filesystem::perms(0777));
    std::filesystem::permissions(closed_.path(), std::filesystem::perms(0755));
    start();
  }
  // Not transient: a private daemon goes by the user alone.
  void start(const std::vector<std::string>& settings = {}) {
    std::vector<std::string> words{program("musterd"), "--directory", directory(), "--config",
                                   folder_.write("musterd.yaml", "log: {level: info}\n")};
    for (const std::string& setting : settings) words.insert(words.end(), {"--set", setting});
    daemon_ = std::make_unique<Running>(Start{words, {}, {}});
    ASSERT_TRUE(until([this] { return host({"status"}).code == 0; })) << daemon_->err();
  }
  // Ends it, and starts one with these settings.
  void restart(const std::vector<std::string>& settings = {}) {
    daemon_->signal(SIGTERM);
    daemon_->wait();
    start(settings);
  }
  std::string directory() const { return closed_.path() + "/run"; }
  std::string endpoint() const { return directory() + "/ranks/musterd.sock"; }

  // A command line on the host.
  Ran host(std::vector<std::string> words) const {
    words.insert(words.begin(), program("muster"));
    return run({words, {"MUSTER_ENDPOINT=" + endpoint()}, {}});
  }
  // A shell's text on the host.
  Start on_host(const std::string& text, std::vector<std::string> environment = {}) const {
    environment.push_back("MUSTER_ENDPOINT=" + endpoint());
    return {{"/bin/sh", "-c", text}, environment, {}};
  }
  // The shell's text in a container, in which no capability is left.
  Start in(const Container& container, const std::string& text,
           std::vector<std::string> environment = {}) const {
    environment.insert(environment.end(),
                       {"D=" + directory(), "S=" + folder_.path(), "T=" + folder_.path() + "/mounted",
                        "MUSTER_ENDPOINT=" + endpoint(),
                        "PATH=/usr/bin:/bin:/usr/sbin:/sbin:" + std::string(MUSTER_PROGRAMS)});
    return podman_ != nullptr ? of_podman(container, text, environment)
                              : unshared(container, text, std::move(environment));
  }
  // Kills what runs in the container. With podman: in all of them.
  void kill(Running& container) const {
    if (podman_ != nullptr) podman_->kill_all();
    container.signal(SIGKILL);
    container.wait();
  }
  // A rank that stays until its file is there.
  std::string rank(const std::string& job, const std::string& stop, int number = 0, int world = 1) const {
    return fmt::format("MUSTER_JOB={} MUSTER_RANK={} MUSTER_WORLD_SIZE={} exec " MUSTER_RANK_PROGRAM " {}/{}",
                       job, number, world, folder_.path(), stop);
  }
  // Two ranks, of which the second dies: the first hears of it.
  std::string pair_of_which_one_dies() const {
    return fmt::format(
        "R={}; sleep 100 | $R $MUSTER_ENDPOINT pair 1 2 tp=2 20000 run:tp listen >/dev/null & victim=$!\n"
        "$R $MUSTER_ENDPOINT pair 0 2 tp=2 20000 run:tp run:tp & other=$!\n"
        "sleep 1.5; kill -9 $victim; wait $other",
        MUSTER_SCRIPTED_RANK);
  }
  void expect_blame(const Start& start) const {
    Running ran(start);
    EXPECT_TRUE(ran.printed("run:tp MUSTER_OK")) << ran.out() << ran.err() << daemon_->err();
    EXPECT_TRUE(ran.printed("run:tp MUSTER_ERR_PEER_LOST")) << ran.out() << ran.err();
    EXPECT_NE(ran.out().find("rank 1"), std::string::npos) << ran.out();
  }
  Json job(const std::string& name) const {
    const Json status = host({"status", "--json"}).json();
    for (const Json& each : status.at("jobs"))
      if (each.at("name") == name) return each;
    return {};
  }
  // How many jobs have such a name, whosever they are.
  std::size_t jobs_of(const std::string& name) const {
    std::size_t count = 0;
    const Json status = host({"status", "--json"}).json();
    for (const Json& each : status.at("jobs"))
      count += each.at("name").get<std::string>().starts_with(name + "@");
    return count;
  }
  bool attached(const std::string& name, int ranks) const {
    return until([&] {
      const Json found = job(name);
      return found.is_object() && found.at("attached") == ranks;
    });
  }
  bool sessions(int count) const {
    return until([&] { return host({"status", "--json"}).json().at("sessions") == count; });
  }
  // A rank's origin is looked up once it is welcome.
  bool status_says(const std::string& words) const {
    return until([&] { return host({"status"}).out.find(words) != std::string::npos; });
  }
  // Whether the text stands in the command line of any process.
  static bool on_a_command_line(const std::string& text) {
    const auto options = std::filesystem::directory_options::skip_permission_denied;
    for (const auto& each : std::filesystem::directory_iterator("/proc", options))
      if (contents(each.path().string() + "/cmdline").find(text) != std::string::npos) return true;
    return false;
  }
  static std::string contents(const std::string& file) {
    std::ifstream stream(file);
    return {std::istreambuf_iterator<char>(stream), {}};
  }
  static bool until(const std::function<bool()>& done) {
    for (int waited = 0; waited < kPatienceMs; waited += 20, usleep(20000))
      if (done()) return true;
    return false;
  }

  const Folder folder_;             // containers see it
  const Folder closed_;             // and of this what is mounted
  std::unique_ptr<Podman> podman_;  // none: containers are unshared
  std::unique_ptr<Running> daemon_;

 private:
  Start unshared(const Container& container, const std::string& text,
                 std::vector<std::string> environment) const {
    std::string enter = "set -e\n";
    if (!container.whole)
      enter += "mkdir -p $T; mount --bind $D/ranks $T\n" +
               std::string(container.read_only ? "mount -o remount,bind,ro $T\n" : "") +
               "mount -t tmpfs none $D; mkdir $D/ranks; mount --move $T $D/ranks\n";
    enter += "exec setpriv --no-new-privs --bounding-set=-all --inh-caps=-all /bin/sh -c \"$1\"\n";
    std::vector<std::string> words{"/usr/bin/unshare", "--fork", "--kill-child",
                                   "--mount",          "--pid",  "--mount-proc"};
    if (container.users) words.insert(words.end(), {"--user", "--map-root-user"});
    if (container.network) words.insert(words.end(), {"--net", "--ipc", "--uts"});
    words.insert(words.end(), {"/bin/sh", "-c", enter, "sh", text});
    return {words, std::move(environment), {}};
  }
  Start of_podman(const Container& container, const std::string& text,
                  const std::vector<std::string>& environment) const {
    std::vector<std::string> options{"--cap-drop", "all", "--security-opt", "no-new-privileges"};
    const std::string seen = container.whole ? directory() : directory() + "/ranks";
    options.insert(options.end(), {"--volume", seen + ":" + seen + (container.read_only ? ":ro" : "")});
    if (container.users)
      for (const std::string each : {"--uidmap", "--gidmap"})
        options.insert(options.end(), {each, fmt::format("0:{}:65536", kMappedRoot)});
    return podman_->start(options, text, environment);
  }
};

}  // namespace muster::test
