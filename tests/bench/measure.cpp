#include "tests/bench/measure.hpp"

#include <algorithm>
#include <chrono>

namespace muster::bench {
namespace {

constexpr double kRunsMax = 20'000.0;
constexpr double kMeetingSeconds = 0.02;  // to look at what meeting costs
constexpr int kMeetingsMax = 20;
constexpr int kLooks = 3;

}  // namespace

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

Measure::Measure(Contender& contender, const Effort& effort) : contender_(contender), effort_(effort) {
  contender_.barrier();
  double spent = 0.0;
  int meetings = 0;
  for (; meetings == 0 || (spent < kMeetingSeconds && meetings < kMeetingsMax); ++meetings) {
    const double start = now();
    contender_.barrier();
    spent += contender_.maximum(now() - start) * 2;
  }
  meeting_ = spent / meetings;
}

double Measure::once(const std::function<void()>& run, int runs) {
  contender_.barrier();
  const double start = now();
  for (int i = 0; i < runs; ++i) run();
  return contender_.maximum(now() - start) / runs;
}

int Measure::samples_within(double left, double each) const {
  return static_cast<int>(std::clamp(left / each, 1.0, static_cast<double>(effort_.samples)));
}

Timing Measure::timing(const std::function<void()>& run, int times, double first) {
  if (first >= effort_.limit) return timing_of({first / times});
  double best = once(run);
  double spent = first + best + meeting_;
  if (spent >= effort_.limit) return timing_of({best / times});
  for (int look = 0; look < kLooks && spent + 2 * best < effort_.seconds; ++look) {
    const double seen = once(run, 2);
    spent += 2 * seen + meeting_;
    best = std::min(best, seen);
  }
  const int runs = static_cast<int>(std::clamp(effort_.seconds / effort_.samples / best, 1.0, kRunsMax));
  const int samples = samples_within(effort_.limit - spent, runs * best + meeting_);
  std::vector<double> seconds;
  for (int i = 0; i < samples; ++i) seconds.push_back(once(run, runs) / times);
  return timing_of(std::move(seconds));
}

Timing Measure::timing_of_first(const std::function<void()>& before, const std::function<void()>& run) {
  std::vector<double> seconds;
  int samples = 1;
  for (int i = 0; i < samples; ++i) {
    before();
    seconds.push_back(once(run));
    if (i == 0) samples = samples_within(effort_.limit, seconds.front() + meeting_);
  }
  return timing_of(std::move(seconds));
}

}  // namespace muster::bench
