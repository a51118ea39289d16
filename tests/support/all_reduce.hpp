// A planned all-reduce with its memory, as many tests need one.
#pragma once

#include <cstdint>

#include <gtest/gtest.h>
#include <muster/muster.h>

namespace muster::test {

// Owns    nothing: plan and buffer end with the session.
// Thread  the session's.
// Bound   -
// Fails   a call that fails fails the test.
struct AllReduce {
  enum class Place { kInPlace, kApart };

  // A sum of `count` floats over the group; of the whole job if it is 0.
  AllReduce(muster_session* of, std::uint64_t count, muster_group group = 0, Place place = Place::kInPlace)
      : session(of) {
    const std::uint64_t bytes = count * sizeof(float);
    muster_buffer buffer = 0;
    void* address = nullptr;
    EXPECT_EQ(muster_buffer_alloc(session, place == Place::kApart ? 2 * bytes : bytes, &buffer, &address),
              MUSTER_OK)
        << muster_last_error();
    if (group == 0) {
      EXPECT_EQ(muster_mesh_group(session, "world", &group), MUSTER_OK) << muster_last_error();
    }
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = MUSTER_ALL_REDUCE;
    what.dtype = MUSTER_F32;
    what.redop = MUSTER_SUM;
    what.group = group;
    what.source = {buffer, 0};
    what.target = {buffer, place == Place::kApart ? bytes : 0};
    what.count = count;
    what.site = "script:1";  // where scripted_rank.cpp has its own
    EXPECT_EQ(muster_plan_collective(session, &what, &plan), MUSTER_OK) << muster_last_error();
    source = static_cast<float*>(address);
    target = source + (place == Place::kApart ? count : 0);
  }

  muster_status_t start(muster_lane lane, muster_point* point) const {
    muster_submit submit = MUSTER_SUBMIT_INIT;
    submit.lane = lane;
    return muster_plan_start(session, plan, &submit, point);
  }
  muster_status_t start_and_wait(muster_lane lane, std::int64_t timeout_ns = -1) const {
    muster_point point = 0;
    const muster_status_t started = start(lane, &point);
    return started == MUSTER_OK ? muster_point_wait(session, point, timeout_ns) : started;
  }

  muster_session* session = nullptr;
  muster_plan plan = 0;
  float* source = nullptr;
  float* target = nullptr;
};

}  // namespace muster::test
