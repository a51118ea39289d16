#include "tests/history/allowed.hpp"

#include <gtest/gtest.h>

namespace muster::test {
namespace {

constexpr Nanos kDeadline = std::chrono::milliseconds(100);
constexpr const char* kDied = "rank 1 (pid 7) died";
constexpr std::uint32_t kLane = 2;

// Two groups that have rank 1 in common.
class AllowedCauses : public ::testing::Test {
 protected:
  AllowedCauses() : allowed_({{"left", {0, 1}}, {"right", {1, 2}}}, kDeadline) {
    for (std::uint32_t rank = 0; rank < 3; ++rank) allowed_.attached(rank, 0, 1);
  }
  std::size_t run(std::uint32_t rank, std::uint32_t group, std::size_t step = 0) {
    Attempt attempt;
    attempt.rank = rank;
    attempt.step = step;
    attempt.place.group = group;
    attempt.begun = ++turn_;
    return allowed_.begun(attempt);
  }
  std::size_t start(std::uint32_t rank, std::uint32_t group) {
    Attempt attempt;
    attempt.rank = rank;
    attempt.place = {MeetingPlace::Kind::kLane, group, kLane, 0};
    attempt.lane = kLane;
    attempt.begun = ++turn_;
    return allowed_.begun(attempt);
  }
  void strike(muster_status_t code, const std::string& text, std::uint32_t group) {
    ++turn_;
    allowed_.strikes({code, {text}, {group}, true, true, turn_, turn_});
  }
  bool may_hear(std::size_t attempt, muster_status_t code, const std::string& text, Nanos after = Nanos(0)) {
    return allowed_.hears(attempt, code, text, Instant(after), ++turn_).empty();
  }

  Allowed allowed_;
  Turn turn_ = 1;
};

TEST_F(AllowedCauses, AreThoseThatStruckTheGroup) {
  strike(MUSTER_ERR_PEER_LOST, kDied, 0);
  EXPECT_TRUE(may_hear(run(0, 0), MUSTER_ERR_PEER_LOST, kDied));
  EXPECT_FALSE(may_hear(run(0, 0), MUSTER_ERR_ABORTED, kDied)) << "another code";
  EXPECT_FALSE(may_hear(run(0, 0), MUSTER_ERR_PEER_LOST, "rank 2 (pid 8) died"));
  EXPECT_FALSE(may_hear(run(2, 1), MUSTER_ERR_PEER_LOST, kDied)) << "another group";
}

TEST_F(AllowedCauses, AreToldOnce) {
  strike(MUSTER_ERR_PEER_LOST, kDied, 0);
  EXPECT_TRUE(may_hear(run(0, 0), MUSTER_ERR_PEER_LOST, kDied));
  EXPECT_FALSE(may_hear(run(0, 0), MUSTER_ERR_PEER_LOST, kDied));
}

TEST_F(AllowedCauses, PassAlongALaneToOtherGroups) {
  const std::size_t dropped = start(1, 0);
  start(1, 1);
  const std::size_t behind = start(2, 1);
  strike(MUSTER_ERR_ABORTED, "aborted", 0);
  EXPECT_TRUE(may_hear(behind, MUSTER_ERR_ABORTED, "aborted"));
  EXPECT_TRUE(may_hear(dropped, MUSTER_ERR_ABORTED, "aborted"));
}

TEST_F(AllowedCauses, AreNotThoseBeforeTheMemberAttached) {
  strike(MUSTER_ERR_ABORTED, "aborted", 0);
  allowed_.attached(0, 0, ++turn_);
  EXPECT_FALSE(may_hear(run(0, 0), MUSTER_ERR_ABORTED, "aborted"));
}

TEST_F(AllowedCauses, AreDeadlinesThatHavePassed) {
  constexpr const char* kLate = "group left: all_reduce passed its deadline";
  const std::size_t waiting = run(0, 0);
  EXPECT_FALSE(may_hear(waiting, MUSTER_ERR_TIMEOUT, kLate, kDeadline / 2));
  EXPECT_TRUE(may_hear(waiting, MUSTER_ERR_TIMEOUT, kLate, kDeadline));
}

TEST_F(AllowedCauses, AreMismatchesOfMembersThatWereApart) {
  constexpr const char* kDiffer = "group left: ranks disagree on count";
  const std::size_t one = run(0, 0, 3);
  run(1, 0, 3);
  EXPECT_FALSE(may_hear(one, MUSTER_ERR_MISMATCH, kDiffer));
  const std::size_t another = run(0, 0, 4);
  EXPECT_TRUE(may_hear(another, MUSTER_ERR_MISMATCH, kDiffer));
}

}  // namespace
}  // namespace muster::test
