// Fields from files and of vortices, and the samples that are made of them.
#include "api/examples/training/errors.hpp"
#include "api/examples/winds/field.hpp"
#include "api/examples/winds/samples.hpp"
#include "tests/api/examples/npy_file.hpp"
#include "tests/support/folder.hpp"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace winds {
namespace {

using test::NpyFile;
using ::testing::AllOf;
using ::testing::HasSubstr;

class WindsField : public ::testing::Test {
 protected:
  std::string path() const { return folder_.path() + "/field.npy"; }
  std::string refusal() const {
    try {
      open_field(path());
    } catch (const training::UsageError& error) {
      return error.what();
    }
    return "";
  }
  muster::test::Folder folder_;
};

TEST_F(WindsField, ReadsRowsOfAFile) {
  const NpyFile file;
  file.write(path());
  const auto field = open_field(path());
  EXPECT_EQ(field->grid().months, 2);
  EXPECT_EQ(field->grid().rows, 33);
  std::vector<float> row(48);
  field->row(1, 7, 30, row);
  for (std::int64_t column = 0; column < 48; ++column)
    EXPECT_EQ(row[static_cast<std::size_t>(column)], file.value(1, 7, 30, column));
}

// Goal:   each file that cannot be a field is refused by its name, with what is wrong.
TEST_F(WindsField, RefusesOthersByName) {
  EXPECT_THAT(refusal(), AllOf(HasSubstr(path()), HasSubstr("No such file")));
  folder_.write("field.npy", "no field at all");
  EXPECT_THAT(refusal(), AllOf(HasSubstr(path()), HasSubstr("no .npy file")));
  NpyFile file;
  for (const std::string shape :
       {"(2, 9, 33)", "(2, 8, 33, 48)", "(1, 9, 33, 48)", "(2, 9, 3, 528)", "(33, 9, 2, 48)",
        "(999999999999, 9, 999999999999, 999999999999)", "()", "(2 9 33 48)", "(2, 9, 33, 4a8)",
        "(99999999999999999999, 9, 33, 48)", "(2, 9, 33, -48)"}) {
    file.shape = shape;
    file.write(path());
    EXPECT_THAT(refusal(), AllOf(HasSubstr(path()), HasSubstr("shape"))) << shape;
  }
  file = {};
  file.type = "'<f8'";
  file.write(path());
  EXPECT_THAT(refusal(), HasSubstr("float32"));
  file = {};
  file.order = "True";
  file.write(path());
  EXPECT_THAT(refusal(), HasSubstr("C order"));
  file = {};
  std::vector<float> values = file.values();
  values.pop_back();
  file.write(path(), values);
  EXPECT_THAT(refusal(), HasSubstr("is cut off"));
  values = file.values();
  values[static_cast<std::size_t>(((1 * 9 + 2) * 33 + 4) * 48 + 5)] = std::numeric_limits<float>::quiet_NaN();
  file.write(path(), values);
  EXPECT_THAT(refusal(), HasSubstr("not finite at [1, 2, 4, 5]"));
  folder_.write("field.npy", std::string("\x93NUMPY\x01\x00\xff\xff", 10) + "short");
  EXPECT_THAT(refusal(), HasSubstr("header"));
  file = {};
  file.shape = std::string(60'000, ' ') + "(2, 9, 33, 48)";
  file.write(path());
  EXPECT_THAT(refusal(), HasSubstr("header of"));
}

// Goal:   a sample is the month turned and mirrored, in scale, and any patch of it is a part of the whole.
TEST_F(WindsField, GivesPatchesOfTurnedAndMirroredSamples) {
  const NpyFile file;
  file.write(path());
  const auto field = open_field(path());
  const Samples samples(*field, 0, 3);
  const Patch all{0, 0, 33, 48}, patch{5, 40, 7, 8};
  std::vector<float> inputs(static_cast<std::size_t>(all.points() * kInputs)),
      winds(static_cast<std::size_t>(all.points() * kWinds));
  std::vector<float> some(static_cast<std::size_t>(patch.points() * kInputs)),
      some_winds(static_cast<std::size_t>(patch.points() * kWinds));
  Sample turned, mirrored, two;
  turned.copies[0].turn = 45;
  mirrored = {.month = 1, .copies = {Sample::Copy{0.75, 13, true}, Sample::Copy{}}};
  two.copies[1] = {-0.25, 7, true};
  two.lift = {0.5, 0.25, 0.0};
  for (const Sample& sample : {Sample{}, turned, mirrored, two}) {
    samples.read(sample, all, inputs.data(), winds.data());
    samples.read(sample, patch, some.data(), some_winds.data());
    for (std::int64_t row = 0; row < patch.rows; ++row)
      for (std::int64_t column = 0; column < patch.columns; ++column) {
        const std::int64_t whole = (row + patch.row) * 48 + column + patch.column,
                           part = row * patch.columns + column;
        for (std::int64_t i = 0; i < kInputs; ++i)
          ASSERT_EQ(some[static_cast<std::size_t>(part * kInputs + i)],
                    inputs[static_cast<std::size_t>(whole * kInputs + i)]);
        for (std::int64_t i = 0; i < kWinds; ++i)
          ASSERT_EQ(some_winds[static_cast<std::size_t>(part * kWinds + i)],
                    winds[static_cast<std::size_t>(whole * kWinds + i)]);
        for (const std::int64_t wind : {0, 4}) {
          double expected = 0.0;
          for (const Sample::Copy& copy : sample.copies) {
            const std::int64_t from = copy.mirrored ? 32 - row - patch.row : row + patch.row;
            expected += (copy.mirrored && wind >= 3 ? -copy.weight : copy.weight) *
                        static_cast<double>(
                            file.value(sample.month, wind, from, (column + patch.column + copy.turn) % 48));
          }
          const auto said = static_cast<double>(some_winds[static_cast<std::size_t>(part * kWinds + wind)]);
          ASSERT_NEAR(said * samples.wind_scale(wind), expected, 1e-3);
        }
      }
  }
}

TEST_F(WindsField, DrawsSamplesAlikeOnAllRanks) {
  const auto field = make_vortices(1);
  const Samples one(*field, 0, 3), other(*field, 0, 3), another(*field, 0, 4);
  bool differ = false;
  for (std::int64_t step = 0; step < 20; ++step) {
    const Sample a = one.draw(step, 2, 1), b = other.draw(step, 2, 1);
    EXPECT_EQ(a.copies[1].turn, b.copies[1].turn);
    EXPECT_EQ(a.lift, b.lift);
    differ = differ || another.draw(step, 2, 1).copies[0].turn != a.copies[0].turn;
  }
  EXPECT_TRUE(differ);
}

// Goal:   the winds of vortices are in balance with their geopotential, away from the equator.
TEST_F(WindsField, MakesVorticesInBalance) {
  const auto field = make_vortices(5);
  const Grid grid = field->grid();
  std::vector<float> above(static_cast<std::size_t>(grid.columns)), below = above, wind = above;
  field->row(0, 6, 22, above);
  field->row(0, 6, 24, below);
  field->row(0, 0, 23, wind);
  const double distance = 6.371e6 * (grid.latitude(22) - grid.latitude(24));
  const double f = 2.0 * 7.292e-5 * std::sin(grid.latitude(23));
  double error = 0.0, size = 0.0;
  for (std::size_t i = 0; i < wind.size(); ++i) {
    const double balanced = -(static_cast<double>(above[i]) - static_cast<double>(below[i])) / distance / f;
    error += std::pow(balanced - static_cast<double>(wind[i]), 2);
    size += std::pow(static_cast<double>(wind[i]), 2);
  }
  EXPECT_LT(error, size);  // f changes with latitude, and the stream function with it
}

}  // namespace
}  // namespace winds
