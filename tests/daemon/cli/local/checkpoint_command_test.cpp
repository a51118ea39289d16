// `muster checkpoint`, through the program.
#include "tests/api/base/store/made.hpp"
#include "tests/api/base/store/model.hpp"
#include "tests/daemon/cli/program.hpp"
#include "tests/support/folder.hpp"

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::test {
namespace {

using ::testing::HasSubstr;

class CheckpointCommand : public ::testing::Test {
 protected:
  void SetUp() override {
    expect_ok(make_checkpoint(run_, "step-1", 1, {{"head", rows({10, 12}, 3), 1}}));
    expect_ok(
        make_checkpoint(run_, "step-2", 2, {{"head", rows({10, 12}, 3), 7}, {"norm", rows({12}, 1), 0}}));
  }
  const Folder folder_;
  const std::string run_ = folder_.path() + "/run";
};

TEST_F(CheckpointCommand, InspectsARunAndACheckpoint) {
  const Ran run = muster({"checkpoint", "inspect", run_, "--json"});
  ASSERT_EQ(run.code, 0) << run.err;
  EXPECT_EQ(run.json().at("checkpoints").size(), 2U);
  EXPECT_EQ(run.json().at("checkpoints")[1].at("step"), 2);
  EXPECT_THAT(muster({"checkpoint", "inspect", run_}).out, HasSubstr("step-1"));
  const Ran one = muster({"checkpoint", "inspect", run_ + "/step-2", "--json"});
  ASSERT_EQ(one.code, 0) << one.err;
  EXPECT_EQ(one.json().at("tensors")[0].at("shape"), Json({10, 12}));
  EXPECT_EQ(one.json().at("tensors")[0].at("boxes"), 3);
  EXPECT_THAT(muster({"checkpoint", "inspect", run_ + "/step-2"}).out, HasSubstr("[10, 12]"));
  EXPECT_EQ(muster({"checkpoint", "inspect", run_ + "/none"}).code, 4);
}

// Goal:   scripts see by the exit status that there is nothing to look at.
TEST_F(CheckpointCommand, InspectFailsWhereItCanReadNoCheckpoint) {
  const auto expect_none = [](const std::string& path, const std::string& text) {
    const Ran plain = muster({"checkpoint", "inspect", path});
    EXPECT_EQ(plain.code, 4);
    EXPECT_EQ(plain.out, "");
    EXPECT_THAT(plain.err, HasSubstr(text));
    const Ran json = muster({"checkpoint", "inspect", path, "--json"});
    EXPECT_EQ(json.code, 4);
    EXPECT_EQ(json.json().at("checkpoints").size(), 0U);
  };
  std::filesystem::create_directory(folder_.path() + "/empty");
  expect_none(folder_.path() + "/empty", "empty has no checkpoint\n");
  std::filesystem::remove(run_ + "/step-1/metadata.json");
  expect_none(run_ + "/step-1", "step-1 has no checkpoint\n");
  std::filesystem::resize_file(run_ + "/step-2/metadata.json", 20);
  expect_none(run_, run_ + " has no checkpoint that can be read\n");
}

// Goal:   a folder named as a file of the format hides no run.
TEST_F(CheckpointCommand, TakesNoNameOfTheFormat) {
  const std::string file = folder_.path() + "/m.safetensors", other = folder_.path() + "/other";
  ASSERT_EQ(muster({"checkpoint", "export", run_, "-o", file}).code, 0);
  for (const char* name : {"metadata.json", "rank-0.bin"}) {
    const Ran refused = muster({"checkpoint", "import", file, other, "--name", name});
    EXPECT_EQ(refused.code, 2) << name;
    EXPECT_THAT(refused.err, HasSubstr(std::string(name) + "\" is a file of a checkpoint"));
  }
  std::filesystem::rename(run_ + "/step-1", run_ + "/metadata.json");
  EXPECT_THAT(muster({"checkpoint", "inspect", run_}).out, HasSubstr("step-2"));
}

TEST_F(CheckpointCommand, VerifiesEachByte) {
  const Ran sound = muster({"checkpoint", "verify", run_});
  EXPECT_EQ(sound.code, 0) << sound.err;
  EXPECT_THAT(sound.out, HasSubstr("step-2: every byte is as it was saved"));
  std::filesystem::resize_file(run_ + "/step-1/rank-2.bin", 5);
  const Ran damaged = muster({"checkpoint", "verify", run_});
  EXPECT_EQ(damaged.code, 1);
  EXPECT_THAT(damaged.err, HasSubstr("tensor \"head\": " + run_ + "/step-1/rank-2.bin has 5 bytes"));
  EXPECT_EQ(muster({"checkpoint", "verify", run_ + "/step-2", "--json"}).json().at("sound").size(), 1U);
}

TEST_F(CheckpointCommand, ExportsAndImports) {
  const std::string file = folder_.path() + "/m.safetensors";
  const Ran exported = muster({"checkpoint", "export", run_, "-o", file, "--exclude", "norm"});
  ASSERT_EQ(exported.code, 0) << exported.err;
  EXPECT_THAT(exported.out, HasSubstr("step 2"));
  EXPECT_EQ(muster({"checkpoint", "export", run_, "-o", file}).code, 1) << "it is there already";
  const Ran imported = muster({"checkpoint", "import", file, folder_.path() + "/other", "--step", "9"});
  ASSERT_EQ(imported.code, 0) << imported.err;
  const Ran one = muster({"checkpoint", "inspect", folder_.path() + "/other/step-000000000009", "--json"});
  EXPECT_EQ(one.json().at("tensors").size(), 1U);
  EXPECT_EQ(muster({"checkpoint", "verify", folder_.path() + "/other"}).code, 0);
  EXPECT_EQ(muster({"checkpoint", "import", file, folder_.path() + "/other", "--name", "a/b"}).code, 2);
}

// Goal:   a model of several files is one checkpoint, whichever way it is named.
TEST_F(CheckpointCommand, ImportsAModelOfSeveralFiles) {
  const Folder model;
  write_model(model);
  const std::string one = model.path() + "/1.safetensors", two = model.path() + "/2.safetensors";
  const std::string index = model.path() + "/" + kIndexName;
  int number = 0;
  for (const std::vector<std::string>& names :
       {std::vector{index}, std::vector{model.path()}, std::vector{one, two}}) {
    const std::string made = folder_.path() + "/made" + std::to_string(++number);
    std::vector<std::string> words{"checkpoint", "import", "--step", "3"};
    words.insert(words.end(), names.begin(), names.end());
    words.insert(words.end(), {made, "--exclude", "c"});
    const Ran imported = muster(words);
    ASSERT_EQ(imported.code, 0) << imported.err;
    EXPECT_EQ(imported.out, "made " + made + "/step-000000000003 from 2 files: 2 tensors, 8 B\n");
    const Ran seen = muster({"checkpoint", "inspect", made + "/step-000000000003", "--json"});
    EXPECT_EQ(seen.json().at("tensors").size(), 2U);
    EXPECT_EQ(seen.json().at("notes"), Json({{"format", "pt"}, {"of", "1"}}));
  }
  EXPECT_THAT(muster({"checkpoint", "inspect", folder_.path() + "/made1/step-000000000003"}).out,
              HasSubstr("__metadata__: format, of\n"));
  const Ran json = muster({"checkpoint", "import", one, two, folder_.path() + "/json", "--json"});
  EXPECT_EQ(json.json().at("files"), 2);
  EXPECT_EQ(json.json().at("tensors"), 3);
  EXPECT_THAT(muster({"checkpoint", "import", one}).err, HasSubstr("folder is required"));
  EXPECT_EQ(muster({"checkpoint", "import"}).code, 2);
}

// Goal:   messages use the user's own words, and nothing stays of a refused import.
TEST_F(CheckpointCommand, ImportSaysWhatIsWrongAndWhatToDo) {
  const Folder model;
  write_model(model);
  model.write("other.safetensors", model_file({{"d", 4}}, {{"format", "np"}}));
  const std::string one = model.path() + "/1.safetensors", other = folder_.path() + "/other";
  const auto import = [&](std::vector<std::string> words) {
    words.insert(words.begin(), {"checkpoint", "import"});
    return muster(words);
  };
  const Ran pattern = import({one, other, "--only", "x*"});
  EXPECT_EQ(pattern.code, 4);
  EXPECT_EQ(pattern.err, "muster: no tensor of " + one + " fits --only \"x*\"; it has \"a\", \"c\"\n");
  EXPECT_FALSE(std::filesystem::exists(other));

  const Ran differ = import({one, model.path() + "/other.safetensors", other});
  EXPECT_EQ(differ.code, 0);
  EXPECT_EQ(differ.err,
            "muster: warning: \"format\" of __metadata__ is \"pt\" in 1.safetensors and \"np\" in "
            "other.safetensors; kept is the first\n");
  const Ran again = import({one, other});
  EXPECT_EQ(again.code, 1);
  EXPECT_EQ(again.err,
            "muster: there is " + other +
                "/step-000000000000 already; choose another name with --name or --step, or remove it\n");
  EXPECT_EQ(import({one, other, "--step", "1"}).code, 0);
}

// Goal:   patterns mean the same to an export.
TEST_F(CheckpointCommand, ExportNamesThePatternThatFitsNothing) {
  const std::string file = folder_.path() + "/m.safetensors";
  for (const char* option : {"--only", "--exclude"}) {
    const Ran refused = muster({"checkpoint", "export", run_, "-o", file, option, "haed"});
    EXPECT_EQ(refused.code, 4);
    EXPECT_EQ(refused.err, "muster: no tensor of " + run_ + "/step-2 fits " + option +
                               " \"haed\"; it has \"head\", \"norm\"\n");
  }
}

// Goal:   a place at which nothing can be written is told by the name that the user gave.
TEST_F(CheckpointCommand, SaysWhyAFileCannotBeWritten) {
  const std::string at = folder_.path() + "/";
  std::filesystem::create_symlink("nowhere", at + "link");
  folder_.write("file", "");
  const auto refused = [&](const std::string& file) {
    const Ran ran = muster({"checkpoint", "export", run_, "-o", file});
    EXPECT_EQ(ran.code, 1) << file;
    return ran.err;
  };
  EXPECT_EQ(refused(run_), "muster: -o: " + run_ + " is a folder; name a file, such as " + run_ + "/NAME\n");
  EXPECT_EQ(refused(at + "none/f"), "muster: -o: " + at + "none/f cannot be written: there is no folder " +
                                        at + "none; make it first, or name another place\n");
  EXPECT_THAT(refused(at + "link"), HasSubstr("-o: " + at + "link is a link to nowhere, which is not there"));
  EXPECT_THAT(refused(at + "file/f"), HasSubstr("-o: " + at + "file is a file, so nothing can be in it"));
  EXPECT_THAT(refused(at + "file"), HasSubstr("there is " + at + "file already; name another file"));
}

// Goal:   a file, or a link to nothing, in the place of a folder is told as what it is.
TEST_F(CheckpointCommand, SaysWhatStandsInThePlaceOfAFolder) {
  const std::string at = folder_.path() + "/";
  const std::string file = folder_.write("file", "");
  std::filesystem::create_symlink("nowhere", at + "link");
  for (const char* command : {"inspect", "verify"}) {
    const Ran ran = muster({"checkpoint", command, file});
    EXPECT_EQ(ran.code, 4);
    EXPECT_EQ(ran.err,
              "muster: " + file +
                  " is a file; a checkpoint is a folder that holds metadata.json, and the folder of a "
                  "run holds checkpoints\n");
  }
  EXPECT_THAT(muster({"checkpoint", "export", file, "-o", at + "f"}).err,
              HasSubstr("file is a file; a checkpoint"));
  EXPECT_THAT(muster({"checkpoint", "inspect", at + "link"}).err, HasSubstr("link is a link to nowhere"));
  EXPECT_THAT(muster({"checkpoint", "inspect", at + "none"}).err,
              HasSubstr("there is no folder " + at + "none"));
  const std::string model = at + "m.safetensors";
  ASSERT_EQ(muster({"checkpoint", "export", run_, "-o", model}).code, 0);
  const auto imported = [&](const std::string& from, const std::string& to) {
    return muster({"checkpoint", "import", from, to}).err;
  };
  EXPECT_THAT(imported(model, at + "link"),
              HasSubstr("link is a link to nowhere, which is not there; remove"));
  EXPECT_THAT(imported(model, file), HasSubstr(file + " is a file; name a folder"));
  EXPECT_THAT(imported(model, file + "/x"), HasSubstr(file + " is a file, so nothing can be in it"));
  EXPECT_THAT(imported(run_, at + "new"), HasSubstr(run_ + " has no index of a model"));
}

}  // namespace
}  // namespace muster::test
