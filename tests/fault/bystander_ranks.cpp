// Two ranks of an innocent job that reduce and check every result:
//
//   bystander_ranks ENDPOINT JOB COUNT LANE RUNS OPERATIONS PAUSE_MS CORE
//
//   RUNS        1: each operation is run too, beside started
//   OPERATIONS  in a round on each path, whose mean is one time: whoever comes second to an operation does
//   not
//               wait, so that of two ranks on one core the times of single operations are of two kinds
//   PAUSE_MS    before each round
//   CORE        on which both stay; -1: any
//
// A program of its own, because what others do to the memory of one process its threads feel. Says `ready`
// after the first round, and then answers each line that it is told, or `failed` and why:
//
//   storm 0|1          from now on times are of a storm or not        ok
//   await N            both have done so many more rounds             ok
//   stop               both have left                                 rounds
//   quantile 0|1 P Q   of the rounds without or in a storm; P: 0      nanoseconds, rounds
//                      started, 1 run
#include "tests/support/all_reduce.hpp"
#include "tests/support/cores.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <muster/muster.h>

namespace muster::test {
namespace {

using Steady = std::chrono::steady_clock;

enum Path { kStart, kRun, kPaths };  // as bystander.hpp has them

class Ranks {
 public:
  explicit Ranks(char** words)
      : endpoint_(words[1]),
        job_(words[2]),
        count_(std::stoull(words[3])),
        lane_(static_cast<muster_lane>(std::stoi(words[4]))),
        runs_(std::string(words[5]) == "1"),
        operations_(std::stoi(words[6])),
        pause_(std::stoi(words[7])),
        core_(std::stoi(words[8])) {
    for (int rank = 0; rank < 2; ++rank) threads_.emplace_back([this, rank] { reduce(rank); });
  }
  ~Ranks() { stop(); }
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;

  void storm(bool on) { storm_ = on; }
  void await(std::uint64_t rounds) const {
    const std::uint64_t until = done_[0].load() + rounds;
    while ((done_[0].load() < until || done_[1].load() < until) && !failed_.load())
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  std::uint64_t stop() {
    stopping_ = true;
    for (auto& thread : threads_)
      if (thread.joinable()) thread.join();
    return done_[0];
  }
  // After stop().
  std::string quantile(bool stormy, int path, double of) {
    auto& times = times_[stormy ? 1 : 0].at(static_cast<std::size_t>(path));
    if (times.empty()) return "0 0";
    std::sort(times.begin(), times.end());
    const auto at = static_cast<std::size_t>(static_cast<double>(times.size() - 1) * of);
    return std::to_string(times[at]) + " " + std::to_string(times.size());
  }
  bool failed() const { return failed_; }
  std::string why() {
    const std::lock_guard<std::mutex> held(why_mutex_);
    return why_;
  }

 private:
  static constexpr float kUnwritten = -1.0f;  // no sum is

  void reduce(int rank) {
    if (core_ >= 0) keep_to({core_});
    muster_open_options options = MUSTER_OPEN_OPTIONS_INIT;
    options.endpoint = endpoint_.c_str();
    options.timeout_ns = 20'000'000'000;
    options.job = job_.c_str();
    options.rank = rank;
    options.world_size = 2;
    muster_session* session = nullptr;
    if (muster_open(&options, &session) != MUSTER_OK) return fail(rank, muster_last_error());
    const AllReduce sum(session, count_, 0, AllReduce::Place::kApart);
    const std::uint64_t last = count_ - 1;
    for (bool ended = false; !ended && !failed_.load();) {
      if (pause_.count() > 0) std::this_thread::sleep_for(pause_);
      // The stop is agreed on in the vector itself: both see it in the same sum.
      const auto round = static_cast<float>(done_[rank].load() % 1000);
      std::fill_n(sum.source, count_, round + static_cast<float>(rank));
      sum.source[last] = stopping_.load() ? 1.0f : 0.0f;
      if (!work(sum, rank, kStart, round)) break;
      if (runs_ && !work(sum, rank, kRun, round)) break;
      ended = sum.target[last] > 0.0f;
      ++done_[rank];
    }
    if (muster_close(session) != MUSTER_OK) fail(rank, muster_last_error());
  }
  bool work(const AllReduce& sum, int rank, Path path, float round) {
    const bool stormy = storm_;
    Steady::duration spent{0};
    for (int i = 0; i < operations_; ++i)
      if (!operate(sum, rank, path, round, spent)) return false;
    if (rank == 0 && stormy == storm_)
      times_[stormy ? 1 : 0][path].push_back(std::chrono::nanoseconds(spent).count() / operations_);
    return true;
  }
  bool operate(const AllReduce& sum, int rank, Path path, float round, Steady::duration& spent) {
    // The operation before left the same numbers, so they are overwritten here.
    std::fill_n(sum.target, count_, kUnwritten);
    const auto begin = Steady::now();
    const muster_status_t status =
        path == kRun ? muster_plan_run(sum.session, sum.plan, 0) : sum.start_and_wait(lane_);
    spent += Steady::now() - begin;
    if (status != MUSTER_OK) {
      fail(rank, muster_last_error());
      return false;
    }
    for (std::uint64_t i = 0; i + 1 < count_; ++i) {
      if (sum.target[i] == 2 * round + 1) continue;
      fail(rank, "element " + std::to_string(i) + " is " + std::to_string(sum.target[i]));
      return false;
    }
    return true;
  }
  void fail(int rank, const std::string& text) {
    const std::lock_guard<std::mutex> held(why_mutex_);
    if (!failed_.exchange(true)) why_ = "rank " + std::to_string(rank) + ": " + text;
  }

  std::string endpoint_, job_;
  std::uint64_t count_;
  muster_lane lane_;
  bool runs_;
  int operations_;
  std::chrono::milliseconds pause_;
  int core_;
  std::atomic<std::uint64_t> done_[2] = {0, 0};
  std::atomic<bool> storm_{false};
  std::atomic<bool> stopping_{false};
  std::atomic<bool> failed_{false};
  std::mutex why_mutex_;
  std::string why_;
  std::array<std::array<std::vector<std::int64_t>, kPaths>, 2> times_;  // by storm and path
  std::vector<std::thread> threads_;
};

std::string answer(Ranks& ranks, const std::string& line) {
  std::istringstream words(line);
  std::string command;
  std::uint64_t number = 0;
  words >> command >> number;
  std::string said = "ok";
  if (command == "storm") ranks.storm(number == 1);
  if (command == "await") ranks.await(number);
  if (command == "stop") said = std::to_string(ranks.stop());
  if (command == "quantile") {
    int path = 0;
    double of = 0;
    words >> path >> of;
    said = ranks.quantile(number == 1, path, of);
  }
  return ranks.failed() ? "failed " + ranks.why() : said;
}

}  // namespace
}  // namespace muster::test

int main(int words, char** word) {
  if (words != 9) return 2;
  muster::test::Ranks ranks(word);
  ranks.await(1);
  std::cout << (ranks.failed() ? "failed " + ranks.why() : "ready") << std::endl;
  for (std::string line; std::getline(std::cin, line);)
    std::cout << muster::test::answer(ranks, line) << std::endl;
  return ranks.failed() || testing::Test::HasFailure() ? 1 : 0;
}
