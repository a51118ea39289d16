// StackRank: one rank's part of a stack, forward and backward, by the C API.
//
// A convolution reads an array that holds the rank's own items and its ghosts; the layer before it writes the
// own items there. Gradients of results are fetched where pads are zeros; where pads repeat items, gradients
// of ghosts return. Statistics of a norm are gathered on the SMALL lane. Gradients of all parameters lie end
// to end, and one all-reduce adds up those of the ranks.
#pragma once

#include "api/examples/training/program.hpp"
#include "tests/bench/domain/stack.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include <muster/field_kernels.h>
#include <muster/halo.h>

namespace muster::bench::domain {

struct DestroyStencil {
  void operator()(muster_stencil* stencil) const { muster_stencil_destroy(stencil); }
};
struct DestroyLayout {
  void operator()(muster_layout* layout) const { muster_layout_destroy(layout); }
};
struct DestroyHalos {
  void operator()(muster_halos* halos) const { muster_halos_destroy(halos); }
};
using StencilHandle = std::unique_ptr<muster_stencil, DestroyStencil>;
using LayoutHandle = std::unique_ptr<muster_layout, DestroyLayout>;
using HalosHandle = std::unique_ptr<muster_halos, DestroyHalos>;

// Owns    the halos and the recorded step; buffers and plans are the session's.
// Thread  one. All ranks make the same calls.
// Bound   own items and ghosts of each layer.
// Fails   with RuntimeError.
class StackRank {
 public:
  // Both outlive it.
  StackRank(training::Runtime& runtime, const Stack& stack);
  StackRank(const StackRank&) = delete;
  StackRank& operator=(const StackRank&) = delete;

  void step();  // forward and backward, until the end

  double mean() const;
  std::span<const float> y() const { return values_of(fields_.back()); }
  std::span<const float> dx() const { return values_of(gradients_.front()); }
  std::span<const float> parameter_gradients() const { return values_of(parameter_gradients_); }

 private:
  // A layer at this rank. A norm has no arrays with ghosts.
  struct Place {
    LayoutHandle items;
    StencilHandle stencil, back;
    muster_halo_info part = MUSTER_HALO_INFO_INIT, back_part = MUSTER_HALO_INFO_INIT;
    muster_tensor held{}, held_gradient{};  // of items; of results, or of items if gradients return
    muster_tensor weight{}, weight_gradient{}, shift{}, shift_gradient{};
    muster_tensor statistics{}, all_statistics{}, merged{}, sums{};
    muster_halo halo = 0;
  };
  muster_tensor tensor(muster_dtype dtype, const std::vector<std::int64_t>& shape);
  std::span<float> values_of(const muster_tensor& tensor) const;
  void make_stencil(const StackLayer& layer, Place& place);
  void allocate_parameters();
  void allocate_fields();
  void make_halo(std::size_t index);
  void record_norm(std::size_t index);
  void record_mean();
  void record_norm_back(std::size_t index);
  void record_convolution_back(std::size_t index);
  training::Program::Call halo_call(muster_halo halo, bool back);

  training::Runtime& runtime_;
  const Stack& stack_;
  muster_group world_;
  HalosHandle halos_;
  std::deque<Place> places_;
  // Own items of the field before each layer, and of the result; and their gradients.
  std::vector<muster_tensor> fields_, gradients_;
  muster_tensor parameters_{}, parameter_gradients_{}, weights_{}, weighted_{}, mean_sum_{};
  training::Program program_;
  training::Mark mean_reduced_, gradients_reduced_;
};

}  // namespace muster::bench::domain
