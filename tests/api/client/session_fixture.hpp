// Sessions of one node or two: real supervisors, real engines, several ranks in this process.
#pragma once

#include "tests/api/client/of_one_node.hpp"
#include "tests/support/nodes.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>
#include <muster/kernels.h>
#include <muster/muster.h>

namespace muster::test {

class Session : public ::testing::Test {
 protected:
  void SetUp() override {
    if (const char* why = node_.several() ? why_of_one_node() : nullptr) GTEST_SKIP() << why;
    node_.start();
  }
  void TearDown() override {
    for (muster_session* session : open_) muster_close(session);
  }
  muster_session* open(int rank, int world, const char* job = "job", const char* mesh = nullptr) {
    const muster_open_options options = node_.rank(job, rank, world, mesh);
    muster_session* session = nullptr;
    EXPECT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    if (session != nullptr) open_.push_back(session);
    return session;
  }
  std::vector<muster_session*> open_all(int world, const char* mesh = nullptr) {
    std::vector<muster_session*> sessions;
    for (int rank = 0; rank < world; ++rank) sessions.push_back(open(rank, world, "job", mesh));
    return sessions;
  }
  void close(muster_session* session) {
    open_.erase(std::find(open_.begin(), open_.end(), session));
    EXPECT_EQ(muster_close(session), MUSTER_OK);
  }

  Nodes node_;
  std::vector<muster_session*> open_;
};

// A buffer of floats, as its rank sees it.
struct Vector {
  muster_buffer buffer = 0;
  float* data = nullptr;
};
inline Vector vector_of(muster_session* session, std::size_t count) {
  Vector v;
  void* address = nullptr;
  EXPECT_EQ(muster_buffer_alloc(session, count * sizeof(float), &v.buffer, &address), MUSTER_OK)
      << muster_last_error();
  v.data = static_cast<float*>(address);
  return v;
}
inline muster_collective all_reduce(muster_group group, const Vector& v, std::uint64_t count) {
  muster_collective c = MUSTER_COLLECTIVE_INIT;
  c.op = MUSTER_ALL_REDUCE;
  c.group = group;
  c.dtype = MUSTER_F32;
  c.redop = MUSTER_SUM;
  c.source = c.target = {v.buffer, 0};
  c.count = count;
  return c;
}
// Fills the first `count` elements with 1.
inline muster_kernel fill_of(const Vector& v, std::int64_t count) {
  return muster_fill(muster_view1(v.buffer, 0, MUSTER_F32, count), 1.0);
}
inline muster_plan plan_of(muster_session* session, const muster_kernel& kernel) {
  muster_plan plan = 0;
  EXPECT_EQ(muster_plan_kernel(session, &kernel, &plan), MUSTER_OK) << muster_last_error();
  return plan;
}
inline std::uint32_t timeline_of(muster_session* session) {
  std::uint32_t timeline = 0;
  EXPECT_EQ(muster_timeline_create(session, &timeline), MUSTER_OK) << muster_last_error();
  return timeline;
}
inline muster_submit on(muster_lane lane) {
  muster_submit submit = MUSTER_SUBMIT_INIT;
  submit.lane = lane;
  return submit;
}
inline muster_group group_of(muster_session* session, const char* dim) {
  muster_group group = 0;
  EXPECT_EQ(muster_mesh_group(session, dim, &group), MUSTER_OK) << muster_last_error();
  return group;
}

}  // namespace muster::test
