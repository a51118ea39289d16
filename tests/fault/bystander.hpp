// Two ranks of an innocent job who reduce and check every result while others misbehave.
#pragma once

#include "tests/support/all_reduce.hpp"
#include "tests/support/contract.hpp"
#include "tests/support/node.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
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
  enum Path { kStart, kRun, kPaths };
  struct Options {
    const char* job = "bystander";
    std::uint64_t count = 4096;
    muster_lane lane = MUSTER_LANE_ALLREDUCE;
    bool runs = false;                   // they run each operation too
    std::chrono::milliseconds pause{0};  // before each round, as there is between the steps of a training
  };

  explicit Bystanders(const Node& node) : Bystanders(node, Options{}) {}
  Bystanders(const Node& node, const Options& options) : options_(options) {
    for (int rank = 0; rank < 2; ++rank) threads_.emplace_back([this, &node, rank] { reduce(node, rank); });
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
  // In nanoseconds, after stop(): the time that so large a part of the operations stayed below, of those
  // beside a storm or of the others.
  double quantile(bool stormy, Path path, double of) {
    auto& times = times_[stormy ? 1 : 0][path];
    if (times.empty()) return 0;
    std::sort(times.begin(), times.end());
    return static_cast<double>(times[static_cast<std::size_t>(static_cast<double>(times.size() - 1) * of)]);
  }
  // Prints what a storm did to both paths, and holds their p99 to what is promised of it.
  void expect_undisturbed(double promised_ratio, const char* what) {
    const double run = ratio(kRun, 0.99);
    const double started = ratio(kStart, 0.99);
    for (const double measured : {run, started}) expect_promised(measured, promised_ratio, what);
  }
  // The same quantile beside a storm to that without one, both of which there must be; printed.
  double ratio(Path path, double of) {
    const double quiet = quantile(false, path, of);
    const double stormy = quantile(true, path, of);
    EXPECT_GT(quiet, 0.0) << "nothing was done without a storm";
    EXPECT_GT(stormy, 0.0) << "nothing was done beside the storm";
    std::printf("an all-reduce of two ranks, %s, p%.0f: %.1f us, beside the storm %.1f us, ratio %.2f\n",
                path == kRun ? "run" : "started", of * 100, quiet / 1e3, stormy / 1e3, stormy / quiet);
    return stormy / quiet;
  }

  std::atomic<bool> storm{false};  // for a test to say

 private:
  using Steady = std::chrono::steady_clock;
  static constexpr float kUnwritten = -1.0f;  // no sum is

  void reduce(const Node& node, int rank) {
    const muster_open_options options = node.rank(options_.job, rank, 2);
    muster_session* session = nullptr;
    ASSERT_EQ(muster_open(&options, &session), MUSTER_OK) << muster_last_error();
    const AllReduce sum(session, options_.count, 0, AllReduce::Place::kApart);
    const std::uint64_t last = options_.count - 1;
    for (bool ended = false; !ended && !failed_.load();) {
      if (options_.pause.count() > 0) std::this_thread::sleep_for(options_.pause);
      // The stop is agreed on in the vector itself: both see it in the same sum.
      const auto round = static_cast<float>(done_[rank].load() % 1000);
      std::fill_n(sum.source, options_.count, round + static_cast<float>(rank));
      sum.source[last] = stopping_.load() ? 1.0f : 0.0f;
      const bool well =
          operate(sum, rank, kStart, round) && (!options_.runs || operate(sum, rank, kRun, round));
      if (!well) break;
      ended = sum.target[last] > 0.0f;
      ++done_[rank];
    }
    EXPECT_EQ(muster_close(session), MUSTER_OK);
  }
  bool operate(const AllReduce& sum, int rank, Path path, float round) {
    // What the operation before has left is the same numbers, so nothing of it may be there.
    std::fill_n(sum.target, options_.count, kUnwritten);
    const bool stormy = storm;
    const auto begin = Steady::now();
    const muster_status_t status =
        path == kRun ? muster_plan_run(sum.session, sum.plan, 0) : sum.start_and_wait(options_.lane);
    const auto spent = std::chrono::duration_cast<std::chrono::nanoseconds>(Steady::now() - begin).count();
    if (status != MUSTER_OK) {
      failed_ = true;
      ADD_FAILURE() << "rank " << rank << ": " << muster_last_error();
      return false;
    }
    if (rank == 0 && stormy == storm) times_[stormy ? 1 : 0][path].push_back(spent);
    for (std::uint64_t i = 0; i + 1 < options_.count; ++i) {
      if (sum.target[i] == 2 * round + 1) continue;
      ADD_FAILURE() << "rank " << rank << ", element " << i << ": " << sum.target[i];
      break;
    }
    return true;
  }

  Options options_;
  std::atomic<std::uint64_t> done_[2] = {0, 0};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::array<std::array<std::vector<std::int64_t>, kPaths>, 2> times_;  // by storm and path
  std::vector<std::thread> threads_;
};

}  // namespace muster::test
