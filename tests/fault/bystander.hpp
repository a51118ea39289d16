// Two ranks of an innocent job who reduce and check every result while others misbehave.
#pragma once

#include "tests/support/node.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace muster::test {

// Owns    two sessions, each on a thread of its own, from construction to stop().
// Thread  the test's.
// Bound   -
// Fails   a failed or wrong operation fails the test.
class Bystanders {
 public:
  static constexpr std::uint64_t kCount = 4096;

  explicit Bystanders(const Node& node, const char* job = "bystander") {
    for (int rank = 0; rank < 2; ++rank)
      threads_.emplace_back([this, &node, job, rank] { reduce(node, job, rank); });
  }
  ~Bystanders() { stop(); }
  Bystanders(const Bystanders&) = delete;
  Bystanders& operator=(const Bystanders&) = delete;

  // Each rank has done so many more operations since now.
  void await(std::uint64_t operations) const {
    const std::uint64_t until = done_[0].load() + operations;
    while (done_[0].load() < until && !failed_.load())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::uint64_t stop() {
    stopping_ = true;
    for (auto& thread : threads_)
      if (thread.joinable()) thread.join();
    return done_[0];
  }
  // The slowest of 99 in 100 operations, in microseconds.
  std::int64_t p99_us() {
    std::sort(times_.begin(), times_.end());
    return times_.empty() ? 0 : times_[times_.size() * 99 / 100];
  }

 private:
  void reduce(const Node& node, const char* job, int rank) {
    const muster_open_options options = node.rank(job, rank, 2);
    muster_session* session = nullptr;
    ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    muster_buffer buffer = 0;
    void* address = nullptr;
    ASSERT_EQ(muster_buffer_alloc(session, 2 * kCount * sizeof(float), &buffer, &address), MUSTER_OK);
    muster_group group = 0;
    ASSERT_EQ(muster_mesh_group(session, "world", &group), MUSTER_OK) << muster_last_error();
    muster_collective what = MUSTER_COLLECTIVE_INIT;
    what.op = MUSTER_ALL_REDUCE;
    what.dtype = MUSTER_F32;
    what.redop = MUSTER_SUM;
    what.group = group;
    what.source = {buffer, 0};
    what.target = {buffer, kCount * sizeof(float)};
    what.count = kCount;
    muster_plan plan = 0;
    ASSERT_EQ(muster_plan_collective(session, &what, &plan), MUSTER_OK) << muster_last_error();
    auto* values = static_cast<float*>(address);
    for (bool last = false; !last;) {
      // The stop is agreed on in the vector itself: both see it in the same sum.
      const auto round = static_cast<float>(done_[rank].load() % 1000);
      std::fill_n(values, kCount, round + static_cast<float>(rank));
      values[kCount - 1] = stopping_.load() ? 1.0f : 0.0f;
      const auto begin = std::chrono::steady_clock::now();
      muster_submit submit = MUSTER_SUBMIT_INIT;
      submit.lane = MUSTER_LANE_ALLREDUCE;
      muster_point point = 0;
      const bool well = muster_plan_start(session, plan, &submit, &point) == MUSTER_OK &&
                        muster_point_wait(session, point, -1) == MUSTER_OK;
      if (!well) {
        failed_ = true;
        ADD_FAILURE() << "rank " << rank << ": " << muster_last_error();
        break;
      }
      const auto spent = std::chrono::steady_clock::now() - begin;
      if (rank == 0) times_.push_back(std::chrono::duration_cast<std::chrono::microseconds>(spent).count());
      for (std::uint64_t i = 0; i + 1 < kCount; ++i) {
        if (values[kCount + i] == 2 * round + 1) continue;
        ADD_FAILURE() << "rank " << rank << ", element " << i << ": " << values[kCount + i];
        break;
      }
      last = values[2 * kCount - 1] > 0.0f;
      ++done_[rank];
    }
    EXPECT_EQ(muster_close(session), MUSTER_OK);
  }

  std::atomic<std::uint64_t> done_[2] = {0, 0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::vector<std::int64_t> times_;
  std::vector<std::thread> threads_;
};

}  // namespace muster::test
