// A convolution of a field: its right values, in plain loops and doubles that know nothing of shards, and a
// rank's part of it, with real kernels.
#pragma once

#include "tests/api/client/fields/fields.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

namespace muster::test {

inline const Window kSame{Window::Kind::kConvolution, 3, 1, 1, 1, 1};  // as many results as items

// One epoch has numbers of its own, as the dtype has them, and the right results of these.
struct LayerEpoch {
  std::vector<double> x, dy;
  std::vector<double> y, dx, dw, db;
  double y_terms = 0, dx_terms = 0, dw_terms = 0, db_terms = 0;  // the most that a value's terms add up to
};

struct Layer {
  std::size_t dims = 1;  // without that of channels
  bool batched = false;  // the first dim is one of samples, and has no window
  std::int64_t ranks = 1, groups = 1, channels = 1, outputs = 1;
  std::vector<Window> windows;
  Items items, results, kernels;
  std::vector<Window> all;  // with that of channels
  Items cuts;
  std::map<std::size_t, Items> lengths;
  std::optional<Stencil> cut, whole;
  bool zeros = true;  // in all pads
  Numbers numbers = Numbers::kWhole;
  std::string text;
  std::vector<double> w, bias;
  std::vector<LayerEpoch> epochs;
  std::int64_t taps() const { return product(kernels); }
  std::int64_t own_channels() const { return channels / groups; }
  muster_dtype dtype() const { return numbers == Numbers::kHalves ? MUSTER_BF16 : MUSTER_F32; }
};

// The rest of a layer whose shape, windows and cuts are given. `results`: the lengths that are asked for.
void make(Draw& draw, Layer& l, const std::vector<Items>& results);
// Fills in the right values.
void compute(const Layer& l, LayerEpoch& e);
// A layer of one window along all dims. `lengths`: of the shards of each dim; none: balanced.
Layer layer_of(const char* name, const Items& items, const Window& window, const std::vector<Items>& lengths,
               Numbers numbers, std::uint64_t seed, std::int64_t channels = 3, std::int64_t outputs = 4);

// Owns    all of a layer's arrays at a rank, and the plans of its kernels.
// Thread  its session's.
// Bound   one box of results for a plan.
// Fails   a call that fails is a failure of the test.
class LayerPart {
 public:
  // Gradients are fetched, or else returned.
  LayerPart(Member& of, const Layer& layer, const Stencil& stencil, std::int64_t rank,
            muster_halo_gradients how, muster_corners corners = MUSTER_CORNERS_DIRECT);
  LayerPart(const LayerPart&) = delete;
  LayerPart& operator=(const LayerPart&) = delete;
  ~LayerPart();

  // Own items and results have an epoch's numbers; ghosts have none.
  void fill(const LayerEpoch& e);
  muster_plan forward(const Box& box);
  muster_plan by_items(const Box& box);
  muster_plan by_weights();
  HaloParts halo();
  // A plan of any kernel of the layer, which goes with the part.
  muster_plan keep(const muster_kernel& kernel);
  muster_convolution numbers(const Box& box, const Box& x_begins, const Box& y_begins) const;
  // Destroys the plans, of which some may be under way still: a lane that fails says so before they end.
  void let_go();
  bool whole_rows() const;
  bool fetched() const { return how == MUSTER_HALO_FETCH; }
  muster_tensor seen(const FieldArray& array) const { return l.batched ? array.of_halo() : array.view; }
  std::vector<double> own_results() const;
  std::vector<double> own_gradients() const;

  Member& member;
  const Layer& l;
  const Stencil& stencil;
  muster_halo_gradients how;
  muster_corners corners;
  Halo mine, back;
  FieldArray x, w, bias, y, dy, dx, dw, db;

 private:
  std::vector<muster_plan> plans_;
};

// Holds a rank's part against the right values. `alone`: one rank's kernels, of the whole field.
void expect_right(const LayerEpoch& e, const LayerPart& part, const LayerPart* alone = nullptr);
// Likewise for the weights' gradients, which all ranks have added up.
void expect_right_sums(const LayerEpoch& e, const LayerPart& part, const LayerPart* alone = nullptr);

struct LayerWay {
  muster_corners corners = MUSTER_CORNERS_DIRECT;
  std::optional<muster_halo_gradients> how;  // none: fetched where pads are zeros
};
// All epochs of a layer, in the same arrays and with the same halo. Each array is overwritten as soon as its
// point is reached: a neighbour that still read it would be wrong. `alone`: one rank's kernels do the same.
enum class Alone : std::uint8_t { kNo, kToo };
void run_epochs(Member& member, muster_group group, std::int64_t rank, const Layer& l, Alone alone,
                std::uint64_t seed, LayerWay way = {});
// The same, by the first ranks of the world; the others have nothing to do.
void run_epochs(Member& member, const Layer& l, Alone alone, std::uint64_t seed, LayerWay way = {});

}  // namespace muster::test
