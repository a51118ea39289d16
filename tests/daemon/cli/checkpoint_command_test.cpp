// `muster checkpoint`, through the program.
#include "tests/api/base/store/made.hpp"
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

}  // namespace
}  // namespace muster::test
