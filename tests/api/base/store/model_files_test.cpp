#include "api/base/store/model_files.hpp"

#include "api/base/checkpoint/encoding.hpp"
#include "tests/api/base/store/model.hpp"
#include "tests/support/folder.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::store {
namespace {

using test::kIndexName;
using test::model_file;
using test::model_index;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using ::testing::UnorderedElementsAre;
using Names = std::vector<std::string>;

class ModelFilesTest : public ::testing::Test {
 protected:
  void SetUp() override { test::write_model(folder_); }

  std::string at(const std::string& name) const { return folder_.path() + "/" + name; }
  static Result<ModelFiles> open(const Names& paths, const Names& only = {}, const Names& exclude = {}) {
    return ModelFiles::open(paths, {only, exclude});
  }
  static Names tensors(const Result<ModelFiles>& model) {
    Names names;
    EXPECT_TRUE(model) << model.error().message();
    if (model)
      for (const ModelFiles::File& file : model->files)
        for (const checkpoint::SavedTensor& tensor : file.tensors) names.push_back(tensor.name);
    return names;
  }
  Status refusal(const Names& names, const Names& only = {}, const Names& exclude = {}) const {
    Names paths;
    for (const std::string& name : names) paths.push_back(at(name));
    const auto model = open(paths, only, exclude);
    return model ? Status() : model.error();
  }
  std::string index_refusal(const std::map<std::string, std::string>& places) const {
    folder_.write(kIndexName, model_index(places));
    const Status status = refusal({kIndexName});
    return status.ok() ? "nothing" : status.message();
  }
  const test::Folder folder_;
};

TEST_F(ModelFilesTest, AreNamedByTheirIndexTheirFolderOrOneByOne) {
  for (const Names& paths :
       {Names{at(kIndexName)}, Names{folder_.path()}, Names{at("1.safetensors"), at("2.safetensors")}})
    EXPECT_THAT(tensors(open(paths)), ElementsAre("a", "c", "b"));
  EXPECT_THAT(tensors(open({at("2.safetensors")})), ElementsAre("b"));
}

// Goal:   a cache of models, where all files are links to files that are named by their hash.
TEST_F(ModelFilesTest, AreFoundBesideALinkToTheIndex) {
  const test::Folder cache;
  int hash = 0;
  for (const char* name : {"1.safetensors", "2.safetensors", kIndexName}) {
    const std::string blob = at("blob" + std::to_string(++hash));
    std::filesystem::rename(at(name), blob);
    std::filesystem::create_symlink(blob, cache.path() + "/" + name);
  }
  EXPECT_THAT(tensors(open({cache.path()})), ElementsAre("a", "c", "b"));
}

TEST_F(ModelFilesTest, AFolderNamesOneModel) {
  std::filesystem::copy(at(kIndexName), at("other.safetensors.index.json"));
  EXPECT_THAT(refusal({""}).message(), HasSubstr("has 2 indices, among them model.safetensors.index.json and "
                                                 "other.safetensors.index.json; name one of them"));
  std::filesystem::remove(at("other.safetensors.index.json"));
  std::filesystem::remove(at(kIndexName));
  EXPECT_THAT(refusal({""}).message(), HasSubstr("has 2 safetensors files and no index of them"));
  std::filesystem::remove(at("1.safetensors"));
  EXPECT_THAT(tensors(open({folder_.path()})), ElementsAre("b"));
  std::filesystem::remove(at("2.safetensors"));
  EXPECT_THAT(refusal({""}).message(), HasSubstr("has no index of a model (*.safetensors.index.json) and no "
                                                 "safetensors file"));
}

TEST_F(ModelFilesTest, RefusesPathsThatDoNotGoTogether) {
  EXPECT_THAT(refusal({"1.safetensors", kIndexName}).message(), HasSubstr("stands among several files"));
  EXPECT_THAT(refusal({"", "1.safetensors"}).message(), HasSubstr("stands among several files"));
  EXPECT_THAT(refusal({"1.safetensors", "1.safetensors"}).message(), HasSubstr("is named twice"));
  EXPECT_EQ(refusal({"none"}).code(), Code::kNotFound);
}

TEST_F(ModelFilesTest, RefusesATensorInTwoFiles) {
  folder_.write("2.safetensors", model_file({{"b", 2}, {"c", 4}}));
  const Status status = refusal({"1.safetensors", "2.safetensors"});
  EXPECT_EQ(status.code(), Code::kCorrupt);
  EXPECT_EQ(status.message(), fmt::format("tensor \"c\" is in {} and in {}; a model has each tensor once",
                                          at("1.safetensors"), at("2.safetensors")));
  EXPECT_THAT(refusal({kIndexName}).message(),
              HasSubstr("tensor \"c\" is in " + at("2.safetensors") + ", but "));
  EXPECT_TRUE(refusal({"1.safetensors", "2.safetensors"}, {}, {"c"}).ok());
}

TEST_F(ModelFilesTest, RefusesAnIndexThatDoesNotFitItsFiles) {
  const std::string one = "1.safetensors", two = "2.safetensors";
  EXPECT_EQ(index_refusal({{"a", one}, {"b", two}, {"c", one}}), "nothing");
  EXPECT_THAT(index_refusal({{"a", one}, {"b", two}, {"c", one}, {"d", "3.safetensors"}}),
              HasSubstr("names 3.safetensors, which is missing (cannot open "));
  EXPECT_THAT(index_refusal({{"a", one}, {"b", two}, {"c", one}, {"d", two}}),
              HasSubstr("places tensor \"d\" in 2.safetensors, which does not have it"));
  EXPECT_THAT(
      index_refusal({{"a", one}, {"b", two}, {"c", two}}),
      HasSubstr("tensor \"c\" is in " + at(one) + ", but " + at(kIndexName) + " places it in " + two));
  EXPECT_THAT(index_refusal({{"a", one}, {"b", two}}),
              HasSubstr("has tensor \"c\", which " + at(kIndexName) +
                        " does not know; leave it out with --exclude, or name the files"));
  EXPECT_TRUE(refusal({kIndexName}, {}, {"c"}).ok()) << "as the refusal says";
  EXPECT_TRUE(refusal({kIndexName}, {"a"}).ok());
  EXPECT_THAT(index_refusal({{"a", "../" + one}}), HasSubstr("no name of a file beside the index"));
  folder_.write(kIndexName, R"({"architectures":["x"]})");
  EXPECT_THAT(refusal({kIndexName}).message(),
              HasSubstr("is no index of safetensors files: it has no object"));
}

// Goal:   reading some tensors needs only the files that contain them.
TEST_F(ModelFilesTest, ReadsOnlyFilesOfWhichSomethingIsWanted) {
  std::filesystem::remove(at("2.safetensors"));
  EXPECT_EQ(refusal({kIndexName}).code(), Code::kNotFound);
  const auto model = open({at(kIndexName)}, {"a", "c"}, {"c"});
  EXPECT_THAT(tensors(model), ElementsAre("a"));
  EXPECT_THAT(model->files, SizeIs(1));
  EXPECT_THAT(tensors(open({at(kIndexName)}, {}, {"b"})), ElementsAre("a", "c"));
}

TEST_F(ModelFilesTest, RefusesAPatternThatFitsNothing) {
  EXPECT_EQ(refusal({kIndexName}, {"x"}).message(),
            fmt::format("no tensor of {} fits --only \"x\"; it has \"a\", \"b\", \"c\"", at(kIndexName)));
  EXPECT_THAT(refusal({"1.safetensors", "2.safetensors"}, {}, {"x"}).message(),
              HasSubstr("no tensor of these files fits --exclude \"x\"; it has \"a\", \"b\", \"c\""));
  EXPECT_THAT(refusal({"2.safetensors"}, {"a"}).message(), HasSubstr(at("2.safetensors") + " fits --only"));
}

// ---- notes -------------------------------------------------------------------------------------

TEST_F(ModelFilesTest, HaveTheNotesOfAllFiles) {
  const auto model = open({at(kIndexName)});
  ASSERT_TRUE(model);
  EXPECT_THAT(model->notes, UnorderedElementsAre(std::pair("format", "pt"), std::pair("of", "1")));
  EXPECT_THAT(model->differences, IsEmpty());
}

TEST_F(ModelFilesTest, NameTheNotesInWhichTheyDiffer) {
  folder_.write("2.safetensors", model_file({{"b", 2}}, {{"format", "np"}, {"of", "2"}, {"more", "x"}}));
  folder_.write("3.safetensors", model_file({}, {{"of", "3"}}));
  const auto model = open({at("1.safetensors"), at("2.safetensors"), at("3.safetensors")});
  ASSERT_TRUE(model);
  EXPECT_THAT(model->notes,
              UnorderedElementsAre(std::pair("format", "pt"), std::pair("of", "1"), std::pair("more", "x")));
  EXPECT_THAT(
      model->differences,
      ElementsAre("\"format\" of __metadata__ is \"pt\" in 1.safetensors and \"np\" in 2.safetensors; "
                  "kept is the first",
                  "\"of\" of __metadata__ is \"1\" in 1.safetensors and \"2\" in 2.safetensors; kept is "
                  "the first"));
}

TEST_F(ModelFilesTest, TellFewAndShortDifferences) {
  test::ModelNotes first, second;
  for (int i = 0; i < 20; ++i) {
    first[std::to_string(i)] = std::string(5000, 'x');
    second[std::to_string(i)] = std::string(5000, 'y');
  }
  folder_.write("1.safetensors", model_file({}, first));
  folder_.write("2.safetensors", model_file({}, second));
  const auto model = open({at("1.safetensors"), at("2.safetensors")});
  ASSERT_TRUE(model);
  ASSERT_THAT(model->differences, SizeIs(8));
  EXPECT_LT(model->differences.front().size(), 250U);
}

TEST_F(ModelFilesTest, RefusesMoreNotesThanACheckpointKeeps) {
  const std::string half(checkpoint::kNotesBytesMax / 2, 'x');
  folder_.write("1.safetensors", model_file({}, {{"a", half}}));
  folder_.write("2.safetensors", model_file({}, {{"b", half}}));
  EXPECT_TRUE(refusal({"1.safetensors"}).ok());
  const Status status = refusal({"1.safetensors", "2.safetensors"});
  EXPECT_EQ(status.code(), Code::kUnsupported);
  EXPECT_THAT(status.message(), HasSubstr("__metadata__ has 8388610 bytes; at most 8388608 are possible"));
}

}  // namespace
}  // namespace muster::store
