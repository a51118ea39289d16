// Trainer: the step loop in two halves, and the judgement. submit() puts a whole step on the lanes and
// returns; collect() waits for its loss. Meanwhile the host reads the next samples.
#pragma once

#include "api/examples/training/optimiser.hpp"
#include "api/examples/winds/scatter.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

namespace winds {

using training::Buffer;
using training::Optimiser;
using training::Program;
using training::Runtime;
using training::Units;

// How near winds are to the truth, as root mean squares by area, in m/s. A wind's number: u of each level,
// from the upper one down, then v.
struct Judgement {
  std::array<double, kWinds> result{}, climatology{};
  // Poleward of 8 degrees, where the geostrophic wind is one.
  std::array<double, kWinds> result_outside{}, geostrophic{};
};

struct StepResult {
  float loss = 0.0F;
  float gradient_norm = 0.0F;  // before clipping
};

// The sharing of the job's mesh. UsageError: it has dims over which nothing is cut here, or not as --cut
// says.
Sharing sharing_of(Runtime& runtime, const Options& options);

// Owns    units, activations and the recorded step.
// Thread  one. All ranks of the mesh make the same calls.
// Bound   two steps in flight: submit(n + 2) needs collect(n).
// Fails   with RuntimeError.
class Trainer {
 public:
  // A default Sharing: this rank trains alone. All that is given outlives it.
  Trainer(Runtime& runtime, const Sharing& sharing, const Options& options, const Samples& samples);

  // `before_update`: as there is nothing in flight that changes weights or moments.
  void submit(std::int64_t step, const std::function<void()>& before_update = {});
  StepResult collect(std::int64_t step);

  // Errors in a month that was not learned. It leaves that month in the first page.
  Judgement judge(std::int64_t month);

  // After judge(): its truth or its result at an own point, in m/s.
  float truth(std::int64_t point, std::int64_t wind) const;
  float result(std::int64_t point, std::int64_t wind) const;

  const Model& model() const { return *model_; }
  Units& units() { return units_; }
  muster_point updated() const { return updated_; }  // weights may be read after it

 private:
  // Memory that the host and one step exchange. The host fills one page while the other's step runs.
  struct Page {
    explicit Page(Runtime& runtime) : load(runtime), store(runtime) {}
    Buffer inputs, truth, schedule, loss, norm;
    std::unique_ptr<Scatter> scatter;  // if one rank reads for all
    Program load, store;
    muster_point done = MUSTER_POINT_NONE;
  };
  void record();
  void record_page(Page& page);
  void fill(Page& page, const std::function<Sample(std::int64_t)>& sample);
  void begin();
  Page& page(std::int64_t step) { return pages_[static_cast<std::size_t>(step) % pages_.size()]; }
  std::int64_t batch() const { return local_ * sharing_.dp_size; }

  Runtime& runtime_;
  Sharing sharing_;
  const Options& options_;
  const Samples& samples_;
  std::int64_t local_;  // samples of a step on this rank
  Units units_;
  std::unique_ptr<Model> model_;  // from the first step on, when units have places
  Optimiser optimiser_;
  muster_point updated_ = MUSTER_POINT_NONE;
  std::vector<Page> pages_;
};

}  // namespace winds
