#include "daemon/supervisor/runtime_directory.hpp"

#include "api/base/log.hpp"
#include "tests/support/folder.hpp"

#include <filesystem>

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class RuntimeDirectories : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/run"; }
  static Result<RuntimeDirectory> make(const std::string& path) {
    return RuntimeDirectory::make(path, 0711, 1);
  }
  static struct stat facts_of(const std::string& path) {
    struct stat facts {};
    EXPECT_EQ(stat(path.c_str(), &facts), 0) << path;
    return facts;
  }

  test::Folder folder_;
};

TEST_F(RuntimeDirectories, AreMadeAndHeldAndRemoved) {
  const auto directory = make(path());
  ASSERT_TRUE(directory) << directory.error().text();
  EXPECT_EQ(facts_of(path()).st_mode & 07777, 0711u);
  EXPECT_TRUE(directory->stands());
  EXPECT_EQ(make(path()).error().code(), Code::kBusy) << "a second one";
  directory->remove();
  EXPECT_FALSE(std::filesystem::exists(path()));
  EXPECT_FALSE(directory->stands());
  EXPECT_TRUE(make(path()));
  EXPECT_TRUE(make(path())) << "one that is there, and nobody's";
}

// systemd-tmpfiles asks like this before it looks into a directory.
TEST_F(RuntimeDirectories, AreLockedForCleaners) {
  const auto directory = make(path());
  ASSERT_TRUE(directory);
  const shm::Descriptor cleaner(open(path().c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  EXPECT_NE(flock(cleaner.get(), LOCK_EX | LOCK_NB), 0);
}

TEST_F(RuntimeDirectories, ThatEverybodyMayWriteToAreNobodys) {
  std::filesystem::create_directory(path());
  ASSERT_EQ(chmod(path().c_str(), 01777), 0);
  const auto first = make(path());
  const auto second = make(path());
  ASSERT_TRUE(first && second);
  EXPECT_FALSE(first->locked());
}

// Goal:   whoever could put another socket in the place of the daemon's is named, a group too.
TEST_F(RuntimeDirectories, WarnOfWhoMayWriteToThem) {
  const gid_t group = geteuid() == 0 ? 4711 : getegid();
  if (group == 0) GTEST_SKIP() << "needs a group other than root's";
  const auto said = [&](mode_t mode) {
    EXPECT_EQ(chmod(path().c_str(), mode), 0);
    log::configure(log::Level::kWarning, log::Format::kText);
    ::testing::internal::CaptureStderr();
    EXPECT_TRUE(make(path()));
    log::configure(log::Level::kOff, log::Format::kText);
    return ::testing::internal::GetCapturedStderr();
  };
  std::filesystem::create_directory(path());
  ASSERT_EQ(chown(path().c_str(), geteuid(), group), 0);
  EXPECT_THAT(said(0771), HasSubstr("can be written by group " + std::to_string(group)));
  EXPECT_THAT(said(0777), HasSubstr("can be written by everybody"));
  for (const mode_t harmless : {0755u, 01771u, 01777u}) EXPECT_THAT(said(harmless), IsEmpty());
  if (geteuid() != 0) return;
  ASSERT_EQ(chown(path().c_str(), 0, 0), 0);
  EXPECT_THAT(said(0771), IsEmpty()) << "root's group";
}

TEST_F(RuntimeDirectories, AreMadeAgainAsTheyWere) {
  std::filesystem::create_directory(path());
  ASSERT_EQ(chmod(path().c_str(), 0751), 0);
  const uid_t owner = geteuid() == 0 ? 4711 : geteuid();
  ASSERT_EQ(chown(path().c_str(), owner, getegid()), 0);
  const auto directory = make(path());
  ASSERT_TRUE(directory);
  const struct stat before = facts_of(path());
  for (const bool there : {false, true}) {
    std::filesystem::remove(path());
    if (there) std::filesystem::create_directory(path());  // by somebody who means well
    EXPECT_FALSE(directory->stands());
    const auto again = directory->again();
    ASSERT_TRUE(again) << again.error().text();
    EXPECT_TRUE(again->stands());
    EXPECT_NE(again->name(), directory->name());
    if (there) continue;
    EXPECT_EQ(facts_of(path()).st_mode, before.st_mode);
    EXPECT_EQ(facts_of(path()).st_uid, before.st_uid);
    EXPECT_EQ(facts_of(path()).st_gid, before.st_gid);
  }
}

TEST_F(RuntimeDirectories, AreNotMadeWhereSomethingElseIs) {
  folder_.write("run", "precious");
  const auto refused = make(path());
  EXPECT_EQ(refused.error().code(), Code::kDuplicate);
  EXPECT_THAT(refused.error().message(), HasSubstr(path() + " is no directory"));
  EXPECT_EQ(std::filesystem::file_size(path()), 8u);
  EXPECT_EQ(make("/nonexistent/a/b").error().code(), Code::kDenied);
}

TEST_F(RuntimeDirectories, FollowNoLinkOfAnotherUser) {
  std::filesystem::create_directory(folder_.path() + "/elsewhere");
  std::filesystem::create_directory_symlink(folder_.path() + "/elsewhere", path());
  EXPECT_TRUE(make(path())) << "one's own is followed";
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a link of another user";
  ASSERT_EQ(lchown(path().c_str(), 65534, 65534), 0);
  const auto refused = make(path());
  EXPECT_EQ(refused.error().code(), Code::kDenied);
  EXPECT_THAT(refused.error().message(), HasSubstr("user 65534"));
}

// Goal:   at the start an administrator may have given it to whom he likes; later nobody comes in its place.
TEST_F(RuntimeDirectories, OfAnotherUserAreNotTakenInPlaceOfOnesOwn) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to make a directory of another user";
  const auto directory = make(path());
  ASSERT_TRUE(directory);
  std::filesystem::remove(path());
  std::filesystem::create_directory(path());
  ASSERT_EQ(chown(path().c_str(), 65534, 65534), 0);
  const auto refused = directory->again();
  EXPECT_EQ(refused.error().code(), Code::kDenied);
  EXPECT_THAT(refused.error().message(), HasSubstr("belongs to user 65534 now"));
  EXPECT_TRUE(make(path())) << "with a warning";
}

TEST_F(RuntimeDirectories, GoOnToASuccessorWithTheirLock) {
  std::optional<RuntimeDirectory> directory(*make(path()));
  const std::string name = directory->name();
  const auto copy = [&] { return shm::Descriptor(fcntl(directory->descriptor().get(), F_DUPFD_CLOEXEC, 3)); };
  shm::Descriptor kept = copy();
  directory.reset();
  EXPECT_EQ(make(path()).error().code(), Code::kBusy) << "locked all the time";
  directory = RuntimeDirectory::adopt(std::move(kept), path(), name);
  ASSERT_TRUE(directory);
  EXPECT_TRUE(directory->locked());
  EXPECT_FALSE(RuntimeDirectory::adopt(copy(), path(), name + "0"));
  EXPECT_FALSE(
      RuntimeDirectory::adopt(shm::Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)), path(), name));
}

}  // namespace
}  // namespace muster::supervisor
