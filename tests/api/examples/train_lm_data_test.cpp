#include "api/examples/train_lm/text.hpp"

#include "api/examples/training/output.hpp"
#include "api/examples/training/random.hpp"
#include "tests/support/folder.hpp"

#include <cmath>
#include <filesystem>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace train_lm {

using namespace training;

namespace {

using ::testing::HasSubstr;

class TextFile : public testing::Test {
 protected:
  std::filesystem::path write(const std::string& name, const std::string& bytes) const {
    return own_.write(name, bytes);
  }

  const muster::test::Folder own_;
  const std::filesystem::path folder_ = own_.path();
};

std::string why(const std::string& path, std::int64_t context) {
  try {
    Text::load(path, context);
  } catch (const UsageError& error) {
    return error.what();
  }
  return "(no error)";
}

TEST(CounterRandom, DependsOnSeedStreamAndIndexAlone) {
  const CounterRandom a(1, "head");
  EXPECT_EQ(a.bits(5), CounterRandom(1, "head").bits(5));
  std::set<std::uint64_t> seen;
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    for (const char* stream : {"", "a", "b", "ab", "ba"})
      for (std::uint64_t index = 0; index < 8; ++index) seen.insert(CounterRandom(seed, stream).bits(index));
  EXPECT_EQ(seen.size(), 8u * 5u * 8u);
}

TEST(CounterRandom, NormalHasItsMoments) {
  const CounterRandom random(3, "moments");
  constexpr int kCount = 100000;
  double sum = 0, squares = 0, fourths = 0;
  for (std::uint64_t i = 0; i < kCount; ++i) {
    const double x = random.normal(i);
    ASSERT_TRUE(std::isfinite(x));
    sum += x;
    squares += x * x;
    fourths += x * x * x * x;
  }
  EXPECT_NEAR(sum / kCount, 0.0, 0.015);
  EXPECT_NEAR(squares / kCount, 1.0, 0.02);
  EXPECT_NEAR(fourths / kCount, 3.0, 0.15);
}

TEST(Text, TakesSequencesBySeedStepAndRow) {
  std::string bytes;
  for (int i = 0; i < 1000; ++i) bytes.push_back(static_cast<char>(i * 37 % 251));
  const Text text(bytes, 16);
  std::set<const char*> starts;
  for (std::int64_t step = 0; step < 5; ++step)
    for (std::int64_t row = 0; row < 4; ++row) {
      const auto sequence = text.sequence(1, step, 4, row);
      ASSERT_EQ(sequence.size(), 17u);
      EXPECT_EQ(sequence.data(), text.sequence(1, step, 4, row).data());
      starts.insert(sequence.data());
    }
  EXPECT_GT(starts.size(), 15u);
  EXPECT_NE(text.sequence(1, 0, 4, 0).data(), text.sequence(2, 0, 4, 0).data());
  EXPECT_EQ(text.prompt().size(), 16u);
}

TEST_F(TextFile, OfJustOneSequenceIsEnough) {
  const Text text = Text::load(write("exact.txt", "abcde"), 4);
  const auto sequence = text.sequence(1, 0, 1, 0);
  EXPECT_EQ(std::string(sequence.begin(), sequence.end()), "abcde");
}

TEST_F(TextFile, IsRefusedWhereNothingCanBeLearnt) {
  EXPECT_THAT(why("/no/such/file", 4), HasSubstr("/no/such/file cannot be opened: No such file"));
  EXPECT_THAT(why(folder_, 4), HasSubstr("is a folder"));
  EXPECT_THAT(why(write("empty.txt", ""), 4), HasSubstr("is empty; name a file with --text"));
  EXPECT_THAT(why(write("short.txt", "abcd"), 4), HasSubstr("has 4 bytes; --context 4 needs at least 5"));
}

TEST_F(TextFile, IsARegularFileOfBoundedSize) {
  EXPECT_THAT(why("/dev/zero", 4), HasSubstr("/dev/zero is not a regular file"));
  const std::filesystem::path large = write("large.txt", "");
  std::filesystem::resize_file(large, (std::uintmax_t{1} << 30) + 1);  // a hole
  EXPECT_THAT(why(large, 4), HasSubstr("has 1073741825 bytes"));
  EXPECT_THAT(why(large, 4), HasSubstr("at most 1073741824"));
}

TEST_F(TextFile, AnOutputIsCheckedWithoutLeavingOrHarmingAFile) {
  const auto refusal = [](const std::string& path) -> std::string {
    try {
      check_writable(path);
    } catch (const OutputError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(folder_ / "new"), "");
  EXPECT_FALSE(std::filesystem::exists(folder_ / "new"));
  const std::filesystem::path old = write("old", "kept");
  EXPECT_EQ(refusal(old), "");
  EXPECT_EQ(std::filesystem::file_size(old), 4u);
  EXPECT_EQ(refusal("/nonexistent/file"),
            "cannot write /nonexistent/file: there is no folder /nonexistent; make it first, or name another "
            "place");
  EXPECT_EQ(refusal(old / "file"),
            "cannot write " + (old / "file").string() + ": a part of its path is a file; name another place");
  EXPECT_EQ(refusal(folder_), "cannot write " + folder_.string() + ": it is a folder; name a file");
  EXPECT_EQ(refusal("/dev/null"), "cannot write /dev/null: it is not a regular file; name another");
}

TEST_F(TextFile, AFolderForCheckpointsIsNoFile) {
  const auto refusal = [](const std::string& path) -> std::string {
    try {
      check_folder(path);
    } catch (const OutputError& error) {
      return error.what();
    }
    return "";
  };
  const std::string file = write("file", "");
  const std::string link = folder_ / "link";
  std::filesystem::create_symlink("nowhere", link);
  EXPECT_EQ(refusal(folder_ / "made"), "");
  EXPECT_EQ(refusal(file), "cannot write " + file + ": it is a file; name a folder");
  EXPECT_EQ(refusal(file + "/x"),
            "cannot write " + file + "/x: a part of its path is a file; name another place");
  EXPECT_EQ(refusal(link), "cannot write " + link + ": it is a link to nothing; remove it");
}

}  // namespace
}  // namespace train_lm
