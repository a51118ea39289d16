#include "api/base/store/shelf.hpp"

#include "tests/api/base/store/made.hpp"
#include "tests/support/folder.hpp"

#include <filesystem>
#include <optional>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::store {
namespace {

using test::expect_ok;
using test::make_checkpoint;
using test::rows;
using ::testing::ElementsAre;

std::vector<std::string> names_on(const std::string& folder) {
  std::vector<std::string> names;
  const auto entries = list_shelf(folder);
  for (const ShelfEntry& entry : *entries) names.push_back(entry.name);
  return names;
}

void make(const test::Folder& folder, const std::string& name, std::uint64_t step) {
  expect_ok(make_checkpoint(folder.path(), name, step, {{"w", rows({4}, 1), 0}}));
}

TEST(Shelf, HasCompleteCheckpointsByStep) {
  const test::Folder folder;
  make(folder, "b", 10);
  make(folder, "a", 10);
  make(folder, "z", 9);
  std::filesystem::create_directory(folder.path() + "/not-one");
  folder.write("file", "text");
  const auto staged = StagedFolder::make(folder.path(), "c", 11, Existing::kRefuse);
  make(folder, "damaged", 12);
  std::filesystem::resize_file(folder.path() + "/damaged/metadata.json", 9);
  EXPECT_THAT(names_on(folder.path()), ElementsAre("z", "a", "b"));
  EXPECT_EQ(*newest_on_shelf(folder.path()), "b");
  std::vector<std::string> damaged;
  ASSERT_TRUE(list_shelf(folder.path(), &damaged));
  EXPECT_EQ(damaged.size(), 1U);
}

TEST(Shelf, AFolderThatIsNotThereHasNone) {
  EXPECT_TRUE(list_shelf("/tmp/muster-no-such-folder")->empty());
  EXPECT_EQ(newest_on_shelf("/tmp/muster-no-such-folder").error().code(), Code::kNotFound);
}

TEST(Shelf, PruningKeepsTheNewestAndTheOneJustMade) {
  const test::Folder folder;
  for (const std::uint64_t step : {1, 2, 3, 4}) make(folder, std::to_string(step), step);
  expect_ok(prune_shelf(folder.path(), 2, "1"));
  EXPECT_THAT(names_on(folder.path()), ElementsAre("1", "4"));
}

// Goal: what a living process still writes stays, also where it is the older one; what a dead one left goes.
TEST(Shelf, PruningRemovesWhatTheDeadHaveLeft) {
  const test::Folder folder;
  auto living = StagedFolder::make(folder.path(), "5", 5, Existing::kRefuse);
  std::filesystem::create_directory(StagedFolder::path_of(folder.path(), "4", 4));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  make(folder, "6", 6);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::filesystem::create_directory(
      StagedFolder::path_of(folder.path(), "7", 7));  // newer than what is complete
  expect_ok(prune_shelf(folder.path(), 2, "6"));
  EXPECT_TRUE(std::filesystem::exists(living->path()));
  EXPECT_FALSE(std::filesystem::exists(StagedFolder::path_of(folder.path(), "4", 4)));
  EXPECT_TRUE(std::filesystem::exists(StagedFolder::path_of(folder.path(), "7", 7)));
}

}  // namespace
}  // namespace muster::store
