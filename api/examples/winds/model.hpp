// Model: a U-Net over a field that is cut over the ranks of `domain`, forward and backward.
//
//   field -> enter --------------------------------------------- + -> fine -> leave -> winds
//              down ---------------- + -> middle -> narrow ... raised
//                deeper -> deep -> ... raised
//
// A layer is a 3x3 convolution, a group norm, and GELU. It reads an array that has the rank's own points and,
// around them, the ghosts that its windows read of other ranks, and across the date line. A halo of the
// library brings them while the points are computed that need none. Statistics of the norm are gathered over
// `domain` and merged in the order of ranks. Raising is an interpolation to exactly the rows of the layer
// whose input is added then, whatever ranks those are on.
//
// On the way back gradients of ghosts go home and are added there, while those of own points and of weights
// are computed. Gradients of weights are sums over own points. The units add them up over `domain`, and
// average them over dp, in one reduction.
#pragma once

#include "api/examples/training/units.hpp"
#include "api/examples/winds/options.hpp"
#include "api/examples/winds/samples.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace winds {

using training::Axis;
using training::Buffer;
using training::Mark;
using training::Parameter;
using training::Program;
using training::Runtime;
using training::Units;

inline constexpr std::int64_t kPlaces =
    3;  // channels of the position, which is learned: a row of them each latitude

// One layer of the U-Net.
struct LayerSpec {
  enum class Input : std::uint8_t { kField, kPrevious, kRaised };
  std::string name;
  std::int64_t stride = 1, in = 0, out = 0;
  Input input = Input::kPrevious;
  std::optional<std::size_t> skip = {};  // kRaised: the layer whose input is added
  bool has_norm = true;                  // else a bias
};
std::vector<LayerSpec> layers_of(std::int64_t width);
// The parameters, by unit: the position, then the layers.
std::vector<std::vector<Parameter>> units_of(const Grid& grid, std::int64_t width, bool cut_position);

// How the ranks share the work.
struct Sharing {
  const char* name = "winds alone";  // of the sets of units and halos
  Axis domain;
  RankGrid cut;
  std::int64_t dp_size = 1, dp_index = 0;
  muster_group all = MUSTER_GROUP_SELF;  // that have one loss
};

// Owns    activations of one pass, gradients on their way back, and the halos.
// Thread  one.
// Bound   samples x own points.
// Fails   with RuntimeError.
class Model {
 public:
  // `samples`: of this rank. The units outlive it, and have begun a step.
  Model(Runtime& runtime, const Sharing& sharing, const Options& options, const Grid& grid, Units& units,
        std::int64_t samples);

  // In this order, in a step of the units; loss() and backward() may be left out.
  void forward();
  void loss();      // leaves the mean over samples and points, by area, in mean_loss(), at loss_ready()
  void backward();  // the units have the gradients once their step has ended

  std::vector<std::int64_t> rows_of_ranks() const { return layers_.front().part->lengths(sharing_.cut, 1); }
  const Patch& patch() const { return patch_; }            // own points
  const muster_tensor& inputs() const { return inputs_; }  // [samples, rows, columns, kInputs]
  const muster_tensor& truth() const {
    return truth_;
  }  // [samples, rows, columns, kWinds]; loss() overwrites it
  const muster_tensor& result() const { return layers_.back().sums_up; }  // as truth(); loss() overwrites it
  const muster_tensor& mean_loss() const { return mean_loss_; }           // F32 [1]
  muster_point loss_ready() const { return loss_.point(loss_reduced_); }
  // Activations and gradients, as the arena counts them, and what the set has from its first start on.
  std::uint64_t bytes() const { return bytes_ + halos().inbox_bytes; }
  muster_halos_info halos() const;

 private:
  struct Layer {
    explicit Layer(Runtime& runtime) : forward(runtime), backward(runtime) {}
    LayerSpec spec;
    std::optional<Part> part, raising;
    Windows windows;
    Shape items, results;  // of the whole field
    muster_tensor held, held_gradient, raised, raised_gradient;
    muster_tensor sums_up, normed;  // of the convolution, and of the norm
    muster_tensor statistics, all_statistics, merged, sums;
    muster_halo halo = 0, raising_halo = 0;
    Program forward, backward;
  };
  struct Destroy {
    void operator()(muster_halos* halos) const { muster_halos_destroy(halos); }
  };
  muster_tensor tensor(muster_dtype dtype, const std::vector<std::int64_t>& shape);
  muster_tensor tensor_in(Buffer& shared, const std::vector<std::int64_t>& shape);
  std::size_t unit_of(const Layer& layer) const;
  muster_tensor weight(const Layer& layer) const;
  muster_tensor weight_gradient(const Layer& layer) const;
  muster_tensor position(const muster_tensor& whole) const;  // own rows, as a field of one sample and column
  void shape(std::size_t index, const LayerSpec& spec);
  void allocate(Layer& layer);
  muster_halo add_halo(const std::string& name, const Part& part, const muster_tensor& held,
                       const muster_tensor& held_gradient, const muster_halo_kernels& forward,
                       const muster_halo_kernels& backward);
  void make_halo(Layer& layer);
  void make_raising_halo(Layer& layer, const Layer& before);
  void record_input(std::size_t index);
  void record_layer(Program& program, Layer& layer);
  void record_norm_backward(std::size_t index);
  void record_input_backward(std::size_t index);
  void record_loss();
  Program::Call halo_call(muster_halo halo, bool back);
  muster_tensor output_gradient(std::size_t index) const;  // of what the layer gives to the next one

  Runtime& runtime_;
  Sharing sharing_;
  Grid grid_;
  Units& units_;
  std::int64_t samples_;
  bool recompute_;
  Patch patch_;
  std::uint64_t bytes_ = 0;
  std::unique_ptr<muster_halos, Destroy> halos_;
  std::deque<Layer> layers_;
  Buffer kept_sums_, kept_normed_, gradient_;  // shared by layers: the first two if they are computed again
  muster_tensor inputs_, truth_, weights_, mean_loss_;
  Program loss_;
  Mark loss_reduced_;
};

}  // namespace winds
