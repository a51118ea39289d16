#include "api/base/result.hpp"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

namespace muster {
namespace {

Status refuse_above(int value, int bound) {
  if (value > bound) return failure(Code::kNoResource, "{} is above {}", value, bound);
  return {};
}

Result<int> half(int value) {
  if (value % 2 != 0) return fail(Code::kBadArgument, "{} is odd", value);
  return value / 2;
}

Status through_status(int value, int* reached) {
  MUSTER_RETURN_IF_ERROR(refuse_above(value, 10));
  *reached = value;
  return {};
}

template<class T>
Result<T> through_result(int value, T result) {
  MUSTER_RETURN_IF_ERROR(refuse_above(value, 10));
  return result;
}

Result<int> quarter(int value) {
  MUSTER_ASSIGN_OR_RETURN(const int once, half(value));
  MUSTER_ASSIGN_OR_RETURN(const int twice, half(once));
  return twice;
}

Status quarter_into(int value, int* target) {
  MUSTER_ASSIGN_OR_RETURN(*target, quarter(value));
  return {};
}

Result<std::unique_ptr<int>> boxed(int value) {
  MUSTER_RETURN_IF_ERROR(refuse_above(value, 10));
  return std::make_unique<int>(value);
}

Result<int> unboxed(int value) {
  MUSTER_ASSIGN_OR_RETURN(const std::unique_ptr<int> box, boxed(value));
  return *box;
}

Result<void> nothing(int value) {
  MUSTER_RETURN_IF_ERROR(refuse_above(value, 10));
  return {};
}

TEST(Result, GoesOnAfterSuccess) {
  int reached = 0;
  EXPECT_TRUE(through_status(3, &reached).ok());
  EXPECT_EQ(reached, 3);
  EXPECT_EQ(quarter(12).value(), 3);
  EXPECT_TRUE(nothing(1).has_value());
}

TEST(Result, PassesAFailureUpWithItsSentence) {
  int reached = 0;
  const Status status = through_status(11, &reached);
  EXPECT_EQ(status.text(), "MUSTER_ERR_NO_RESOURCE: 11 is above 10");
  EXPECT_EQ(reached, 0);

  const Result<int> odd = quarter(6);  // 6 -> 3, which is odd: the second macro of one function
  ASSERT_FALSE(odd.has_value());
  EXPECT_EQ(odd.error().text(), "MUSTER_ERR_BAD_ARGUMENT: 3 is odd");
}

// Goal: one macro serves functions that return Status and Result of any type, text and containers included.
TEST(Result, TurnsAStatusIntoAnyResult) {
  EXPECT_EQ(through_result<std::string>(11, "").error().code(), Code::kNoResource);
  EXPECT_EQ(through_result<std::vector<int>>(11, {}).error().code(), Code::kNoResource);
  EXPECT_EQ(through_result<bool>(11, true).error().code(), Code::kNoResource);
  EXPECT_EQ(nothing(11).error().code(), Code::kNoResource);
  EXPECT_EQ(through_result<std::string>(1, "kept").value(), "kept");
}

TEST(Result, AssignsToWhatExists) {
  int target = -1;
  EXPECT_TRUE(quarter_into(20, &target).ok());
  EXPECT_EQ(target, 5);
  EXPECT_EQ(quarter_into(7, &target).code(), Code::kBadArgument);
  EXPECT_EQ(target, 5);
}

TEST(Result, MovesValuesThatCannotBeCopied) {
  EXPECT_EQ(unboxed(4).value(), 4);
  EXPECT_EQ(unboxed(40).error().code(), Code::kNoResource);
}

TEST(Result, WrapsAReadyStatus) {
  const Result<int> wrapped = fail(failure(Code::kStale, "gone"));
  EXPECT_EQ(wrapped.error().text(), "MUSTER_ERR_STALE: gone");
}

// Goal:   the macro is one statement, so that an if without braces means what it says.
TEST(Result, ReturnsOnlyFromTheBranchTaken) {
  const auto run = [](bool check) -> Status {
    if (check)
      MUSTER_RETURN_IF_ERROR(refuse_above(11, 10));
    else
      return failure(Code::kState, "not checked");
    return {};
  };
  EXPECT_EQ(run(true).code(), Code::kNoResource);
  EXPECT_EQ(run(false).code(), Code::kState);
}

}  // namespace
}  // namespace muster
