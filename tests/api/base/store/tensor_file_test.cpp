#include "api/base/store/tensor_file.hpp"

#include "api/base/store/disk_file.hpp"
#include "tests/api/base/store/confined.hpp"
#include "tests/api/base/store/made.hpp"
#include "tests/api/base/store/model.hpp"
#include "tests/support/folder.hpp"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::store {
namespace {

using test::expect_ok;
using test::MadeTensor;
using test::make_checkpoint;
using test::rows;
using ::testing::HasSubstr;

Status imported(const std::string& file, const std::string& folder, const std::string& name,
                std::uint64_t step) {
  const auto made = import_tensors(std::vector{file}, folder, name, step);
  return made ? Status() : made.error();
}

std::string file_text(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// lm_head of 10 x 12 over T=3, and a norm.
class TensorFile : public ::testing::Test {
 protected:
  void SetUp() override {
    expect_ok(make_checkpoint(folder_.path(), "one", 3, {head_, norm_}));
    auto opened = SavedFolder::open(folder_.path() + "/one");
    ASSERT_TRUE(opened);
    saved_.emplace(*std::move(opened));
  }
  const test::Folder folder_;
  const std::string file_ = folder_.path() + "/model.safetensors";
  const MadeTensor head_{"lm_head.weight", rows({10, 12}, 3), 1};
  const MadeTensor norm_{
      "norm.weight",
      *Layout::make(std::vector<std::int64_t>{12}, {Layout::Axis{"tp", 3, Placement::replicate()}}), 500};
  std::optional<SavedFolder> saved_;
};

// Goal:   a checkpoint without tensors is exported as such, but a filter that takes none is a mistake.
TEST_F(TensorFile, ACheckpointWithoutTensorsBecomesAFileWithoutTensors) {
  expect_ok(make_checkpoint(folder_.path(), "empty", 1, {}));
  auto empty = SavedFolder::open(folder_.path() + "/empty");
  ASSERT_TRUE(empty);
  expect_ok(export_tensors(*empty, file_));
  expect_ok(imported(file_, folder_.path(), "back", 2));
  auto back = SavedFolder::open(folder_.path() + "/back");
  ASSERT_TRUE(back);
  EXPECT_TRUE(back->record().tensors.empty());
  const std::vector<std::string> only{"none"};
  EXPECT_EQ(export_tensors(*saved_, file_ + "2", {only, {}}).code(), Code::kNotFound);
}

// Goal:   a checkpoint of an older release may have a tensor of the notes' name: it is no file without a
//         word.
TEST_F(TensorFile, ATensorNamedAsTheNotesIsNotExported) {
  const MadeTensor notes{"__metadata__", rows({10, 12}, 3), 1};
  expect_ok(make_checkpoint(folder_.path(), "old", 3, {head_, notes}));
  auto old = SavedFolder::open(folder_.path() + "/old");
  ASSERT_TRUE(old);
  const Status refused = export_tensors(*old, file_);
  EXPECT_EQ(refused.code(), Code::kBadArgument);
  EXPECT_THAT(refused.message(), HasSubstr("--exclude"));
  EXPECT_FALSE(std::filesystem::exists(file_));
  const std::vector<std::string> only, exclude{"__metadata__"};
  expect_ok(export_tensors(*old, file_, {only, exclude}));
}

// Goal:   whatever a name has that JSON writes otherwise, the file has a header that its readers parse, and
//         the tensor comes back by its name.
TEST_F(TensorFile, NamesThatJsonWritesOtherwiseComeBack) {
  const std::vector<std::string> names{R"(a"b)", R"(a\b)",         R"(\u0041)", "größe/層",
                                       "{}",     "__metadata__.x", "a b"};
  std::vector<MadeTensor> tensors;
  for (const std::string& name : names)
    tensors.push_back({name, rows({2}, 1), static_cast<float>(tensors.size())});
  expect_ok(make_checkpoint(folder_.path(), "names", 1, tensors));
  auto saved = SavedFolder::open(folder_.path() + "/names");
  ASSERT_TRUE(saved) << saved.error().message();
  expect_ok(export_tensors(*saved, file_));
  expect_ok(imported(file_, folder_.path(), "back", 2));
  auto back = SavedFolder::open(folder_.path() + "/back");
  ASSERT_TRUE(back);
  for (const MadeTensor& tensor : tensors) {
    const auto* found = back->record().find(tensor.name);
    ASSERT_NE(found, nullptr) << tensor.name;
    EXPECT_EQ(*back->read_whole(*found), test::bytes_of_box(tensor, Box{1, {}, {2}})) << tensor.name;
  }
  const std::string text = file_text(file_);
  const std::string program =
      "python3 -c \"import json, struct; f = open('" + file_ +
      "', 'rb'); n, = struct.unpack('<Q', f.read(8)); h = json.loads(f.read(n)); assert len(h) == " +
      std::to_string(names.size()) + ", h\"";
  EXPECT_EQ(std::system(program.c_str()), 0);
}

// Goal:   tensors without elements, beside others and alone, are nothing that a file leaves out or ends at.
TEST_F(TensorFile, TensorsWithoutElementsComeBack) {
  const MadeTensor first{"a.first", rows({0, 4}, 2), 1}, last{"z.last", rows({3, 0}, 2), 1};
  for (const auto& tensors : {std::vector{first, head_, last}, std::vector{first, last}, std::vector{last},
                              std::vector{head_, first}}) {
    const test::Folder folder;
    const std::string file = folder.path() + "/f.safetensors";
    expect_ok(make_checkpoint(folder.path(), "some", 1, tensors));
    auto some = SavedFolder::open(folder.path() + "/some");
    ASSERT_TRUE(some) << some.error().message();
    expect_ok(some->verify());
    expect_ok(export_tensors(*some, file));
    expect_ok(imported(file, folder.path(), "back", 2));
    auto back = SavedFolder::open(folder.path() + "/back");
    ASSERT_TRUE(back) << back.error().message();
    expect_ok(back->verify());
    EXPECT_EQ(back->record().tensors.size(), tensors.size());
    for (const MadeTensor& tensor : tensors) {
      const auto* found = back->record().find(tensor.name);
      ASSERT_NE(found, nullptr) << tensor.name;
      EXPECT_EQ(found->shape, some->record().find(tensor.name)->shape);
      EXPECT_EQ(*back->read_whole(*found), *some->read_whole(*some->record().find(tensor.name)));
    }
  }
}

// Goal:   a file that has notes and no tensor keeps its notes, and a model's second file may have none.
TEST_F(TensorFile, NotesWithoutTensorsComeBack) {
  const test::Folder model;
  model.write("1.safetensors", test::model_file({}, {{"format", "pt"}}));
  expect_ok(imported(model.path() + "/1.safetensors", folder_.path(), "notes", 1));
  auto notes = SavedFolder::open(folder_.path() + "/notes");
  ASSERT_TRUE(notes) << notes.error().message();
  expect_ok(notes->verify());
  expect_ok(export_tensors(*notes, file_));
  EXPECT_THAT(file_text(file_), HasSubstr(R"({"__metadata__":{"format":"pt"}})"));
  model.write("2.safetensors", test::model_file({{"a", 1}}));
  const auto made =
      import_tensors(std::vector{model.path() + "/1.safetensors", model.path() + "/2.safetensors"},
                     folder_.path(), "both", 2);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->tensors, 1U);
}

// Goal:   case C8: lm_head of 10 x 12 over T=3 is exported as it was, and a norm of [H] stays [H].
TEST_F(TensorFile, ExportsOriginalNamesShapesAndBytes) {
  expect_ok(export_tensors(*saved_, file_));
  const std::string text = file_text(file_);
  EXPECT_THAT(text, HasSubstr(R"("lm_head.weight":{"data_offsets":[0,480],"dtype":"F32","shape":[10,12]})"));
  EXPECT_THAT(text, HasSubstr(R"("norm.weight":{"data_offsets":[480,528],"dtype":"F32","shape":[12]})"));
  const auto head = test::bytes_of_box(head_, Box{2, {}, {10, 12}});
  const auto norm = test::bytes_of_box(norm_, Box{1, {}, {12}});
  std::string data(reinterpret_cast<const char*>(head.data()), head.size());
  data.append(reinterpret_cast<const char*>(norm.data()), norm.size());
  EXPECT_TRUE(text.ends_with(data));
  EXPECT_EQ((text.size() - data.size()) % 8, 0U);
}

TEST_F(TensorFile, ComesBackAsACheckpointThatAnyMeshLoads) {
  expect_ok(export_tensors(*saved_, file_));
  std::filesystem::create_symlink(file_, folder_.path() + "/link");
  expect_ok(imported(folder_.path() + "/link", folder_.path(), "two", 8));
  auto again = SavedFolder::open(folder_.path() + "/two");
  ASSERT_TRUE(again) << again.error().message();
  EXPECT_EQ(again->record().step, 8U);
  expect_ok(again->verify());
  for (const char* name : {"lm_head.weight", "norm.weight"})
    EXPECT_EQ(*again->read_whole(*again->record().find(name)),
              *saved_->read_whole(*saved_->record().find(name)));
}

TEST_F(TensorFile, TakesNamesThatFit) {
  const std::vector<std::string> only{"*.weight"}, exclude{"lm_*"};
  expect_ok(export_tensors(*saved_, file_, {only, exclude}));
  EXPECT_THAT(file_text(file_), ::testing::Not(HasSubstr("lm_head")));
  EXPECT_EQ(export_tensors(*saved_, file_).code(), Code::kDuplicate);
  const std::vector<std::string> none{"x"};
  EXPECT_EQ(export_tensors(*saved_, file_ + "2", {none, {}}).code(), Code::kNotFound);
}

TEST_F(TensorFile, LeavesNothingOfADamagedCheckpoint) {
  std::filesystem::resize_file(folder_.path() + "/one/rank-0.bin", 3);
  EXPECT_EQ(export_tensors(*saved_, file_).code(), Code::kCorrupt);
  EXPECT_FALSE(std::filesystem::exists(file_));
  const std::filesystem::directory_iterator all(folder_.path());
  EXPECT_EQ(std::distance(begin(all), end(all)), 1) << "only the checkpoint";
}

// Goal: an export takes away no file that somebody has, and a name that another one has taken is an error.
TEST_F(TensorFile, AnExportHasAFileOfItsOwnUntilItIsWhole) {
  folder_.write("model.safetensors.partial", "of the user");
  expect_ok(export_tensors(*saved_, file_));
  EXPECT_EQ(file_text(file_ + ".partial"), "of the user");
}

TEST_F(TensorFile, ExportsWhereTheFileSystemHasNoFlagsOfRename) {
  const int code = test::in_child(test::without_rename_flags, [&] {
    if (!export_tensors(*saved_, file_).ok()) return 1;
    const std::string unfinished = folder_.write("unfinished", "x");
    return rename_to_new(unfinished, file_).code() == Code::kDuplicate ? 0 : 2;
  });
  if (code == 101) GTEST_SKIP() << "no filter of system calls can be installed here";
  EXPECT_EQ(code, 0);
  EXPECT_GT(file_text(file_).size(), 480U);
}

// Goal:   several files become one checkpoint, with all bytes and notes, and one file again.
TEST_F(TensorFile, SeveralFilesBecomeOneCheckpoint) {
  const test::Folder model;
  test::write_model(model);
  const auto made = import_tensors(std::vector{model.path()}, folder_.path(), "two", 7);
  ASSERT_TRUE(made) << made.error().message();
  EXPECT_EQ(made->files, 2U);
  EXPECT_EQ(made->tensors, 3U);
  EXPECT_EQ(made->bytes, 12U);
  auto two = SavedFolder::open(folder_.path() + "/two");
  ASSERT_TRUE(two) << two.error().message();
  expect_ok(two->verify());
  const auto value = [&](const char* name) {
    float read = 0;
    const auto bytes = two->read_whole(*two->record().find(name));
    std::memcpy(&read, bytes->data(), sizeof read);
    return read;
  };
  EXPECT_EQ(value("a"), 1);
  EXPECT_EQ(value("b"), 2);
  EXPECT_EQ(value("c"), 3);
  expect_ok(export_tensors(*two, file_));
  EXPECT_THAT(file_text(file_), HasSubstr(R"("__metadata__":{"format":"pt","of":"1"})"));
}

TEST_F(TensorFile, ImportsNamesThatFit) {
  const test::Folder model;
  test::write_model(model);
  const std::vector<std::string> only{"a", "b"}, exclude{"b"};
  ASSERT_TRUE(import_tensors(std::vector{model.path()}, folder_.path(), "two", 7, {only, exclude}));
  const auto two = SavedFolder::open(folder_.path() + "/two");
  ASSERT_TRUE(two);
  ASSERT_EQ(two->record().tensors.size(), 1U);
  EXPECT_EQ(two->record().tensors.front().name, "a");
  EXPECT_EQ(two->record().bytes(), 4U);
}

TEST_F(TensorFile, RefusesWhatIsNoSafetensors) {
  const auto refusal = [&](const std::string& bytes) {
    const std::string path = folder_.write("x", bytes);
    return imported(path, folder_.path(), "three", 0).message();
  };
  EXPECT_THAT(refusal("abc"), HasSubstr("ends at byte"));
  EXPECT_THAT(refusal(std::string(8, '\xff')), HasSubstr("is no safetensors file"));
  EXPECT_THAT(refusal(std::string("\2\0\0\0\0\0\0\0", 8) + "[]"), HasSubstr("/x: "));
  EXPECT_FALSE(std::filesystem::exists(folder_.path() + "/three"));
}

// Goal: the common reader of safetensors reads our files.
TEST_F(TensorFile, ThePublicReaderReadsIt) {
  if (std::system("python3 -c 'import safetensors.numpy' 2>/dev/null") != 0)
    GTEST_SKIP() << "the Python package safetensors is not here";
  expect_ok(export_tensors(*saved_, file_));
  const std::string program =
      "python3 -c \"import safetensors.numpy as s; t = s.load_file('" + file_ +
      "'); h = t['lm_head.weight']; n = t['norm.weight']; assert h.shape == (10, 12) and n.shape == (12,); "
      "assert [float(x) for x in h.flatten()] == [float(i + 1) for i in range(120)]\"";
  EXPECT_EQ(std::system(program.c_str()), 0);
}

}  // namespace
}  // namespace muster::store
