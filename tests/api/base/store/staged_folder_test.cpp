#include "api/base/store/staged_folder.hpp"

#include "api/base/store/saved_folder.hpp"
#include "tests/api/base/store/confined.hpp"
#include "tests/api/base/store/made.hpp"
#include "tests/support/folder.hpp"

#include <cerrno>
#include <filesystem>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace {

using Existing = muster::store::StagedFolder::Existing;

// The folder whose next syncs fail, and how many do.
ino_t failing_folder = 0;
int failing_syncs = 0;

void syncs_of(const std::string& folder, int fail) {
  struct stat facts {};
  failing_folder = ::stat(folder.c_str(), &facts) == 0 ? facts.st_ino : 0;
  failing_syncs = fail;
}

}  // namespace

// Instead of the C library's.
extern "C" int fsync(int descriptor) {
  struct stat facts {};
  if (failing_syncs > 0 && ::fstat(descriptor, &facts) == 0 && facts.st_ino == failing_folder) {
    --failing_syncs;
    errno = EIO;
    return -1;
  }
  return static_cast<int>(::syscall(SYS_fsync, descriptor));
}

namespace muster::store {
namespace {

using test::expect_ok;
using test::make_checkpoint;
using test::rows;

TEST(StagedFolder, LeavesNothingUnlessItIsCommitted) {
  const test::Folder folder;
  {
    const auto staged = StagedFolder::make(folder.path() + "/run", "one", 1, Existing::kRefuse);
    ASSERT_TRUE(staged);
    EXPECT_EQ(staged->path(), StagedFolder::path_of(folder.path() + "/run", "one", 1));
    expect_ok(write_text(staged->path() + "/rank-0.bin", "x"));
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path() + "/run"));
}

TEST(StagedFolder, ANameIsTakenOnceUnlessItIsToBeReplaced) {
  const test::Folder folder;
  expect_ok(make_checkpoint(folder.path(), "one", 1, {{"w", rows({4}, 1), 0}}));
  EXPECT_EQ(make_checkpoint(folder.path(), "one", 2, {{"w", rows({4}, 1), 0}}).code(), Code::kDuplicate);
  expect_ok(make_checkpoint(folder.path(), "one", 2, {{"w", rows({4}, 2), 7}}, Existing::kReplace));
  auto saved = SavedFolder::open(folder.path() + "/one");
  ASSERT_TRUE(saved);
  EXPECT_EQ(saved->record().step, 2U);
  expect_ok(saved->verify());
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder.path()), {}), 1)
      << "the old one is left";
}

// Somebody else takes the name between make() and commit().
TEST(StagedFolder, DoesNotOverwriteWhatCameMeanwhile) {
  const test::Folder folder;
  auto staged = StagedFolder::make(folder.path(), "one", 9, Existing::kRefuse);
  ASSERT_TRUE(staged);
  expect_ok(make_checkpoint(folder.path(), "one", 1, {{"w", rows({4}, 1), 0}}));
  EXPECT_EQ(staged->commit({}).code(), Code::kDuplicate);
  EXPECT_EQ(SavedFolder::open(folder.path() + "/one")->record().step, 1U);
}

// Goal: a run's folder in one that this user may enter, and not list, gets its checkpoints.
TEST(StagedFolder, NeedsNotListTheFolderAboveTheRun) {
  const test::Folder folder;
  for (const char* name : {"/run", "/run/new"}) std::filesystem::create_directory(folder.path() + name);
  std::filesystem::permissions(folder.path() + "/run", std::filesystem::perms::all);
  std::filesystem::permissions(folder.path() + "/run/new", std::filesystem::perms::all);
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0711));
  if (geteuid() != 0) std::filesystem::permissions(folder.path(), std::filesystem::perms(0311));
  const int code = test::in_child(test::as_nobody, [&] {
    return make_checkpoint(folder.path() + "/run", "one", 1, {{"w", rows({4}, 1), 0}}).ok() ? 0 : 1;
  });
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0700));
  if (code == 101) GTEST_SKIP() << "this user cannot become nobody";
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(SavedFolder::open(folder.path() + "/run/one"));
}

// Goal: any failure comes before the checkpoint exists.
TEST(StagedFolder, AFolderThatCannotBeSyncedGetsNoCheckpoint) {
  const test::Folder folder;
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0333));
  const int code = test::in_child(test::as_nobody, [&] {
    return make_checkpoint(folder.path(), "one", 1, {{"w", rows({4}, 1), 0}}).code() == Code::kDenied ? 0 : 1;
  });
  std::filesystem::permissions(folder.path(), std::filesystem::perms(0700));
  if (code == 101) GTEST_SKIP() << "this user cannot become nobody";
  EXPECT_EQ(code, 0);
  EXPECT_TRUE(folder.empty());
}

// Goal: the former checkpoint stays until the new one is on the disk.
TEST(StagedFolder, GivesTheNameBackWhereTheExchangeIsNotOnTheDisk) {
  const test::Folder folder;
  expect_ok(make_checkpoint(folder.path(), "one", 1, {{"w", rows({4}, 1), 0}}));
  for (const int failures : {1, 2}) {
    syncs_of(folder.path(), failures);
    const Status refused =
        make_checkpoint(folder.path(), "one", 2, {{"w", rows({4}, 2), 7}}, Existing::kReplace);
    syncs_of("", 0);
    EXPECT_FALSE(refused.ok());
    EXPECT_THAT(refused.message(), ::testing::HasSubstr(folder.path() + "/one was not replaced"));
    auto saved = SavedFolder::open(folder.path() + "/one");
    ASSERT_TRUE(saved);
    EXPECT_EQ(saved->record().step, 1U);
    expect_ok(saved->verify());
    const auto other = StagedFolder::path_of(folder.path(), "one", 3);
    EXPECT_EQ(std::filesystem::exists(other), failures == 2) << "nothing is removed that may be needed";
    EXPECT_EQ(refused.message().find(other) != std::string::npos, failures == 2) << refused.message();
  }
}

TEST(StagedFolder, StopsBeforeTheNameWhenAskedTo) {
  const test::Folder folder;
  for (int most = 0; most < 2; ++most) {
    auto staged = StagedFolder::make(folder.path(), "one", 1, Existing::kRefuse);
    int pauses = 0;
    const auto enough = [&] { return pauses++ < most ? Status() : failure(Code::kAborted, "enough"); };
    EXPECT_EQ(staged->commit({}, enough).code(), Code::kAborted);
    EXPECT_FALSE(std::filesystem::exists(folder.path() + "/one"));
  }
}

TEST(StagedFolder, CommitsWhereTheFileSystemHasNoFlagsOfRename) {
  const test::Folder folder;
  const int code = test::in_child(test::without_rename_flags, [&] {
    const auto make = [&] { return make_checkpoint(folder.path(), "one", 1, {{"w", rows({4}, 1), 0}}); };
    if (!make().ok()) return 1;
    return make().code() == Code::kDuplicate ? 0 : 2;
  });
  if (code == 101) GTEST_SKIP() << "no filter of system calls can be installed here";
  ASSERT_EQ(code, 0);
  expect_ok(SavedFolder::open(folder.path() + "/one")->verify());
}

TEST(StagedFolder, RefusesNamesThatLeadElsewhere) {
  const test::Folder folder;
  for (const char* name : {"../x", "", "a/b", "x.partial-1"})
    EXPECT_EQ(StagedFolder::make(folder.path(), name, 1, Existing::kRefuse).error().code(),
              Code::kBadArgument);
}

TEST(StagedFolder, SaysWhatIsInThePlaceOfItsFolder) {
  const test::Folder folder;
  const auto refusal = [&](const std::string& path) {
    const auto staged = StagedFolder::make(path, "one", 1, Existing::kRefuse);
    return staged ? Status() : staged.error();
  };
  const std::string link = folder.path() + "/link", file = folder.write("file", "x");
  std::filesystem::create_symlink("nowhere", link);
  EXPECT_EQ(refusal(link).message(),
            link + " is a link to nowhere, which is not there; remove the link, or name another place");
  EXPECT_THAT(refusal(file).message(), ::testing::HasSubstr("file is a file; name a folder"));
  std::filesystem::remove(link);
  std::filesystem::create_symlink(folder.path(), link);
  EXPECT_TRUE(StagedFolder::make(link, "one", 1, Existing::kRefuse));
}

}  // namespace
}  // namespace muster::store
