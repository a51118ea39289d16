#include "daemon/supervisor/listener/listeners.hpp"

#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"
#include "tests/support/folder.hpp"

#include <filesystem>
#include <map>
#include <thread>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/fs.h>
#include <sys/stat.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using ::testing::HasSubstr;

// The listeners of a daemon, and the descriptors that its service manager keeps.
class Entrances : public ::testing::Test {
 protected:
  std::string directory() const { return folder_.path() + "/run"; }
  std::string socket() const { return shm::ranks_socket(directory()); }
  std::string control() const { return shm::control_socket(directory()); }
  Listeners::Options options() const { return {directory(), socket(), {0750, std::nullopt}, true}; }
  Listeners open() {
    auto opened = Listeners::open(options(), {});
    EXPECT_TRUE(opened) << opened.error().text();
    opened->keep_in(store_, known_);
    return *std::move(opened);
  }
  bool look(Listeners& listeners, Nanos after_start = Nanos(0)) {
    const bool healed = listeners.look(Instant(after_start));
    listeners.keep_in(store_, known_);
    return healed;
  }
  shm::Descriptor connect() const { return connect(socket()); }
  shm::Descriptor connect(const std::string& path) const {
    auto connected = shm::connect_to(path, clock_.now() + std::chrono::seconds(20), clock_);
    EXPECT_TRUE(connected) << connected.error().text();
    return connected ? *std::move(connected) : shm::Descriptor();
  }

  static shm::Descriptor copy_of(const shm::Descriptor& descriptor) {
    return shm::Descriptor(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, 3));
  }
  // The descriptors of a service manager that listens there, and keeps the socket itself.
  static Listeners::Kept managers(const shm::Listener& listener, Door door = Door::kRanks) {
    Listeners::Kept kept;
    auto listening =
        ListenSocket::adopt(copy_of(listener.descriptor()), ListenSocket::Path::kManagers, "musterd.socket");
    EXPECT_TRUE(listening) << listening.error().text();
    (door == Door::kRanks ? kept.ranks : kept.control).socket.emplace(*std::move(listening));
    return kept;
  }

  test::Folder folder_;
  SteadyClock clock_;
  std::map<std::string, int> kept_;  // how often
  std::set<std::string> known_;
  DescriptorStore store_{[this](const std::string& text, std::span<const int> descriptors) {
                           const std::string name = text.substr(text.find("FDNAME=") + 7);
                           kept_[name] += descriptors.empty() ? -1 : 1;
                           if (kept_[name] == 0) kept_.erase(name);
                           return true;
                         },
                         0};
};

TEST_F(Entrances, StandAsLongAsNobodyTouchesThem) {
  Listeners listeners = open();
  EXPECT_FALSE(look(listeners));
  EXPECT_EQ(kept_.size(), 4u) << "a lock, a directory, two sockets";
  EXPECT_EQ(Listeners::open(options(), {}).error().code(), Code::kDuplicate);
}

TEST_F(Entrances, AreMadeAgainAndKeptInThePlaceOfWhatWas) {
  Listeners listeners = open();
  for (const bool directory_too : {false, true}) {
    const auto before = kept_;
    directory_too ? std::filesystem::remove_all(directory()) : std::filesystem::remove(socket());
    EXPECT_EQ(Listeners::open(options(), {}).error().code(), Code::kDuplicate) << "the lock is still there";
    EXPECT_TRUE(look(listeners));
    EXPECT_TRUE(std::filesystem::is_socket(socket()));
    connect();
    EXPECT_TRUE(listeners.accept(Door::kRanks));
    EXPECT_FALSE(look(listeners)) << "once";
    EXPECT_EQ(kept_.size(), 4u);
    EXPECT_TRUE(kept_.contains(listeners.socket().name()));
    EXPECT_FALSE(before.contains(listeners.socket().name()));
    for (const auto& [name, fd] : store_.kept()) EXPECT_GE(fcntl(fd, F_GETFD), 0) << name;
  }
}

// Goal:   each socket is mended alone, with the rights that it had, and its pending clients are let in.
TEST_F(Entrances, MendTheControlSocketToo) {
  Listeners listeners = open();
  struct stat facts {};
  const shm::Descriptor waiting = connect(control());
  for (int i = 0; i < 2; ++i) {
    std::filesystem::remove(control());
    EXPECT_TRUE(look(listeners));
    ASSERT_EQ(stat(control().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 07777, 0600u);
    EXPECT_FALSE(look(listeners));
  }
  const shm::Descriptor next = connect(control());
  EXPECT_TRUE(listeners.accept(Door::kControl));
  EXPECT_EQ(listeners.accept(Door::kRanks).error().code(), Code::kPending);
  EXPECT_EQ(kept_.size(), 4u);
}

// Goal:   root of a container can lock nobody out, nor let others put a socket of theirs there.
TEST_F(Entrances, RestoreRightsThatWereChanged) {
  Listeners listeners = open();
  const std::string folder = folder_.path() + "/run/ranks";
  const auto mode_of = [](const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
    EXPECT_EQ(facts.st_uid, geteuid()) << path;
    return facts.st_mode & 07777;
  };
  log::configure(log::Level::kWarning, log::Format::kText);
  ::testing::internal::CaptureStderr();
  for (const mode_t mode : {0777, 0000, 0755}) {
    ASSERT_EQ(chmod(socket().c_str(), mode), 0);
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    if (geteuid() == 0) {
      ASSERT_EQ(chown(socket().c_str(), 1000, 1000), 0);
      ASSERT_EQ(chown(folder.c_str(), 1000, 1000), 0);
    }
    EXPECT_FALSE(look(listeners)) << "nothing is made anew";
    EXPECT_EQ(mode_of(folder), 0755u);
    EXPECT_EQ(mode_of(socket()), 0666u);
  }
  const std::string log = ::testing::internal::GetCapturedStderr();
  log::configure(log::Level::kOff, log::Format::kText);
  EXPECT_THAT(log, HasSubstr("somebody has changed owner or mode of "));
  EXPECT_EQ(log.find("somebody"), log.rfind("somebody")) << "once in a minute";
}

// Goal:   the ranks' socket may lie where the settings say: in the directory itself, or elsewhere.
TEST_F(Entrances, HaveTheRanksSocketWhereTheSettingsSay) {
  for (const std::string& path : {directory() + "/socket", folder_.path() + "/elsewhere.sock"}) {
    Listeners::Options options = this->options();
    options.ranks_socket = path;
    auto listeners = Listeners::open(options, {});
    ASSERT_TRUE(listeners) << listeners.error().text();
    std::filesystem::remove(path);
    EXPECT_TRUE(look(*listeners));
    connect(path);
    EXPECT_TRUE(listeners->accept(Door::kRanks));
    EXPECT_TRUE(std::filesystem::is_socket(control()));
  }
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/elsewhere.sock"));
}

// Goal:   a foreign file in the way of one socket hides it alone.
TEST_F(Entrances, GoOnWithoutTheControlSocket) {
  Listeners listeners = open();
  std::filesystem::remove(control());
  folder_.write("run/control.sock", "precious");
  EXPECT_FALSE(look(listeners));
  connect();
  EXPECT_TRUE(listeners.accept(Door::kRanks));
  EXPECT_EQ(std::filesystem::file_size(control()), 8u);
  std::filesystem::remove(control());
  EXPECT_TRUE(look(listeners));
}

TEST_F(Entrances, LetThoseInWhoWaitedAtTheFormerSocket) {
  Listeners listeners = open();
  const shm::Descriptor first = connect(), second = connect();
  std::filesystem::remove(socket());
  EXPECT_TRUE(look(listeners));
  const shm::Descriptor third = connect();
  EXPECT_TRUE(listeners.has_former_client(Door::kRanks));
  EXPECT_TRUE(listeners.accept(Door::kRanks));
  EXPECT_FALSE(look(listeners)) << "one still waits there";
  EXPECT_TRUE(listeners.has_former_client(Door::kRanks));
  EXPECT_TRUE(listeners.accept(Door::kRanks));
  EXPECT_FALSE(listeners.has_former_client(Door::kRanks));
  EXPECT_TRUE(listeners.accept(Door::kRanks));
  EXPECT_EQ(listeners.accept(Door::kRanks).error().code(), Code::kPending);
}

// Goal:   an error is said, not repeated with each look, and over once the way is free.
TEST_F(Entrances, SayOnceWhatIsInTheWay) {
  log::configure(log::Level::kWarning, log::Format::kText);
  Listeners listeners = open();
  std::filesystem::remove(socket());
  folder_.write("run/ranks/musterd.sock", "precious");
  ::testing::internal::CaptureStderr();
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(look(listeners, i * Listeners::kLookPeriod));
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_THAT(said, HasSubstr(socket() + " exists and is no socket"));
  EXPECT_EQ(said.find("cannot be mended"), said.rfind("cannot be mended"));
  ::testing::internal::CaptureStderr();
  EXPECT_FALSE(look(listeners, Listeners::kSilence));
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("cannot be mended"));
  EXPECT_EQ(std::filesystem::file_size(socket()), 8u);
  std::filesystem::remove(socket());
  EXPECT_TRUE(look(listeners, Listeners::kSilence));
  log::configure(log::Level::kOff, log::Format::kText);
}

// Goal:   the descriptors that are left to a successor are good also while the place cannot be mended.
TEST_F(Entrances, KeepNothingThatIsClosed) {
  Listeners listeners = open();
  std::filesystem::remove_all(directory());
  std::filesystem::create_directories(directory() + "/ranks");
  folder_.write("run/ranks/musterd.sock", "precious");
  EXPECT_TRUE(look(listeners)) << "the control socket is there again";
  EXPECT_FALSE(look(listeners)) << "the other cannot be";
  for (const auto& [name, fd] : store_.kept()) EXPECT_GE(fcntl(fd, F_GETFD), 0) << name;
  EXPECT_EQ(kept_.size(), 4u);
}

// Goal:   a directory above that is another one is another place, and a daemon that has it is respected.
TEST_F(Entrances, RespectWhoHasThePlaceMeanwhile) {
  const auto within = [&](const std::string& above) {
    Listeners::Options made = options();
    made.directory = folder_.path() + above + "/run";
    made.ranks_socket = shm::ranks_socket(made.directory);
    return made;
  };
  std::filesystem::create_directory(folder_.path() + "/a");
  auto first = Listeners::open(within("/a"), {});
  ASSERT_TRUE(first) << first.error().text();
  std::filesystem::remove_all(folder_.path() + "/a");
  EXPECT_FALSE(first->look(Instant(Nanos(0)))) << "nothing is above";
  std::filesystem::create_directory(folder_.path() + "/a");
  {
    auto second = Listeners::open(within("/a"), {});
    ASSERT_TRUE(second) << second.error().text();
    EXPECT_FALSE(first->look(Instant(Nanos(0))));
    EXPECT_TRUE(second->socket().stands()) << "it is not disturbed";
  }
  EXPECT_TRUE(first->look(Instant(Nanos(0))));
  EXPECT_TRUE(first->socket().stands());
}

// Goal:   a manager's socket is healed where it lies, and a directory around nothing does no harm.
// Method: three times its file is removed; outside the runtime directory, and in it under another name.
TEST_F(Entrances, HealAManagersSocketWhereItLies) {
  std::filesystem::create_directories(directory() + "/ranks");
  std::filesystem::create_directory_symlink(directory(), folder_.path() + "/link");
  for (const bool within : {false, true}) {
    SCOPED_TRACE(within);
    const std::string path = within ? socket() : folder_.path() + "/unit.sock";
    std::filesystem::create_directories(directory() + "/ranks");
    Listeners::Options here = options();
    if (within) here.directory = folder_.path() + "/link";
    const auto listener = shm::Listener::open(path, {.mode = 0622});
    ASSERT_TRUE(listener) << listener.error().text();
    auto listeners = Listeners::open(here, managers(*listener));
    ASSERT_TRUE(listeners) << listeners.error().text();
    EXPECT_TRUE(listeners->managers_stood());
    for (int i = 0; i < 3; ++i) {
      if (!within) std::filesystem::remove_all(directory());
      EXPECT_EQ(look(*listeners), !within) << "it is found; the control socket was with the directory";
      std::filesystem::remove(path);
      EXPECT_TRUE(look(*listeners));
      connect(path);
      EXPECT_TRUE(listeners->accept(Door::kRanks));
      EXPECT_TRUE(listeners->managers_stood());
      EXPECT_NE(listeners->managers(Door::kRanks), nullptr);
      EXPECT_EQ(listeners->managers(Door::kControl), nullptr);
    }
    struct stat facts {};
    ASSERT_EQ(stat(path.c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 07777, 0622u);
  }
}

// Goal:   a manager's socket for governors is taken, healed and given up as one for ranks is.
TEST_F(Entrances, HealAManagersControlSocket) {
  std::filesystem::create_directories(directory());
  const auto listener = shm::Listener::open(control(), {.mode = 0600});
  ASSERT_TRUE(listener) << listener.error().text();
  auto listeners = Listeners::open(options(), managers(*listener, Door::kControl));
  ASSERT_TRUE(listeners) << listeners.error().text();
  EXPECT_FALSE(look(*listeners));
  connect(control());
  EXPECT_TRUE(listeners->accept(Door::kControl));
  EXPECT_TRUE(listeners->managers_stood());
  std::filesystem::remove(control());
  EXPECT_TRUE(look(*listeners));
  EXPECT_NE(listeners->managers(Door::kControl), nullptr);
  connect(control());
  EXPECT_TRUE(listeners->accept(Door::kControl));
  struct stat facts {};
  ASSERT_EQ(stat(control().c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
}

// Goal:   a socket whose file is in another mount namespace is left as it is; one that a predecessor has seen
//         is healed.
TEST_F(Entrances, DoNotHealAManagersSocketThatNobodySaw) {
  const std::string path = folder_.path() + "/unit.sock";
  const auto listener = shm::Listener::open(path, {});
  ASSERT_TRUE(listener);
  const std::string seen_elsewhere = folder_.path() + "/moved.sock";
  std::filesystem::rename(path, seen_elsewhere);
  auto listeners = Listeners::open(options(), managers(*listener));
  ASSERT_TRUE(listeners) << listeners.error().text();
  EXPECT_FALSE(look(*listeners));
  EXPECT_FALSE(std::filesystem::exists(path));
  connect(seen_elsewhere);
  EXPECT_TRUE(listeners->accept(Door::kRanks));
  EXPECT_FALSE(listeners->managers_stood());
  listeners->believe_managers_stood();
  EXPECT_TRUE(listeners->managers_stood());
  EXPECT_TRUE(look(*listeners));
  EXPECT_TRUE(listeners->managers_stood());
  for (const std::string& one : {path, seen_elsewhere}) {
    connect(one);
    EXPECT_TRUE(listeners->accept(Door::kRanks)) << one;
  }
}

// Goal:   in a takeover nothing that came is lost where another has the lock, and the lock is taken later.
TEST_F(Entrances, TakeOverWithoutTheLockAndTakeItLater) {
  auto directory = RuntimeDirectory::make(options().directory, options().access, 1);
  ASSERT_TRUE(directory) << directory.error().text();
  auto listening = ListenSocket::open(socket(), {0666, std::nullopt, std::nullopt}, {&directory->ranks(), 1});
  ASSERT_TRUE(listening) << listening.error().text();
  Listeners::Kept kept;
  kept.ranks.socket.emplace(
      *ListenSocket::adopt(copy_of(listening->descriptor()), ListenSocket::Path::kOurs, listening->name()));
  kept.directory =
      RuntimeDirectory::adopt(copy_of(directory->lock()), options().directory, directory->name());
  std::optional<DirectoryLock> others(*DirectoryLock::take(options().directory));
  auto listeners = Listeners::open(options(), std::move(kept));
  ASSERT_TRUE(listeners) << listeners.error().text();
  const std::string lock = others->name();
  EXPECT_FALSE(look(*listeners));
  EXPECT_TRUE(kept_.contains(directory->name()));
  EXPECT_FALSE(kept_.contains(lock));
  others.reset();
  EXPECT_FALSE(look(*listeners));
  EXPECT_TRUE(kept_.contains(lock));
  EXPECT_FALSE(DirectoryLock::take_if_free(options().directory));
}

// Goal:   a mode is given to the socket's file, and to nothing that a link in its place leads to.
// Method: link and socket change places all the time.
TEST_F(Entrances, GiveNoModeThroughALink) {
  const std::string victim = folder_.write("victim", "precious"), link = folder_.path() + "/link";
  ASSERT_EQ(chmod(victim.c_str(), 0600), 0);
  const std::string path = folder_.path() + "/s";
  const auto listening = ListenSocket::open(path, {0666, std::nullopt, std::nullopt});
  ASSERT_TRUE(listening) << listening.error().text();
  std::filesystem::create_symlink(victim, link);
  std::jthread swaps([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) renameat2(AT_FDCWD, path.c_str(), AT_FDCWD, link.c_str(), RENAME_EXCHANGE);
  });
  for (int i = 0; i < 20'000; ++i)
    ASSERT_TRUE(listening->give({i % 2 == 0 ? 0666u : 0622u, std::nullopt, std::nullopt}).ok()) << i;
  swaps.request_stop();
  swaps.join();
  struct stat facts {};
  ASSERT_EQ(stat(victim.c_str(), &facts), 0);
  EXPECT_EQ(facts.st_mode & 07777, 0600u);
  if (!listening->stands()) std::filesystem::rename(link, path);
  ASSERT_TRUE(listening->give({0644, std::nullopt, std::nullopt}).ok());
  EXPECT_EQ(listening->rights()->mode, 0644u);
}

TEST_F(Entrances, LeaveNothingBehindWhereTheyAreTransient) {
  { const Listeners listeners = open(); }
  EXPECT_FALSE(std::filesystem::exists(directory()));
  EXPECT_TRUE(Listeners::check(options()).ok());
  EXPECT_FALSE(std::filesystem::exists(directory())) << "nor does a question";
}

}  // namespace
}  // namespace muster::supervisor
