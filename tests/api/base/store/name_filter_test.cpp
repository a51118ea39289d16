#include "api/base/store/name_filter.hpp"

#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace muster::store {
namespace {

using ::testing::HasSubstr;
using Names = std::vector<std::string>;

const Names kNames{"block0.key", "block0.value", "block1.key", "head", "norm"};

std::string refusal(const Names& only, const Names& exclude, const Names& names = kNames) {
  const Status status = NameFilter{only, exclude}.check(names, "run/step-1");
  EXPECT_TRUE(status.ok() || status.code() == Code::kNotFound);
  return status.message();
}

TEST(NameFilter, TakesWhatFitsAndIsNotExcluded) {
  const Names only{"block*", "head"}, exclude{"*.value"};
  const NameFilter filter{only, exclude};
  EXPECT_TRUE(filter.takes("block0.key"));
  EXPECT_TRUE(filter.takes("head"));
  EXPECT_FALSE(filter.takes("block0.value"));
  EXPECT_FALSE(filter.takes("norm"));
  EXPECT_TRUE(NameFilter{}.takes("norm"));
}

TEST(NameFilter, NamesThePatternThatFitsNothingAndSomeNamesThatThereAre) {
  EXPECT_EQ(refusal({"block*"}, {"head"}), "");
  EXPECT_EQ(refusal({"block*", "blok*"}, {}),
            "no tensor of run/step-1 fits --only \"blok*\"; it has \"block0.key\", \"block0.value\", "
            "\"block1.key\" and 2 more");
  EXPECT_THAT(refusal({}, {"nrom"}), HasSubstr("fits --exclude \"nrom\"; it has"));
  EXPECT_EQ(refusal({"x"}, {}, {"a", "b"}), "no tensor of run/step-1 fits --only \"x\"; it has \"a\", \"b\"");
  EXPECT_EQ(refusal({"x"}, {}, {}), "no tensor of run/step-1 fits --only \"x\"; it has no tensors");
  EXPECT_THAT(refusal({"\x1b"}, {}), HasSubstr("--only \"?\""));
}

TEST(NameFilter, RefusesPatternsThatTogetherLeaveNothing) {
  EXPECT_THAT(refusal({"head"}, {"h*"}), HasSubstr("--only and --exclude leave no tensor of run/step-1"));
  EXPECT_THAT(refusal({}, {"*"}), HasSubstr("leave no tensor"));
  EXPECT_EQ(refusal({}, {}, {}), "") << "what has no tensors loses none";
}

}  // namespace
}  // namespace muster::store
