// Trainer: the step loop in two halves. submit() puts a whole step on the lanes and returns; collect() waits
// for its loss. With one step in between, the host prepares a batch while the lanes still compute.
#pragma once

#include "api/examples/train_lm/model.hpp"
#include "api/examples/train_lm/text.hpp"
#include "api/examples/training/optimiser.hpp"

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace train_lm {

using training::Buffer;
using training::Optimiser;
using training::Program;
using training::Runtime;
using training::Units;

struct StepResult {
  float loss = 0.0F;
  float gradient_norm = 0.0F;  // before clipping
};

// Owns    units, activations and the recorded step of one mesh.
// Thread  one. All ranks of the mesh make the same calls.
// Bound   two steps in flight: submit(n + 2) needs collect(n).
// Fails   with RuntimeError.
class Trainer {
 public:
  // sharded: over the mesh, of which `mesh` tells; else this rank trains alone.
  Trainer(Runtime& runtime, const Mesh& mesh, const Options& options, const Text& text, bool sharded);

  // `before_update` is called while lanes run the step's forward and backward, and before the optimiser is
  // submitted: until it returns, weights and moments are those of the step before.
  void submit(std::int64_t step, const std::function<void()>& before_update = {});
  StepResult collect(std::int64_t step);

  // Writes the gradient of the step just collected: a line for each parameter, with the box that this rank
  // owns.
  void dump_gradients(const std::string& path) const;

  Units& units() { return units_; }
  muster_point updated() const { return updated_; }  // weights may be read after it

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
  void record();
  void record_page(Page& page);
  muster_tensor tokens(const Buffer& buffer) const {  // of a page
    return muster_view1(buffer.handle, 0, MUSTER_I32, model_->ids().size[0]);
  }
  void draw_batch(Page& page, std::int64_t step) const;
  void compare_batches(const Page& page, std::int64_t step);
  Page& page(std::int64_t step) { return pages_[static_cast<std::size_t>(step) % pages_.size()]; }

  Runtime& runtime_;
  Mesh mesh_;
  const Options& options_;
  const Text& text_;
  Units units_;
  std::unique_ptr<Model> model_;  // from the first step on, when units have places
  Optimiser optimiser_;
  muster_point updated_ = MUSTER_POINT_NONE;
  std::vector<Page> pages_;
  bool has_compared_ = false;  // a batch with those of the other ranks along tp
};

// The mesh of the job. UsageError: it has dims over which the model is not cut.
Mesh mesh_of(Runtime& runtime);

}  // namespace train_lm
