// A cleaner takes the daemon's socket or directory away, at any moment, and somebody starts a second daemon.
// MUSTER_HEALINGS says how often at random, MUSTER_HEALING_SEED in which way. `make prove` takes them away
// 200 times; `make test` kMoments times.
#include "tests/system/ranks_fixture.hpp"

#include "daemon/supervisor/listener/listeners.hpp"

#include <atomic>
#include <random>

namespace muster::test {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

#if defined(MUSTER_SANITIZED)
constexpr int kMoments = 10;
#else
constexpr int kMoments = 30;
#endif
constexpr auto kPatience = std::chrono::seconds(60);  // for what hangs

std::uint64_t number_from(const char* variable, std::uint64_t usual) {
  const char* text = std::getenv(variable);
  return text == nullptr ? usual : std::strtoull(text, nullptr, 10);
}

class HealingMoments : public RanksTest {
 protected:
  HealingMoments() {
    below_ = "/run";
    start_over_with(engine_);
  }
  Start second() const { return {{kThis, "--transient", "--directory", directory()}, {}, {}}; }
  void expect_refused(const Ran& ran, const char* why) const {
    EXPECT_EQ(ran.code, 1) << ran.err;
    EXPECT_THAT(ran.err, HasSubstr(why));
  }
  void remove_socket() const { std::filesystem::remove(socket()); }
  void remove_directory() const {
    std::error_code busy;  // the daemon makes it again meanwhile
    do std::filesystem::remove_all(directory(), busy);
    while (busy);
  }
  // Through the path, as everybody asks; null if it leads nowhere.
  Json found() const {
    const auto answer = cli::ask({socket(), std::chrono::seconds(30)}, {{"command", "status"}});
    return answer ? answer->result : Json();
  }
  bool await_found() const {
    return within(kPatience, [this] { return std::filesystem::is_socket(socket()) && found().is_object(); });
  }
  bool await_instance(std::uint64_t instance) const {
    return within(kPatience, [&] {
      const Json now = found();
      return now.is_object() && now.at("instance").get<std::uint64_t>() >= instance;
    });
  }
  bool await_log(const std::string& text) {
    return within(kPatience, [&] { return steward().log().find(text) != std::string::npos; });
  }
  std::size_t logged(const std::string& text) const {
    const std::string log = steward_->log();
    std::size_t count = 0;
    for (std::size_t at = 0; (at = log.find(text, at)) != std::string::npos; ++at) ++count;
    return count;
  }
  void visit() {
    muster_session* session = nullptr;
    EXPECT_EQ(open("visited", 0, 1, &session), MUSTER_OK) << muster_last_error();
    EXPECT_EQ(muster_close(session), MUSTER_OK);
  }
  void pause(std::uint64_t most_ms) {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % (1000 * most_ms + 1)));
  }
  // One moment: what is taken away, what is started, and SIGUSR2, each at a time of its own.
  void pass_moment(int number);

  std::mt19937_64 random_;
};

void HealingMoments::pass_moment(int number) {
  const std::uint64_t instance = found().at("instance").get<std::uint64_t>();
  const auto before = operations();
  pause(40);
  std::unique_ptr<Running> other;
  std::jthread cleaner([this, number, wait = random_() % 60] {
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    if (number % 3 != 1) remove_socket();
    if (number % 3 != 0) remove_directory();
  });
  std::jthread signal([this, wait = random_() % 400] {  // before, during and after the healing
    std::this_thread::sleep_for(std::chrono::milliseconds(wait));
    kill(steward_->pid(), SIGUSR2);
  });
  pause(80);
  if (number % 3 == 2) other = std::make_unique<Running>(second());
  cleaner.join();
  signal.join();
  if (other) expect_refused(other->wait(), "musterd");
  ASSERT_TRUE(await_found()) << steward().log();
  ASSERT_TRUE(await_instance(instance + 1)) << steward().log();
  EXPECT_EQ(found().at("pid"), steward().pid());
  visit();
  expect_more_than(before, kPatience);
}

// Goal:   one daemon, no job lost, no operation failed, whatever is taken away and whenever.
// Method: random moments under five ranks that work on both paths; every third time somebody starts a second
//         daemon; every time the first is told to replace its program.
TEST_F(HealingMoments, OneDaemonAndNoOperationLost) {
  const std::uint64_t seed = number_from("MUSTER_HEALING_SEED", 20261);
  const int moments = static_cast<int>(number_from("MUSTER_HEALINGS", kMoments));
  random_.seed(seed);
  std::printf("%d moments from seed %llu\n", moments, static_cast<unsigned long long>(seed));
  begin(kThis);
  start_ranks();
  watch_ranks();
  const Json first = status();
  for (int i = 0; i < moments && !HasFailure(); ++i) {
    SCOPED_TRACE(::testing::Message() << "moment " << i);
    pass_moment(i);
  }
  const Json last = status();
  EXPECT_EQ(last.at("pid"), first.at("pid"));
  EXPECT_EQ(last.at("epoch"), first.at("epoch"));
  for (const std::string& name : {std::string("steady"), run_job_}) {
    EXPECT_EQ(job_in(last, name).at("epoch"), job_in(first, name).at("epoch")) << "the same job";
    EXPECT_EQ(job_in(last, name).at("engine_pid"), job_in(first, name).at("engine_pid"));
    EXPECT_EQ(job_in(last, name).at("attached"), job_in(first, name).at("attached"));
  }
  // The steward keeps the present resources for a successor, and no earlier ones.
  EXPECT_EQ(steward().kept_with("listen-").size(), 2u) << "the control socket and the ranks'";
  for (const char* kind : {"lock-", "folder-", "state"})
    EXPECT_EQ(steward().kept_with(kind).size(), 1u) << kind;
  const std::size_t healed = logged("has been made again");
  std::printf("healed %zu times in %d moments\n", healed, moments);
  EXPECT_GE(healed, static_cast<std::size_t>(moments));
  end_ranks(moments);
  EXPECT_EQ(muster({"status", "--endpoint", socket()}).code, 0);
  EXPECT_EQ(steward().end(SIGTERM), 0) << steward().log();
  EXPECT_FALSE(std::filesystem::exists(directory())) << "it knows its directory still";
}

// Goal:   the lock holds while there is neither a socket nor a directory to see.
// Method: the first daemon stands still, so that it heals nothing.
TEST_F(HealingMoments, ASecondDaemonIsRefusedWhileNothingIsThere) {
  begin(kThis);
  visit();
  for (const bool directory_too : {false, true}) {
    kill(steward().pid(), SIGSTOP);
    directory_too ? remove_directory() : remove_socket();
    const std::string pid = "process " + std::to_string(steward().pid());
    expect_refused(run(second()), pid.c_str());
    EXPECT_FALSE(std::filesystem::exists(socket()));
    kill(steward().pid(), SIGCONT);
    EXPECT_TRUE(await_found()) << steward().log();
    EXPECT_EQ(found().at("pid"), steward().pid());
  }
  visit();
  EXPECT_THAT(steward().log(),
              AllOf(HasSubstr("the ranks' socket " + socket() + " was removed"),
                    HasSubstr("the directory " + directory() + " with the ranks' socket in it")));
}

TEST_F(HealingMoments, TheDirectoryHasTheModeAndGroupOfTheSettingsAgain) {
  begin(kThis);
  ASSERT_EQ(chmod(directory().c_str(), 0751), 0);
  const uid_t group = geteuid() == 0 ? 4711 : getegid();
  ASSERT_EQ(chown(directory().c_str(), static_cast<uid_t>(-1), group), 0);
  struct stat socket_before {
  }, facts{};
  ASSERT_EQ(stat(socket().c_str(), &socket_before), 0);
  steward().end(SIGKILL);  // the next one finds it so
  steward().start(kThis);
  ASSERT_TRUE(await_found());
  remove_directory();
  ASSERT_TRUE(await_found()) << steward().log();
  ASSERT_EQ(stat(directory().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0750u) << "node.directory_mode";
  EXPECT_EQ(facts.st_gid, getegid()) << "node.group is not set";
  ASSERT_EQ(stat(socket().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode, socket_before.st_mode);
}

// Goal:   a file that is not the daemon's is named, and neither removed nor followed nor changed.
TEST_F(HealingMoments, WhatIsInTheWayIsNamedAndNotTouched) {
  begin(kThis);
  visit();
  kill(steward().pid(), SIGSTOP);  // or it would be faster
  remove_socket();
  std::ofstream(socket()) << "precious";
  kill(steward().pid(), SIGCONT);
  EXPECT_TRUE(await_log(socket() + " exists and is no socket")) << steward().log();
  EXPECT_EQ(std::filesystem::file_size(socket()), 8u);
  EXPECT_EQ(kill(steward().pid(), 0), 0);
  remove_socket();
  EXPECT_TRUE(await_found()) << steward().log();
  visit();
}

TEST_F(HealingMoments, NothingOfAnotherUserIsUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make what is another user's";
  begin(kThis);
  const std::string elsewhere = folder_.path() + "/elsewhere";
  ASSERT_EQ(mkdir(elsewhere.c_str(), 0700), 0);
  struct stat facts {};
  kill(steward().pid(), SIGSTOP);
  remove_directory();
  ASSERT_EQ(mkdir(directory().c_str(), 0755), 0);
  ASSERT_EQ(chown(directory().c_str(), 65534, 65534), 0);
  kill(steward().pid(), SIGCONT);
  EXPECT_TRUE(await_log(directory() + " belongs to user 65534 now")) << steward().log();
  ASSERT_EQ(stat(directory().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_uid, 65534u);
  EXPECT_EQ(facts.st_mode & 07777, 0755u);
  EXPECT_TRUE(std::filesystem::is_empty(directory()));
  remove_directory();
  ASSERT_TRUE(await_found()) << steward().log();

  kill(steward().pid(), SIGSTOP);
  remove_directory();
  std::filesystem::create_directory_symlink(elsewhere, directory());
  ASSERT_EQ(lchown(directory().c_str(), 65534, 65534), 0);
  kill(steward().pid(), SIGCONT);
  EXPECT_TRUE(await_log(directory() + " is a link that user 65534 has made")) << steward().log();
  EXPECT_TRUE(std::filesystem::is_empty(elsewhere));
  std::filesystem::remove(directory());
  EXPECT_TRUE(await_found()) << steward().log();
}

// Goal:   between a daemon that was killed and its successor the place is taken, and the successor mends it.
// Method: the lock on the directory holds. The lock on the name has no holder then that could be looked at.
TEST_F(HealingMoments, AKilledDaemonsPlaceWaitsForItsSuccessor) {
  begin(kThis);
  muster_session* session = nullptr;
  ASSERT_EQ(open("train", 0, 1, &session), MUSTER_OK) << muster_last_error();
  steward().end(SIGKILL);
  remove_socket();
  expect_refused(run(second()), "another process holds the lock on");
  remove_directory();
  steward().start(kThis);
  ASSERT_TRUE(await_found()) << steward().log();
  EXPECT_TRUE(await_ranks("train", 1)) << status();
  EXPECT_EQ(muster_close(session), MUSTER_OK);
}

// Goal:   the service manager's socket is found again too, also by what comes after.
TEST_F(HealingMoments, TakesThePlaceOfASocketUnitsFile) {
  ASSERT_TRUE(std::filesystem::create_directories(directory() + "/ranks"));
  auto listener = shm::Listener::open(socket(), {.mode = 0622});
  ASSERT_TRUE(listener) << listener.error().text();
  steward().give("musterd.socket", shm::Descriptor(dup(listener->descriptor().get())));
  begin(kThis);
  const auto connected = [&] {
    struct stat facts {};
    return stat(socket().c_str(), &facts) == 0 ? facts.st_mode & 0777 : 0;
  };
  ASSERT_TRUE(found().is_object());
  remove_socket();
  ASSERT_TRUE(await_found()) << steward().log();
  EXPECT_EQ(connected(), 0622u) << "what the unit says";
  EXPECT_THAT(steward().log(), HasSubstr("replaces the service manager's"));
  for (const bool killed : {false, true}) {
    const std::uint64_t instance = found().at("instance").get<std::uint64_t>();
    if (killed) {
      steward().end(SIGKILL);
      steward().start(kThis);
    } else {
      EXPECT_EQ(upgrade(""), "");
    }
    ASSERT_TRUE(await_instance(instance + 1)) << steward().log();
    EXPECT_EQ(connected(), 0622u);
    EXPECT_EQ(logged("has been made again"), 1u) << "it stands: " << steward().log();
  }
  EXPECT_EQ(steward().end(SIGTERM), 0);
}

// Goal:   the unit's path is healed where it is another than the settings', also by what comes after.
// Method: the file goes while no daemon runs: the state says that it stood. Then the program is replaced.
TEST_F(HealingMoments, TakesThePlaceOfASocketUnitsFileElsewhere) {
  const std::string unit = folder_.path() + "/unit.sock";
  const auto listener = shm::Listener::open(unit, {});
  ASSERT_TRUE(listener) << listener.error().text();
  steward().give("musterd.socket", shm::Descriptor(dup(listener->descriptor().get())));
  const auto await = [&](std::uint64_t instance) {
    return within(kPatience, [&] {
      const auto answer = cli::ask({unit, std::chrono::seconds(30)}, {{"command", "status"}});
      return answer && answer->result.at("instance").get<std::uint64_t>() >= instance;
    });
  };
  begin(kThis);
  ASSERT_TRUE(await(1)) << steward().log();
  steward().end(SIGKILL);
  std::filesystem::remove(unit);
  steward().start(kThis);
  ASSERT_TRUE(await(2)) << steward().log();
  std::filesystem::remove_all(directory());  // nothing is in it, and no upgrade needs it
  kill(steward().pid(), SIGUSR2);
  ASSERT_TRUE(await(3)) << steward().log();
  EXPECT_EQ(logged("replaces the service manager's"), 1u) << "it stands: " << steward().log();
  EXPECT_EQ(steward().end(SIGTERM), 0);
}

// Goal:   a client that had connected before the socket was removed is let in.
// Method: the connection waits in the queue of a daemon that stands still, and of one that was killed. No
//         other client comes that could wake it.
TEST_F(HealingMoments, WhoWaitedAtTheFormerSocketIsLetIn) {
  begin(kThis);
  for (const bool killed : {false, true}) {
    SCOPED_TRACE(killed);
    killed ? static_cast<void>(steward().end(SIGKILL)) : static_cast<void>(kill(steward().pid(), SIGSTOP));
    const SteadyClock clock;
    const auto waiting = shm::connect_to(socket(), clock.now() + kPatience, clock);
    ASSERT_TRUE(waiting) << waiting.error().text();
    remove_directory();
    ASSERT_TRUE(control::send_packet(*waiting, shm::MessageKind::kCommand, 1, {{"command", "status"}}).ok());
    killed ? steward().start(kThis) : static_cast<void>(kill(steward().pid(), SIGCONT));
    EXPECT_TRUE(control::receive_packet(*waiting, clock.now() + kPatience, clock)) << steward().log();
    ASSERT_TRUE(await_found());
  }
}

// Goal:   SIGUSR2 never ends a daemon, from the first moment of its program to the last.
// Method: it comes all the time, while the daemon starts, replaces its program, loses its socket, drains and
//         ends. It is held until the program has begun: before, there is no daemon. Nor is the SIGTERM lost
//         that comes in between.
TEST_F(HealingMoments, Sigusr2NeverEndsTheDaemon) {
  for (int i = 0; i < 20; ++i) {
    sigset_t held, before;
    sigemptyset(&held);
    sigaddset(&held, SIGUSR2);
    pthread_sigmask(SIG_BLOCK, &held, &before);  // also in the child, from its first moment on
    Running daemon(second());
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    std::atomic<bool> over{false};
    std::jthread signals([&] {
      while (!over) {
        daemon.signal(SIGUSR2);
        std::this_thread::sleep_for(std::chrono::microseconds(300));
      }
    });
    EXPECT_TRUE(await_instance(3)) << daemon.err();
    remove_directory();
    EXPECT_TRUE(await_found()) << daemon.err();
    daemon.signal(SIGTERM);
    const Ran ran = daemon.wait();
    over = true;
    signals.join();
    EXPECT_EQ(ran.code, 0) << ran.err;
    EXPECT_THAT(ran.err, Not(HasSubstr("Assert")));
  }
}

}  // namespace
}  // namespace muster::test
