#include "daemon/supervisor/listener/runtime_directory.hpp"

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

class RuntimeDirectories : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/run"; }
  static Result<RuntimeDirectory> make(const std::string& path) {
    return RuntimeDirectory::make(path, {0750, std::nullopt}, 1);
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
  EXPECT_EQ(facts_of(path()).st_mode & 07777, 0750u);
  EXPECT_EQ(facts_of(path() + "/daemon").st_mode & 07777, 0700u);
  EXPECT_EQ(facts_of(path() + "/ranks").st_mode & 07777, 0755u);
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

// Goal:   a user that may open the directory, or the folder that containers mount, keeps no daemon out.
TEST_F(RuntimeDirectories, AreMadeWhateverLockAReaderHolds) {
  ASSERT_TRUE(make(path()));
  std::vector<shm::Descriptor> held;
  for (const char* folder : {"", "/ranks"}) {
    held.emplace_back(open((path() + folder).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    ASSERT_EQ(flock(held.back().get(), LOCK_EX | LOCK_NB), 0);
  }
  EXPECT_TRUE(make(path()));
}

TEST_F(RuntimeDirectories, AreNotMadeInThePlaceOfEverybodys) {
  std::filesystem::create_directory(path());
  ASSERT_EQ(chmod(path().c_str(), 01777), 0);
  const auto refused = make(path());
  EXPECT_EQ(refused.error().code(), Code::kDenied);
  EXPECT_THAT(refused.error().message(), HasSubstr("is everybody's (mode 1777)"));
  EXPECT_EQ(facts_of(path()).st_mode & 07777, 01777u);
}

// Goal:   the user's own directory has the configured mode; users that may write to another's are named.
TEST_F(RuntimeDirectories, CloseThemselvesOrWarnOfWhoMayWriteToThem) {
  std::filesystem::create_directory(path());
  ASSERT_EQ(chmod(path().c_str(), 0777), 0);
  EXPECT_TRUE(make(path()));
  EXPECT_EQ(facts_of(path()).st_mode & 07777, 0750u);
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a directory away";
  ASSERT_EQ(chmod(path().c_str(), 0771), 0);
  ASSERT_EQ(chown(path().c_str(), 65534, 4711), 0);
  log::configure(log::Level::kWarning, log::Format::kText);
  ::testing::internal::CaptureStderr();
  const auto anothers = make(path());
  log::configure(log::Level::kOff, log::Format::kText);
  const std::string said = ::testing::internal::GetCapturedStderr();
  EXPECT_TRUE(anothers);
  EXPECT_THAT(said, HasSubstr("can be written by group 4711"));
  EXPECT_THAT(said, HasSubstr("belongs to user 65534"));
  EXPECT_EQ(facts_of(path()).st_mode & 07777, 0771u) << "it is his";
}

TEST_F(RuntimeDirectories, AreMendedAsTheyWere) {
  auto directory = make(path());
  ASSERT_TRUE(directory);
  const RuntimeDirectory::Access access{0750, std::nullopt};
  for (const char* gone : {"", "/daemon", "/ranks"}) {
    SCOPED_TRACE(gone);
    std::filesystem::remove_all(path() + gone);
    EXPECT_FALSE(directory->stands());
    const Status mended = directory->mend(access, 1);
    ASSERT_TRUE(mended.ok()) << mended.text();
    EXPECT_TRUE(directory->stands());
    EXPECT_EQ(make(path()).error().code(), Code::kBusy) << "it has the lock";
  }
  EXPECT_EQ(facts_of(path()).st_mode & 07777, 0750u);
  EXPECT_TRUE(directory->mend({0755, std::nullopt}, 1).ok());
  EXPECT_EQ(facts_of(path()).st_mode & 07777, 0755u) << "new settings";
}

TEST_F(RuntimeDirectories, OfAnotherUserAreMadeAgainAsTheyWere) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a directory away";
  std::filesystem::create_directory(path());
  ASSERT_EQ(chmod(path().c_str(), 0751), 0);
  ASSERT_EQ(chown(path().c_str(), 4711, 4712), 0);
  auto directory = make(path());
  ASSERT_TRUE(directory);
  const struct stat before = facts_of(path());
  std::filesystem::remove_all(path());
  ASSERT_TRUE(directory->mend({0750, std::nullopt}, 1).ok());
  EXPECT_EQ(facts_of(path()).st_mode, before.st_mode);
  EXPECT_EQ(facts_of(path()).st_uid, before.st_uid);
  EXPECT_EQ(facts_of(path()).st_gid, before.st_gid);
}

// Goal:   nobody else's folder or link comes in the place of the daemon's own.
TEST_F(RuntimeDirectories, TakeNoFolderOfAnother) {
  std::filesystem::create_directories(folder_.path() + "/elsewhere");
  std::filesystem::create_directory(path());
  std::filesystem::create_directory_symlink(folder_.path() + "/elsewhere", path() + "/daemon");
  EXPECT_EQ(make(path()).error().code(), Code::kDuplicate);
  std::filesystem::remove(path() + "/daemon");
  if (geteuid() != 0) GTEST_SKIP() << "needs root, to give a directory away";
  std::filesystem::create_directory(path() + "/ranks");
  ASSERT_EQ(chown((path() + "/ranks").c_str(), 65534, 65534), 0);
  EXPECT_THAT(make(path()).error().message(), HasSubstr("belongs to user 65534"));
}

TEST_F(RuntimeDirectories, AreNotMadeWhereSomethingElseIs) {
  folder_.write("run", "precious");
  const auto refused = make(path());
  EXPECT_EQ(refused.error().code(), Code::kDuplicate);
  EXPECT_THAT(refused.error().message(), HasSubstr(path() + " is no directory"));
  EXPECT_EQ(std::filesystem::file_size(path()), 8u);
}

TEST_F(RuntimeDirectories, SayWhyTheirPlaceCannotHoldThem) {
  folder_.write("file", "text");
  std::filesystem::create_symlink("nowhere", path());
  const std::pair<std::string, std::string> cases[] = {
      {"/nonexistent/a/b",
       "/nonexistent/a/b cannot be made: there is no folder /nonexistent/a; make it first, or name another "
       "place (--directory)"},
      {folder_.path() + "/file/run",
       folder_.path() + "/file/run cannot be made: " + folder_.path() +
           "/file is a file, so nothing can be in it; name another place (--directory)"},
      {path(), path() + " is a link to nowhere, which is not there; remove the link, or name another place"}};
  for (const auto& [place, why] : cases) {
    const auto refused = make(place);
    EXPECT_EQ(refused.error().code(), Code::kDenied) << place;
    EXPECT_EQ(refused.error().message(), "node.runtime_directory: " + why);
  }
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
  auto directory = make(path());
  ASSERT_TRUE(directory);
  std::filesystem::remove_all(path());
  std::filesystem::create_directory(path());
  ASSERT_EQ(chown(path().c_str(), 65534, 65534), 0);
  const Status refused = directory->mend({0750, std::nullopt}, 1);
  EXPECT_EQ(refused.code(), Code::kDenied);
  EXPECT_THAT(refused.message(), HasSubstr("belongs to user 65534 now"));
  EXPECT_TRUE(make(path())) << "with a warning";
}

TEST_F(RuntimeDirectories, GoOnToASuccessorWithTheirLock) {
  std::optional<RuntimeDirectory> directory(*make(path()));
  const std::string name = directory->name();
  const auto copy = [&] { return shm::Descriptor(fcntl(directory->lock().get(), F_DUPFD_CLOEXEC, 3)); };
  shm::Descriptor kept = copy();
  directory.reset();
  EXPECT_EQ(make(path()).error().code(), Code::kBusy) << "locked all the time";
  directory = RuntimeDirectory::adopt(std::move(kept), path(), name);
  ASSERT_TRUE(directory);
  EXPECT_TRUE(directory->lock_stands());
  ASSERT_TRUE(directory->mend({0750, std::nullopt}, 1).ok());
  EXPECT_TRUE(directory->stands());
  EXPECT_EQ(directory->name(), name) << "the same lock";
  EXPECT_FALSE(RuntimeDirectory::adopt(copy(), path(), name + "0"));
  EXPECT_FALSE(
      RuntimeDirectory::adopt(shm::Descriptor(open("/dev/null", O_RDONLY | O_CLOEXEC)), path(), name));
}

}  // namespace
}  // namespace muster::supervisor
