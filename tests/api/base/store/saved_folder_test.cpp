#include "api/base/store/saved_folder.hpp"

#include "tests/api/base/store/made.hpp"
#include "tests/support/folder.hpp"

#include <fstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::store {
namespace {

using test::expect_ok;
using test::MadeTensor;
using test::make_checkpoint;
using test::rows;
using ::testing::HasSubstr;

void flip_byte(const std::string& path, std::streamoff at) {
  std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
  file.seekg(at);
  const char byte = static_cast<char>(file.get() ^ 1);
  file.seekp(at);
  file.put(byte);
}

Status read_slices(SavedFolder& saved, const std::string& name, const Layout& layout, std::int64_t rank,
                   std::vector<float>& into) {
  const checkpoint::SavedTensor& tensor = *saved.record().find(name);
  into.assign(static_cast<std::size_t>(layout.local_elements(rank)), 0);
  return saved.read(tensor, checkpoint::plan_read(tensor, layout.pieces(rank)),
                    {reinterpret_cast<std::byte*>(into.data()),
                     checkpoint::dense_strides(layout.dims(), layout.local_shape(rank))});
}

TEST(SavedFolder, GivesTheWholeTensorAndASliceOfIt) {
  const test::Folder folder;
  const MadeTensor w{"w", rows({10, 3}, 4), 5};
  expect_ok(make_checkpoint(folder.path(), "one", 1, {w}));
  auto saved = SavedFolder::open(folder.path() + "/one");
  ASSERT_TRUE(saved) << saved.error().message();
  const auto whole = saved->read_whole(*saved->record().find("w"));
  ASSERT_TRUE(whole);
  EXPECT_EQ(*whole, test::bytes_of_box(w, Box{2, {}, {10, 3}}));
  std::vector<float> slice;
  expect_ok(read_slices(*saved, "w", rows({10, 3}, 3), 1, slice));
  for (std::size_t i = 0; i < slice.size(); ++i) EXPECT_EQ(slice[i], 5 + 12 + static_cast<float>(i));
  expect_ok(saved->verify());
}

// Goal: a slice is verified by the chunks that it touches, and by no others.
TEST(SavedFolder, ReadsAndVerifiesTheChunksThatASliceTouches) {
  const test::Folder folder;
  const std::int64_t columns = 1 << 16;  // 4 rows a chunk
  expect_ok(make_checkpoint(folder.path(), "one", 1, {{"w", rows({16, columns}, 1), 0}}));
  flip_byte(folder.path() + "/one/rank-0.bin", (2 << 20) + 17);  // in the third chunk: rows 8 to 11
  auto saved = SavedFolder::open(folder.path() + "/one");
  ASSERT_TRUE(saved);
  std::vector<float> slice;
  const Layout four = rows({16, columns}, 4);
  for (const std::int64_t rank : {0, 1, 3}) expect_ok(read_slices(*saved, "w", four, rank, slice));
  EXPECT_EQ(slice.back(), static_cast<float>(16 * columns - 1));
  const Status status = read_slices(*saved, "w", four, 2, slice);
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_EQ(status.message(),
            folder.path() +
                "/one/rank-0.bin: tensor \"w\" is damaged between bytes 2097152 and 3145728: "
                "their checksum does not fit");
  EXPECT_EQ(saved->verify().code(), Code::kCorrupt);
  int pauses = 0;
  EXPECT_EQ(saved->verify([&] { return ++pauses < 2 ? Status() : failure(Code::kAborted, "enough"); }).code(),
            Code::kAborted);
}

TEST(SavedFolder, NamesTheFileThatIsGoneOrShort) {
  const test::Folder folder;
  expect_ok(make_checkpoint(folder.path(), "one", 1, {{"w", rows({4}, 2), 0}}));
  std::filesystem::resize_file(folder.path() + "/one/rank-1.bin", 7);
  auto saved = SavedFolder::open(folder.path() + "/one");
  ASSERT_TRUE(saved);
  for (int call = 0; call < 2; ++call)
    EXPECT_THAT(saved->verify().message(), HasSubstr("rank-1.bin has 7 bytes, but the metadata say 8"));
  std::filesystem::remove(folder.path() + "/one/rank-1.bin");
  auto again = SavedFolder::open(folder.path() + "/one");
  EXPECT_THAT(again->verify().message(), HasSubstr("tensor \"w\": cannot open"));
  EXPECT_EQ(again->verify().code(), Code::kCorrupt) << "the checkpoint is there, so this is damage";
}

// Goal: metadata alone cannot make a reader take memory.
TEST(SavedFolder, TakesNoMemoryForFilesThatAreNotThere) {
  const test::Folder folder;
  constexpr std::int64_t kBytes = std::int64_t{1} << 37;
  checkpoint::CheckpointRecord record;
  record.files.push_back({"rank-0.bin", kBytes});
  record.tensors.push_back({"w", MUSTER_U8, 1, {kBytes}, {{Box{1, {}, {kBytes}}, 0, 0, {}}}});
  record.tensors[0].boxes[0].sums.resize(checkpoint::chunks_of(kBytes));
  auto staged = StagedFolder::make(folder.path(), "one", 1, StagedFolder::Existing::kRefuse);
  expect_ok(staged->commit(record));
  auto saved = SavedFolder::open(folder.path() + "/one");
  ASSERT_TRUE(saved) << saved.error().message();
  const auto whole = saved->read_whole(saved->record().tensors[0]);
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().code(), Code::kCorrupt);
}

TEST(SavedFolder, PausesWhileItReadsAWholeTensor) {
  const test::Folder folder;
  expect_ok(make_checkpoint(folder.path(), "one", 1, {{"w", rows({1 << 19}, 1), 0}}));  // two chunks
  auto saved = SavedFolder::open(folder.path() + "/one");
  int pauses = 0;
  const auto enough = [&] { return ++pauses < 2 ? Status() : failure(Code::kAborted, "enough"); };
  const auto whole = saved->read_whole(*saved->record().find("w"), enough);
  ASSERT_FALSE(whole);
  EXPECT_EQ(whole.error().code(), Code::kAborted);
}

TEST(SavedFolder, WithoutMetadataItIsNoCheckpoint) {
  const test::Folder folder;
  expect_ok(make_checkpoint(folder.path(), "one", 1, {{"w", rows({4}, 2), 0}}));
  flip_byte(folder.path() + "/one/metadata.json", 100);
  auto damaged = SavedFolder::open(folder.path() + "/one");
  EXPECT_EQ(damaged.error().code(), Code::kCorrupt);
  EXPECT_THAT(damaged.error().message(), HasSubstr("/one/metadata.json: the metadata are damaged"));
  std::filesystem::remove(folder.path() + "/one/metadata.json");
  EXPECT_EQ(SavedFolder::open(folder.path() + "/one").error().code(), Code::kNotFound);
  EXPECT_EQ(SavedFolder::open(folder.path() + "/two").error().code(), Code::kNotFound);
}

}  // namespace
}  // namespace muster::store
