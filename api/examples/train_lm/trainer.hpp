// Trainer: the step loop in two halves. submit() puts a whole step on the lanes and returns; collect() waits
// for its loss. With one step in between, the host prepares a batch while the lanes still compute.
#pragma once

#include "api/examples/train_lm/model.hpp"
#include "api/examples/train_lm/text.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace train_lm {

struct StepResult {
  float loss = 0.0F;
  float gradient_norm = 0.0F;  // before clipping
};

// Owns    units, activations and the recorded step of one layout.
// Thread  one. All ranks of the layout make the same calls.
// Bound   two steps in flight: submit(n + 2) needs collect(n).
// Fails   with RuntimeError.
class Trainer {
 public:
  Trainer(Runtime& runtime, const Layout& layout, const Options& options, const Text& text);

  void submit(std::int64_t step);
  StepResult collect(std::int64_t step);

  // Writes the gradient of the step just collected: a line for each parameter, with the box that this rank
  // owns.
  void dump_gradients(const std::string& path) const;

  std::span<Unit> units() { return units_; }
  Workspace& workspace() { return *workspace_; }
  std::size_t commands_per_step() const {
    return step_.size() + pages_[0].load.size() + pages_[0].store.size();
  }

 private:
  // Memory that the host and one step exchange. The host fills one page while the other's step runs.
  struct Page {
    explicit Page(Runtime& runtime) : load(runtime), store(runtime) {}
    Buffer ids, targets;  // I32, a token each
    Buffer schedule;      // {learning-rate multiplier, step}
    Buffer results;       // {loss, gradient norm}
    Program load, store;
    muster_point done = MUSTER_POINT_NONE;
  };
  void record_step();
  void record_page(Page& page);
  Page& page(std::int64_t step) { return pages_[static_cast<std::size_t>(step) % pages_.size()]; }
  double learning_rate_multiplier(std::int64_t step) const;

  Runtime& runtime_;
  Layout layout_;
  const Options& options_;
  const Text& text_;
  std::unique_ptr<Workspace> workspace_;
  std::vector<Unit> units_;
  std::unique_ptr<Model> model_;
  Buffer state_;  // F32 {learning-rate multiplier, step, clip coefficient, gradient norm}: AdamW reads three
  Buffer square_sum_;  // F64
  Program step_;
  std::vector<Page> pages_;
};

}  // namespace train_lm
