// Clients in containers: namespaces of their own, in which only the folder of the ranks' socket is mounted.
// Whatever root does there, the host's daemon and jobs go on; what an ordinary user may do works.
#include "api/shm/peer.hpp"
#include "api/shm/socket.hpp"
#include "tests/support/users.hpp"
#include "tests/system/containers_fixture.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/ioctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>

namespace muster::test {
namespace {

using ::testing::ContainsRegex;
using ::testing::HasSubstr;
using ::testing::Not;

// Holds for containers of either make.
class EachContainer : public Containers, public ::testing::WithParamInterface<Make> {
 protected:
  void SetUp() override { set_up(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Unshared, EachContainer, ::testing::Values(Make::kUnshare));
INSTANTIATE_TEST_SUITE_P(Podman, EachContainer, ::testing::Values(Make::kPodman));

// Goal:   root of a container governs nothing and acts on nobody's jobs, however much it has mounted.
TEST_P(EachContainer, GovernNothing) {
  Running victim(on_host(rank("train", "stop")));
  ASSERT_TRUE(attached("train", 1)) << daemon_->err();
  folder_.write("evil", "#!/bin/sh\ntouch " + folder_.path() + "/escaped\n");
  std::filesystem::permissions(folder_.path() + "/evil", std::filesystem::perms(0755));
  for (const Container& container :
       {kRoot, kRootReadOnly, kUsers, kUsersReadOnly, kApart, kTooMuch, kUsersTooMuch}) {
    // To its root, who is an ordinary user on the host, the directory is closed.
    if (podman_ != nullptr && container.users && container.whole) continue;
    for (const std::string command :
         {"shutdown", "upgrade", "upgrade --program $S/evil", "end --job train", "token --job train --rank 0",
          "hang --job train", "flight --job train", "trace --job train --seconds 0 -o /tmp/none",
          "groups --job train", "end --job train@0"}) {
      SCOPED_TRACE(command);
      const Ran ran = run(in(container, "muster " + command));
      EXPECT_NE(ran.code, 0) << ran.out;
      EXPECT_LT(ran.code, 125) << "the container did not start: " << ran.err;
    }
    const Ran kept = run(in(container, "muster run --keep --job stays -n 1 -- true"));
    EXPECT_THAT(kept.err, HasSubstr("only users of this node keep a job beyond its run (--keep), not user "));
    const Ran seen = run(in(container, "muster status --json"));
    EXPECT_EQ(seen.json().at("jobs").size(), 0u) << "others' jobs are not shown";
  }
  EXPECT_THAT(daemon_->err(), HasSubstr("command shutdown is refused"));
  EXPECT_THAT(daemon_->err(),
              ContainsRegex(podman_ == nullptr ? "of container " : "\\(container [0-9a-f]{12}\\): "));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/escaped"));
  EXPECT_TRUE(attached("train", 1)) << "no job was disturbed";
  EXPECT_EQ(host({"status", "--json"}).json().at("instance"), 1) << "nor the daemon";
  EXPECT_EQ(host({"upgrade"}).code, 0) << "the host's root governs";
  folder_.write("stop", "");
  EXPECT_EQ(victim.wait().code, 0) << victim.err();
  EXPECT_EQ(host({"shutdown"}).code, 0);
}

// Goal:   files that a container writes into the mounted folder, and locks that it holds there, are harmless.
TEST_P(EachContainer, HarmNothingByTheMountedFolder) {
  Running holder(
      in(kRoot, "exec 9<$D/ranks; flock -n 9 && cp /bin/true $D/ranks/musterd && echo held; sleep 600"));
  ASSERT_TRUE(holder.printed("held")) << holder.err();
  const Ran refused = host({"upgrade", "--program", directory() + "/ranks/musterd"});
  EXPECT_NE(refused.code, 0);
  EXPECT_THAT(refused.err, HasSubstr("node.program_folders"));
  EXPECT_EQ(host({"upgrade"}).code, 0) << daemon_->err();
  daemon_->signal(SIGKILL);
  daemon_->wait();
  start();
  EXPECT_THAT(daemon_->err(), Not(HasSubstr("lock")));
  daemon_->signal(SIGTERM);
  EXPECT_EQ(daemon_->wait().code, 0);
  start();
  EXPECT_EQ(run(in(kUsersReadOnly, "muster status")).code, 0) << "and the folder serves others meanwhile";
}

// Goal:   a process of the daemon's own user gets none of its descriptors by the handle that the socket
//         gives. In a container the kernel asks the same: whether it might ptrace the daemon.
TEST_F(Containers, TakeNoDescriptorOfADaemonOfTheirUser) {
  const std::string place = folder_.path() + "/users", socket = place + "/ranks/musterd.sock";
  std::filesystem::create_directory(place);
  ASSERT_EQ(chown(place.c_str(), kOneUser, kOneUser), 0);
  Running daemon({{"/usr/bin/setpriv", fmt::format("--reuid={}", kOneUser),
                   fmt::format("--regid={}", kOneUser), "--clear-groups", program("musterd"), "--directory",
                   place, "--config", folder_.path() + "/musterd.yaml"},
                  {},
                  {}});
  ASSERT_TRUE(until([&] { return std::filesystem::is_socket(socket); })) << daemon.err();
  const pid_t child = fork();
  if (child == 0) {
    become_user(kOneUser);
    const SteadyClock clock;
    const auto connection = shm::connect_to(socket, clock.now() + std::chrono::seconds(20), clock);
    const auto peer = connection ? shm::peer_identity(*connection) : fail(connection.error());
    if (!peer || peer->uid != kOneUser) _exit(1);
    for (int fd = 0; fd < 64; ++fd)
      if (syscall(SYS_pidfd_getfd, peer->pidfd.get(), fd, 0) >= 0 || errno != EPERM) _exit(2);
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0);
  // His second daemon is refused all the same, by the first one's name.
  const Ran second = run({{"/usr/bin/setpriv", fmt::format("--reuid={}", kOneUser), "--clear-groups",
                           program("musterd"), "--directory", place},
                          {},
                          {}});
  EXPECT_NE(second.code, 0);
  EXPECT_THAT(second.err, HasSubstr("is served by another musterd already (process "));
  daemon.signal(SIGTERM);
  EXPECT_EQ(daemon.wait().code, 0) << daemon.err();
}

// Goal:   two containers and the host have each a job of torchrun's default name.
TEST_P(EachContainer, HaveJobsOfOneName) {
  const std::string torchrun =
      "RANK=0 WORLD_SIZE=1 LOCAL_RANK=0 LOCAL_WORLD_SIZE=1 TORCHELASTIC_RUN_ID=none MASTER_PORT=29500 exec " +
      std::string(MUSTER_RANK_PROGRAM) + " " + folder_.path() + "/stop";
  Running one(in(kRoot, torchrun)), two(in(kUsers, torchrun)), three(in(kApart, torchrun));
  Running own(on_host(torchrun));
  EXPECT_TRUE(attached("torchrun-none.29500", 1)) << daemon_->err();
  EXPECT_TRUE(until([this] { return jobs_of("torchrun-none.29500") == 3; })) << host({"status"}).out;
  folder_.write("stop", "");
  for (Running* each : {&one, &two, &three, &own}) EXPECT_EQ(each->wait().code, 0) << each->err();
}

// Goal:   a client that shows a job's name and key belongs to that job, from any container; no other client
//         does.
TEST_P(EachContainer, AreOfTheJobWhoseKeyTheyShow) {
  const std::string key(32, 'k'), other(32, 'o');
  const auto with = [this](const Container& container, const std::string& shown, int number) {
    return in(container, rank("keyed", "stop", number, 3),
              {"MUSTER_LOCAL_SIZE=3", "MUSTER_JOB_KEY=" + shown});
  };
  Running one(with(kRoot, key, 0)), two(with(kUsersReadOnly, key, 1));
  Running own(on_host(rank("keyed", "stop", 2, 3),
                      {"MUSTER_LOCAL_SIZE=3", "MUSTER_JOB_KEY_FILE=" + folder_.write("key", key + "\n")}));
  ASSERT_TRUE(sessions(3)) << daemon_->err() << one.err();
  EXPECT_EQ(jobs_of("keyed"), 1u);
  EXPECT_FALSE(on_a_command_line(key));
  EXPECT_TRUE(on_a_command_line(folder_.path() + "/stop")) << "where it would be found";
  const auto told = [this](const std::string& command, const std::string& shown) {
    return run(in(kApart, "muster " + command, {"MUSTER_JOB_KEY=" + shown}));
  };
  for (const std::string command :
       {"groups --job keyed", "hang --job keyed", "flight --job keyed -o $D/flight", "top --once --job keyed",
        "jobs", "trace --job keyed --seconds 0 -o $D/trace"}) {
    SCOPED_TRACE(command);
    const Ran ran = told(command, key);
    EXPECT_EQ(ran.code, 0) << ran.err << daemon_->err();
    if (command != "jobs") EXPECT_NE(told(command, other).code, 0);
    if (command == "jobs") EXPECT_THAT(ran.out, HasSubstr("keyed"));
  }
  EXPECT_NE(told("end --job keyed", other).code, 0);
  EXPECT_THAT(told("jobs", other).out, Not(HasSubstr("keyed")));
  Running apart(with(kApart, other, 0));
  EXPECT_TRUE(until([this] { return jobs_of("keyed") == 2; })) << "of another key it is another job";
  const Ran guessed = run(with(kRoot, "secret", 0));
  EXPECT_THAT(guessed.err, HasSubstr("must have 16 to 255"));
  folder_.write("stop", "");
  for (Running* each : {&one, &two, &own}) EXPECT_EQ(each->wait().code, 0) << each->err();
  EXPECT_EQ(told("end --job keyed", key).code, 0) << "and its owner ends it";
  EXPECT_TRUE(until([this] { return jobs_of("keyed") == 1; }));
  EXPECT_THAT(daemon_->err() + host({"status", "--json"}).out, Not(HasSubstr(key)));
}

// Goal:   a container that is made anew finds what it has left, by the key.
TEST_P(EachContainer, ComeBackByTheKey) {
  const std::string warm = "MUSTER_JOB=warm MUSTER_RANK=0 MUSTER_WORLD_SIZE=1 exec " MUSTER_WARM_RANK;
  const std::vector<std::string> key{"MUSTER_JOB_KEY=" + std::string(32, 'k')};
  for (const Container& container : {kRoot, kUsers}) {
    Running first(in(container, warm + " fill 1", key));
    ASSERT_TRUE(first.printed("filled")) << first.err() << daemon_->err();
    kill(first);
    const Ran again = run(in(container, warm + " find 1", key));
    EXPECT_EQ(again.code, 0) << again.err;
    EXPECT_THAT(again.out, HasSubstr("found"));
    EXPECT_NE(run(in(container, warm + " find 1")).code, 0) << "without it he finds nothing";
    EXPECT_EQ(run(in(container, "muster end --job warm", key)).code, 0);
    ASSERT_TRUE(until([this] { return jobs_of("warm") == 1; })) << host({"status"}).out;
    restart();
  }
}

// Goal:   status tells where a rank is, by its cgroup or as it says itself, and all jobs of a batch job end
//         together, whatever their names, also after a daemon was started anew and the ranks have left.
TEST_P(EachContainer, OfOneBatchJobEndTogether) {
  const auto of = [](const std::string& number) {
    return std::vector<std::string>{"SLURM_JOB_ID=" + number, "SLURM_STEP_ID=0"};
  };
  Running foreign(in(kRoot, rank("one", "stop"), of("1234"))), own(on_host(rank("two", "stop"), of("1234")));
  Running other(on_host(rank("three", "stop"), of("1235")));
  Running idle(on_host(rank("four", "gone"), of("1234")));
  for (const std::string where : {"job two, ranks 0: as it says itself, step 0 of Slurm job 1234",
                                  "job three, ranks 0: as it says itself, step 0 of Slurm job 1235",
                                  "job four, ranks 0: as it says itself, step 0 of Slurm job 1234",
                                  podman_ != nullptr ? "; as it says itself, step 0 of Slurm job 1234"
                                                     : "as it says itself, step 0 of Slurm job 1234, host "})
    ASSERT_TRUE(status_says(where)) << where << "\n" << host({"status"}).out << daemon_->err();
  folder_.write("gone", "");
  EXPECT_EQ(idle.wait().code, 0);
  ASSERT_EQ(host({"upgrade"}).code, 0) << daemon_->err();
  EXPECT_THAT(host({"end", "--of", "slurm:12"}).out, HasSubstr("no job here is of slurm:12"));
  for (const char* bad : {"slurm:", "slurm:12a", "1234", "slurm:1234.0"})
    EXPECT_EQ(host({"end", "--of", bad}).code, 2) << bad;
  EXPECT_NE(run(in(kRoot, "muster end --of slurm:1234")).out.find("no job here"), std::string::npos)
      << "others' jobs are not his";
  const Ran ended = host({"end", "--of", "slurm:1234", "--json"});
  EXPECT_EQ(ended.json().at("jobs").size(), 3u) << ended.out;
  EXPECT_EQ(foreign.wait().code, 1);
  EXPECT_EQ(own.wait().code, 1);
  EXPECT_THAT(own.err(), HasSubstr("with muster end --of slurm:1234"));
  EXPECT_TRUE(attached("three", 1));
  folder_.write("stop", "");
  EXPECT_EQ(other.wait().code, 0) << other.err();
}

// Goal:   a rank is of the Slurm step in whose cgroup it is, whatever it says.
TEST_F(Containers, AreSeenInTheirCgroups) {
  std::string root;
  for (const char* each : {"/sys/fs/cgroup/freezer", "/sys/fs/cgroup/pids", "/sys/fs/cgroup"})
    if (root.empty() && std::filesystem::exists(std::string(each) + "/cgroup.procs")) root = each;
  const std::string job = fmt::format("{}/muster-test-{}", root, getpid());
  const std::string step = job + "/job_88/step_3";
  std::error_code error;
  std::filesystem::create_directories(step, error);
  if (error || !std::filesystem::exists(step + "/cgroup.procs"))
    GTEST_SKIP() << "this system lets nobody make cgroups";
  {
    Running rank_of_step(
        on_host("echo $$ >" + step + "/cgroup.procs; " + rank("step", "stop"), {"SLURM_JOB_ID=99"}));
    ASSERT_TRUE(attached("step", 1)) << daemon_->err() << rank_of_step.err();
    EXPECT_TRUE(status_says("job step, ranks 0: step 3 of Slurm job 88; as it says itself, Slurm job 99"))
        << host({"status"}).out;
    for (int upgrades = 0; upgrades < 2; ++upgrades) {
      ASSERT_EQ(host({"upgrade"}).code, 0) << daemon_->err();
      ASSERT_TRUE(attached("step", 1)) << daemon_->err();
      EXPECT_TRUE(status_says("step 3 of Slurm job 88; as it says itself, Slurm job 99"))
          << host({"status"}).out;
    }
    EXPECT_EQ(host({"end", "--of", "slurm:88"}).code, 0);
    EXPECT_EQ(rank_of_step.wait().code, 1);
  }
  for (const std::string& folder : {step, job + "/job_88", job}) std::filesystem::remove(folder, error);
}

// Goal:   the engine of a container's root has no right on the host.
TEST_P(EachContainer, HaveEnginesWithoutRights) {
  for (const Container& container : {kRoot, kUsers}) {
    Running foreign(in(container, rank("engine", "stop")));
    ASSERT_TRUE(until([this] { return jobs_of("engine") == 1; })) << daemon_->err() << foreign.err();
    pid_t engine = 0;
    const Json status = host({"status", "--json"}).json();
    for (const Json& each : status.at("jobs"))
      if (each.at("name").get<std::string>().starts_with("engine@"))
        engine = each.at("engine_pid").get<pid_t>();
    std::string facts;
    ASSERT_TRUE(until([&] {
      facts = contents(fmt::format("/proc/{}/status", engine));
      return facts.find("muster-engine") != std::string::npos;
    }));
    const unsigned uid = podman_ != nullptr && container.users ? kMappedRoot : 65534;
    EXPECT_THAT(facts, HasSubstr(fmt::format("Uid:\t{0}\t{0}\t{0}\t{0}", uid)));
    for (const char* set : {"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"})
      EXPECT_THAT(facts, HasSubstr(std::string(set) + ":\t0000000000000000"));
    EXPECT_THAT(facts, HasSubstr("NoNewPrivs:\t1"));
    folder_.write("stop", "");
    EXPECT_EQ(foreign.wait().code, 0) << foreign.err();
    std::filesystem::remove(folder_.path() + "/stop");
    EXPECT_TRUE(sessions(0));
    restart();
  }
}

// Goal:   a container fills its own share, and root of the host still gets its job.
TEST_P(EachContainer, HaveAnOrdinaryShare) {
  restart({"limits.jobs_max=4", "limits.jobs_per_user_max=2"});
  const std::string fill =
      fmt::format("for i in 1 2 3; do MUSTER_JOB=j$i MUSTER_RANK=0 MUSTER_WORLD_SIZE=1 " MUSTER_RANK_PROGRAM
                  " {0}/stop 2>{0}/err$i & done; wait",
                  folder_.path());
  for (const char* file : {"/err1", "/err2", "/err3"}) folder_.write(file, "");
  Running container(in(kRoot, fill));
  const auto refusals = [this] {
    std::string all;
    for (const char* file : {"/err1", "/err2", "/err3"}) all += contents(folder_.path() + file);
    return all;
  };
  EXPECT_TRUE(until([&] {
    return refusals().find("its share (limits.jobs_per_user_max)") != std::string::npos;
  })) << refusals()
      << daemon_->err();
  EXPECT_THAT(refusals(), HasSubstr("container "));
  Running roots(on_host(rank("mine", "stop")));
  EXPECT_TRUE(attached("mine", 1)) << daemon_->err();
  folder_.write("stop", "");
  EXPECT_EQ(roots.wait().code, 0) << roots.err();
  container.wait();
}

// Goal:   jobs of containers that are gone refuse nobody: neither the next container nor root, by place or
//         memory.
TEST_P(EachContainer, AreNotInTheWayOnceTheyAreGone) {
  const int self = open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC);
  const bool known = ioctl(self, _IOR(0xb7, 0x6, int), 1) > 0;
  close(self);
  if (!known) GTEST_SKIP() << "this kernel does not say whether a container is gone (Linux 6.11)";
  restart({"limits.jobs_max=3", "limits.jobs_per_user_max=2", "limits.made_job_linger=1h"});
  folder_.write("stop", "");
  for (int number = 0; number < 8; ++number) {
    const Ran ran = run(in(number % 2 == 0 ? kRoot : kUsers, rank(fmt::format("sweep{}", number), "stop")));
    EXPECT_EQ(ran.code, 0) << number << ran.err << daemon_->err();
  }
  const Ran own = run(on_host(rank("mine", "stop")));
  EXPECT_EQ(own.code, 0) << own.err;
  // One that lives keeps its job, though no rank is in it.
  Running lives(in(kRoot, "(" + rank("kept", "stop") + "); echo left; sleep 600"));
  ASSERT_TRUE(lives.printed("left")) << lives.err();
  for (int number = 0; number < 4; ++number)
    EXPECT_EQ(run(in(kRoot, rank("more", "stop"))).code, 0) << number;
  EXPECT_EQ(jobs_of("kept"), 1u) << host({"status"}).out;
}

// Goal:   a share that is used up gets nothing from jobs of containers that are gone, so none of these ends.
TEST_P(EachContainer, EndNoJobThatFreesNothingForThem) {
  restart({"limits.jobs_max=8", "limits.jobs_per_user_max=2", "limits.made_job_linger=1h"});
  folder_.write("stop", "");
  ASSERT_EQ(run(in(kRoot, rank("idle", "stop"))).code, 0) << daemon_->err();
  Running full(in(kRoot, "(" + rank("a", "never") + ") & (" + rank("b", "never") + ") & while [ ! -e " +
                             folder_.path() + "/go ]; do sleep 0.05; done; " + rank("c", "stop")));
  ASSERT_TRUE(until([this] { return jobs_of("a") + jobs_of("b") == 2; })) << full.err() << daemon_->err();
  folder_.write("go", "");
  EXPECT_NE(full.wait().code, 0);
  EXPECT_THAT(full.err(), HasSubstr("has 2 jobs, its share"));
  EXPECT_EQ(jobs_of("idle"), 1u) << host({"jobs"}).out;
}

// Goal:   one user has one share, in however many containers of his own making.
TEST_F(Containers, OfOneUsersOwnMakingAreInHisShare) {
  restart({"node.directory_mode=0755", "limits.jobs_max=8", "limits.jobs_per_user_max=2"});
  const std::vector<std::string> user{"/usr/bin/setpriv", "--reuid=65531", "--regid=65531", "--clear-groups"};
  const auto as_user = [&](const std::vector<std::string>& within, const std::string& job) {
    std::vector<std::string> words = user;
    words.insert(words.end(), within.begin(), within.end());
    words.insert(words.end(), {"/bin/sh", "-c", rank(job, "never")});
    return Start{words, {"MUSTER_ENDPOINT=" + endpoint()}, {}};
  };
  const std::vector<std::string> container{"/usr/bin/unshare", "--user",       "--map-root-user", "--pid",
                                           "--fork",           "--kill-child", "--mount-proc"};
  std::filesystem::permissions(folder_.path(), std::filesystem::perms(0777));
  Running one(as_user({}, "one")), two(as_user(container, "two"));
  ASSERT_TRUE(sessions(2)) << daemon_->err() << one.err() << two.err();
  for (const auto& within : {std::vector<std::string>{}, container}) {
    const Ran third = run(as_user(within, "three"));
    EXPECT_NE(third.code, 0);
    EXPECT_THAT(third.err, HasSubstr("user 65531 has 2 jobs, its share"));
  }
}

// Goal:   ranks of srun under Apptainer, each in a user namespace of its own, form one job.
TEST_F(Containers, OfOneUsersOwnMakingAreThatUser) {
  restart({"node.directory_mode=0755"});
  std::filesystem::create_directory(folder_.path() + "/open");
  std::filesystem::permissions(folder_.path() + "/open", std::filesystem::perms(0777));
  std::vector<std::unique_ptr<Running>> ranks;
  for (int number = 0; number < 4; ++number)
    ranks.push_back(std::make_unique<Running>(
        Start{{"/usr/bin/setpriv", "--reuid=65531", "--regid=65531", "--clear-groups", "/usr/bin/unshare",
               "--user", "/bin/sh", "-c", rank("apptainer", "open/stop", number, 4)},
              {"MUSTER_ENDPOINT=" + endpoint()},
              {}}));
  EXPECT_TRUE(attached("apptainer@65531", 4)) << daemon_->err() << ranks[0]->err();
  folder_.write("open/stop", "");
  for (const auto& each : ranks) EXPECT_EQ(each->wait().code, 0) << each->err();
}

// Goal:   ranks in a container work, die and are blamed as others are.
TEST_P(EachContainer, HaveRanksThatAreBlamedRightly) {
  for (const Container& container : {kRoot, kUsers, kApart})
    expect_blame(in(container, pair_of_which_one_dies()));
}

// Goal:   a daemon that may not look at its clients trusts none of them with governing, and says so.
TEST_F(Containers, AreAllWhoMayNotBeLookedAt) {
  daemon_->signal(SIGTERM);
  daemon_->wait();
  EXPECT_THAT(daemon_->err(), Not(HasSubstr("CAP_SYS_PTRACE")));
  daemon_ = std::make_unique<Running>(
      Start{{"/usr/bin/setpriv", "--bounding-set=-sys_ptrace", "--inh-caps=-all", program("musterd"),
             "--directory", directory(), "--config", folder_.path() + "/musterd.yaml"},
            {},
            {}});
  EXPECT_TRUE(until([this] { return host({"status"}).code == 0; })) << daemon_->err();
  EXPECT_THAT(daemon_->err(), HasSubstr("without CAP_SYS_PTRACE"));
  EXPECT_NE(host({"shutdown"}).code, 0);
  EXPECT_THAT(daemon_->err(), HasSubstr("user 0 of an unknown place"));
}

// Goal:   a daemon in a container of its own, which sees no process of the host, serves them all the same,
//         and says that their state is not known.
TEST_F(Containers, HoldADaemonThatSeesNobody) {
  daemon_->signal(SIGTERM);
  daemon_->wait();
  daemon_ = std::make_unique<Running>(
      Start{{"/usr/bin/unshare", "--pid", "--fork", "--kill-child", "--mount-proc", program("musterd"),
             "--directory", directory(), "--config", folder_.path() + "/musterd.yaml", "--set",
             "limits.jobs_max=4", "--set", "limits.jobs_per_user_max=3"},
            {},
            {}});
  EXPECT_TRUE(until([this] { return host({"status"}).code == 0; })) << daemon_->err();
  Running rank_of_host(on_host(rank("outside", "stop")));
  Running foreign(in(kRoot, rank("inside", "stop")));
  const auto refused = [this] { return daemon_->err().find("hostPID") != std::string::npos; };
  const auto served = [this] {
    const Ran ran = host({"status", "--json"});
    return ran.code == 0 && ran.json().at("sessions") == 2;
  };
  EXPECT_TRUE(until([&] { return refused() || served(); })) << daemon_->err();
  if (refused()) GTEST_SKIP() << "this kernel has no SO_PEERPIDFD, and the refusal names the remedy";
  EXPECT_NE(host({"shutdown"}).code, 0) << "a process that the daemon does not see governs nothing";
  // A container that the daemon does not see may live: its idle job ends for nobody else.
  Running lives(in(kRoot, "(" + rank("kept", "gone") + "); echo left; sleep 600"));
  folder_.write("gone", "");
  ASSERT_TRUE(lives.printed("left")) << lives.err();
  EXPECT_THAT(run(in(kUsers, rank("more", "gone"))).err, HasSubstr("ordinary users have 3 jobs"));
  EXPECT_THAT(daemon_->err(), Not(HasSubstr("makes room")));
  lives.signal(SIGKILL);
  folder_.write("stop", "");
  EXPECT_EQ(rank_of_host.wait().code, 0) << rank_of_host.err();
  EXPECT_EQ(foreign.wait().code, 0) << foreign.err();
}

}  // namespace
}  // namespace muster::test
