#include "api/base/store/checkpoint_list.hpp"

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
using ::testing::HasSubstr;

std::vector<std::string> names_on(const std::string& folder) {
  std::vector<std::string> names;
  const auto entries = list_checkpoints(folder);
  for (const CheckpointEntry& entry : *entries) names.push_back(entry.name);
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
  const auto staged = StagedFolder::make(folder.path(), "c", 11, StagedFolder::Existing::kRefuse);
  make(folder, "damaged", 12);
  std::filesystem::resize_file(folder.path() + "/damaged/metadata.json", 9);
  EXPECT_THAT(names_on(folder.path()), ElementsAre("z", "a", "b"));
  const auto newest = newest_checkpoint(folder.path());
  ASSERT_TRUE(newest);
  EXPECT_EQ(newest->entry.name, "b");
  ASSERT_EQ(newest->damaged.size(), 1U);
  EXPECT_EQ(newest->damaged[0].code(), Code::kCorrupt);
  EXPECT_THAT(newest->damaged[0].message(), HasSubstr("/damaged/metadata.json"));
}

// Goal: a checkpoint that cannot be read now, or by this program, is not passed over: it may be the newest.
TEST(Shelf, TheNewestIsNoOlderOneBecauseANewerOneCannotBeRead) {
  const test::Folder folder;
  make(folder, "a", 1);
  make(folder, "b", 2);
  const std::string record = folder.path() + "/b/metadata.json";
  std::string text = *read_text(record, 1 << 20);
  const std::size_t version = text.find("\"version\":1");
  ASSERT_NE(version, std::string::npos);
  text.replace(version, 11, "\"version\":2");
  const std::size_t begin = text.find("\"metadata\":") + 11;
  const std::string inner = text.substr(begin, text.size() - 2 - begin);
  std::filesystem::remove(record);
  expect_ok(write_text(record, "{\"checksum\":\"" +
                                   checkpoint::checksum(std::as_bytes(std::span(inner))).hex() +
                                   "\",\n\"metadata\":" + inner + "}\n"));
  EXPECT_EQ(newest_checkpoint(folder.path()).error().code(), Code::kVersion);
  std::filesystem::remove(record);
  std::filesystem::create_symlink("metadata.json", record);
  EXPECT_EQ(newest_checkpoint(folder.path()).error().code(), Code::kNoResource);
  EXPECT_THAT(names_on(folder.path()), ElementsAre("a"));
}

TEST(Shelf, AFolderThatIsNotThereHasNone) {
  EXPECT_TRUE(list_checkpoints("/tmp/muster-no-such-folder")->empty());
  EXPECT_EQ(newest_checkpoint("/tmp/muster-no-such-folder").error().code(), Code::kNotFound);
}

TEST(Shelf, RemovingKeepsTheNewestAndTheOneJustMade) {
  const test::Folder folder;
  for (const std::uint64_t step : {1, 2, 3, 4}) make(folder, std::to_string(step), step);
  EXPECT_EQ(remove_oldest(folder.path(), 2, "1", [] { return failure(Code::kAborted, "enough"); }).code(),
            Code::kAborted);
  EXPECT_EQ(names_on(folder.path()).size(), 4U);
  expect_ok(remove_oldest(folder.path(), 2, "1"));
  EXPECT_THAT(names_on(folder.path()), ElementsAre("1", "4"));
}

// Goal: files that a living process still writes stay, even the older ones; files of a dead process go.
TEST(Shelf, WhatTheDeadHaveLeftIsRemoved) {
  const test::Folder folder;
  auto living = StagedFolder::make(folder.path(), "5", 5, StagedFolder::Existing::kRefuse);
  std::filesystem::create_directory(StagedFolder::path_of(folder.path(), "4", 4));
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  make(folder, "6", 6);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  std::filesystem::create_directory(
      StagedFolder::path_of(folder.path(), "7", 7));  // newer than what is complete
  expect_ok(remove_leftovers(folder.path(), "6"));
  EXPECT_TRUE(std::filesystem::exists(living->path()));
  EXPECT_FALSE(std::filesystem::exists(StagedFolder::path_of(folder.path(), "4", 4)));
  EXPECT_TRUE(std::filesystem::exists(StagedFolder::path_of(folder.path(), "7", 7)));
}

}  // namespace
}  // namespace muster::store
