#include "tests/bench/sweep.hpp"

#include "tests/bench/measure.hpp"
#include "tests/bench/resident.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <thread>

namespace muster::bench {
namespace {

constexpr std::size_t kPeriod = 7;
constexpr std::size_t kPattern = kPeriod * 4096;             // elements
constexpr std::size_t kCheckedWhole = std::size_t{1} << 18;  // elements; longer vectors in steps
constexpr std::size_t kStep = 61;                            // prime, so that all places are met
constexpr std::size_t kGrowsFrom = std::size_t{1} << 20;     // bytes; time goes by the size from here on
constexpr std::size_t kFirstUseBytesMax = std::size_t{64} << 10;
constexpr std::size_t kOverlapBytesMin = std::size_t{64} << 10;
constexpr std::size_t kOverlapBytesMax = std::size_t{16} << 20;
constexpr int kOverlapTurns = 15;
constexpr int kProbe = 4;  // units of work
constexpr double kUnitsMax = 400.0;
constexpr int kSleeps = 15;
constexpr std::chrono::milliseconds kSleep{3};  // longer than anybody looks around before it sleeps

// Small whole numbers: every order of summation gives the same sum.
float value(int rank, std::size_t index) {
  return static_cast<float>(rank + 1) + static_cast<float>(index % kPeriod);
}
float sum(int ranks, std::size_t index) {
  return static_cast<float>(ranks * (ranks + 1) / 2) +
         static_cast<float>(ranks) * static_cast<float>(index % kPeriod);
}

void fill(std::span<float> source, int rank) {
  const std::size_t first = std::min(source.size(), kPattern);
  for (std::size_t i = 0; i < first; ++i) source[i] = value(rank, i);
  for (std::size_t done = first; done < source.size(); done += first)
    std::memcpy(&source[done], source.data(), std::min(first, source.size() - done) * sizeof(float));
}

// Calls look(index) for what is checked of [0, count): all, or many and the last.
template<class Look>
void visit(std::size_t count, Look look) {
  const std::size_t step = count <= kCheckedWhole ? 1 : kStep;
  for (std::size_t i = 0; i < count; i += step) look(i);
  if (count > 0) look(count - 1);
}

// One rank's walk through the cells.
class Sweep {
 public:
  Sweep(Contender& contender, const Cells& cells)
      : contender_(contender), cells_(cells), measure_(contender, cells.effort) {}

  // Whether all results were right.
  bool run() {
    print_version(contender_);
    if (cells_.wants("memory")) measure_memory();  // first: later cells leave large vectors behind
    for (const Operation operation : all_operations())
      if (cells_.wants(name_of(operation))) measure_operation(operation);
    if (cells_.wants("first_use")) measure_first_use();
    if (cells_.wants("wake")) measure_wake();
    if (cells_.wants("group")) measure_group();
    if (cells_.wants("overlap")) measure_overlap("overlap", true, 1.0);
    if (cells_.wants("overlap_free")) measure_overlap_free();
    return all_right_;
  }

 private:
  Shape shape(Operation operation, std::size_t bytes) const {
    return shape_of(operation, bytes, contender_.rank(), contender_.ranks());
  }

  void measure_operation(Operation operation) {
    if (operation == Operation::kBarrier) {
      print_row(contender_, cells_, name_of(operation), 0, measure_.timing([&] { contender_.barrier(); }));
      return;
    }
    double least = 0.0;  // seconds of the smallest vector: what does not grow with the size
    double last = 0.0;
    std::size_t last_bytes = 0;
    for (const std::size_t bytes : cells_.sizes) {
      const Shape what = shape(operation, bytes);
      if (what.bytes() == last_bytes) continue;  // both too small for one element each
      const double growth = static_cast<double>(what.bytes()) / static_cast<double>(last_bytes);
      const double expected = last_bytes < kGrowsFrom ? 0.0 : least + (last - least) * growth;
      if (expected > cells_.effort.patience) {
        leave_out(what, expected);
        return;
      }
      const auto prepared = operation == Operation::kAllGatherShared ? contender_.prepare_shared(what)
                                                                     : contender_.prepare(what);
      if (!prepared || !prepared->run) return;
      const auto first = seconds_if_right(what, *prepared);
      if (!first) continue;
      const Timing timing = measure_.timing(prepared->run, times_in_a_run(operation), *first);
      print_row(contender_, cells_, name_of(operation), what.bytes(), timing);
      last = timing.median_us * 1e-6;
      last_bytes = what.bytes();
      if (least == 0.0) least = last;
    }
  }

  void leave_out(const Shape& what, double expected) const {
    std::array<char, 160> why{};
    std::snprintf(why.data(), why.size(), "from %zu bytes on: one would take about %.1f s", what.bytes(),
                  expected);
    print_left_out(contender_, cells_, name_of(what.operation), why.data());
  }

  // One run on known values, and what it needed. All ranks agree on the verdict, so that none is left waiting
  // for another.
  std::optional<double> seconds_if_right(const Shape& what, const Prepared& prepared) {
    const std::vector<Expected> parts = expected_of(what);
    if (prepared.in_place) {
      std::fill(prepared.source.begin(), prepared.source.end(), -1.0f);
      contender_.barrier();
    } else {
      for (const Expected& part : parts)
        visit(part.count, [&](std::size_t i) { prepared.target[part.begin + i] = -1.0f; });
    }
    fill(prepared.source, contender_.rank());
    const double seconds = measure_.once(prepared.run);
    if (prepared.fetch) prepared.fetch();
    const bool good = std::all_of(parts.begin(), parts.end(), [&](const Expected& part) {
      return is_as_expected(what, part, prepared.target);
    });
    if (contender_.maximum(good ? 0.0 : 1.0) == 0.0) return seconds;
    print_left_out(contender_, cells_, name_of(what.operation),
                   "the result of " + std::to_string(what.bytes()) + " bytes is wrong");
    all_right_ = false;
    return std::nullopt;
  }

  bool is_as_expected(const Shape& what, const Expected& part, std::span<const float> target) const {
    bool good = true;
    visit(part.count, [&](std::size_t i) {
      const std::size_t from = part.base + i;
      const float want = part.owner == Expected::kSum ? sum(what.ranks, from) : value(part.owner, from);
      const float got = target[part.begin + i];
      if (got != want && good)
        std::fprintf(stderr, "%s: %s of %zu bytes is wrong on rank %d: element %zu is %g instead of %g\n",
                     contender_.name(), name_of(what.operation), what.bytes(), what.rank, part.begin + i,
                     static_cast<double>(got), static_cast<double>(want));
      good = good && got == want;
    });
    return good;
  }

  // From an operation's description to its first result: a plan that is made, then run once.
  void measure_first_use() {
    std::size_t bytes = cells_.sizes.front();
    for (const std::size_t size : cells_.sizes)
      if (size <= kFirstUseBytesMax) bytes = size;
    const Shape what = shape(Operation::kAllReduce, bytes);
    const auto drop = [&] { contender_.prepare(shape(Operation::kAllReduce, sizeof(float))); };
    const Timing timing = measure_.timing_of_first(drop, [&] { contender_.prepare(what).run(); });
    print_row(contender_, cells_, "first_use", what.bytes(), timing);
  }

  // All but rank 0 wait in a barrier; from its arrival to the return of the last of them.
  void measure_wake() {
    std::vector<double> seconds;
    for (int i = 0; i < kSleeps; ++i) {
      double came = 0.0;
      double left = 0.0;
      contender_.barrier();
      if (contender_.rank() == 0) {
        std::this_thread::sleep_for(kSleep);
        came = now();
        contender_.barrier();
      } else {
        contender_.barrier();
        left = now();
      }
      const double start = contender_.maximum(came);
      seconds.push_back(contender_.maximum(left) - start);
    }
    print_row(contender_, cells_, "wake", 0, timing_of(std::move(seconds)));
  }

  void measure_group() {
    if (!contender_.make_group()) return;
    const Timing timing =
        measure_.timing_of_first([&] { contender_.forget_group(); }, [&] { contender_.make_group(); });
    contender_.forget_group();
    print_row(contender_, cells_, "group", 0, timing);
  }

  // The part of the shorter of the two that disappears behind the other when both are started together. A
  // rank without work waits for the all-reduce alone. Work takes `share` times as long as the all-reduce
  // alone. The three take turns. Each turn gives its own figure, because the machine changes over time.
  void measure_overlap(const char* figure, bool works, double share) {
    const std::size_t bytes = std::min(kOverlapBytesMax, cells_.sizes.back());
    if (bytes < kOverlapBytesMin) return;  // nothing that could be hidden
    const std::optional<Overlap> overlap = contender_.prepare_overlap(bytes);
    if (!overlap) return;
    const auto compute = [&](int units) {
      if (works) overlap->compute(units);
    };
    // The number of units that take as long as the all-reduce, computed from runs of `probe` units.
    const auto units_for = [&](int probe) {
      std::vector<double> lengths;
      for (int turn = 0; turn < kOverlapTurns; ++turn) {
        const double communication = measure_.once(overlap->communicate);
        lengths.push_back(communication * probe / measure_.once([&] { compute(probe); }));
      }
      return static_cast<int>(std::clamp(std::round(share * median_of(lengths)), 1.0, kUnitsMax));
    };
    overlap->communicate();
    compute(1);
    // Twice: a unit takes longer where there are few, beginning and end of the wait included.
    const int units = units_for(units_for(kProbe));
    std::vector<double> hidden;
    for (int turn = 0; turn < kOverlapTurns; ++turn) {
      const double communication = measure_.once(overlap->communicate);
      const double computation = measure_.once([&] { compute(units); });
      const double together = measure_.once([&] { overlap->both(works ? units : 0); });
      hidden.push_back((communication + computation - together) / std::min(communication, computation));
    }
    print_figure(contender_, cells_, figure, 100.0 * median_of(std::move(hidden)), "%");
  }

  // The all-reduce alone has all cores; beside work it has one less, and where it needs a core's time rather
  // than memory's it takes that much longer: no scheduler hides it behind less work.
  void measure_overlap_free() {
    const double cores = std::max(2U, std::thread::hardware_concurrency());
    measure_overlap("overlap_free", contender_.rank() == 0, cores / (cores - 1.0));
  }

  // The memory of all processes of the run, once they have met and reduced something.
  void measure_memory() {
    const Prepared prepared = contender_.prepare(shape(Operation::kAllReduce, kFirstUseBytesMax));
    prepared.run();
    contender_.barrier();
    if (contender_.rank() == 0)
      print_figure(contender_, cells_, "memory", resident_mib_below(cells_.root_pid), "MiB");
    contender_.barrier();
  }

  Contender& contender_;
  const Cells& cells_;
  Measure measure_;
  bool all_right_ = true;
};

}  // namespace

bool sweep(Contender& contender, const Cells& cells) {
  return Sweep(contender, cells).run();
}

}  // namespace muster::bench
