// Ranks whose sessions are in check mode.
#pragma once

#include "tests/api/client/ok.hpp"
#include "tests/api/client/running_ranks.hpp"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <string>

#include <gmock/gmock.h>
#include <muster/kernels.h>
#include <sys/wait.h>

namespace muster::test {

class CheckedRanks : public RunningRanks {
 protected:
  void SetUp() override {
    ::setenv("MUSTER_CHECK", "1", 1);
    RunningRanks::SetUp();
  }
  void TearDown() override { ::unsetenv("MUSTER_CHECK"); }
};

// For EXPECT_EXIT: the child ended by its fault, or by a sanitizer that was told of it.
inline bool ended_by_a_fault(int status) {
  return WIFSIGNALED(status) || WEXITSTATUS(status) != 0;
}

inline muster_submit after(std::initializer_list<muster_point> points, muster_lane lane) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = lane;
  for (const muster_point point : points)
    if (point != MUSTER_POINT_NONE) submit.waits[submit.wait_count++] = point;
  return submit;
}

inline muster_tensor floats(const Vector& v, std::int64_t count, std::uint64_t first = 0) {
  return muster_view1(v.buffer, first * sizeof(float), MUSTER_F32, count);
}

// A collective that ends once all ranks have started it: until then it is in flight at who has.
inline muster_point start(Member& member, const muster_collective& c, const muster_submit& submit) {
  muster_point point = MUSTER_POINT_NONE;
  ok(muster_collect(member.session, &c, &submit, &point));
  return point;
}

inline muster_point launch(Member& member, const muster_kernel& kernel, const muster_submit& submit) {
  muster_point point = MUSTER_POINT_NONE;
  ok(muster_launch(member.session, &kernel, &submit, &point));
  return point;
}

}  // namespace muster::test
