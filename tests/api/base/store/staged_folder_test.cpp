#include "api/base/store/staged_folder.hpp"

#include "api/base/store/saved_folder.hpp"
#include "tests/api/base/store/made.hpp"
#include "tests/support/folder.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

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

TEST(StagedFolder, RefusesNamesThatLeadElsewhere) {
  const test::Folder folder;
  for (const char* name : {"../x", "", "a/b", "x.partial-1"})
    EXPECT_EQ(StagedFolder::make(folder.path(), name, 1, Existing::kRefuse).error().code(),
              Code::kBadArgument);
}

}  // namespace
}  // namespace muster::store
