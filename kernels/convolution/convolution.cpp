#include "kernels/convolution/convolution.hpp"

#include "kernels/check.hpp"
#include "kernels/convolution/blocks.hpp"
#include "kernels/convolution/geometry.hpp"
#include "kernels/on_host.hpp"
#include "kernels/wide.hpp"

#include <muster/field_kernels.h>

#include <algorithm>
#include <array>
#include <vector>

namespace muster::kernels::convolution {
namespace {

constexpr std::array<Operand, 4> kForwardOperands{{{"x", Operand::kRead},
                                                   {"w", Operand::kRead},
                                                   {"bias", Operand::kRead, true},
                                                   {"y", Operand::kReadWrite}}};
constexpr std::array<Operand, 3> kDgradOperands{
    {{"dy", Operand::kRead}, {"w", Operand::kRead}, {"dx", Operand::kReadWrite}}};
constexpr std::array<Operand, 4> kWgradOperands{{{"dy", Operand::kRead},
                                                 {"x", Operand::kRead},
                                                 {"dw", Operand::kReadWrite},
                                                 {"dbias", Operand::kReadWrite, true}}};

// Operations of a tile: some 0.3 ms of a core. A gradient by weights reads its tiles one after the other, and
// adds.
constexpr std::int64_t kTileOperations = 1 << 25;
constexpr std::int64_t kWeightTileOperations = 1 << 28;
constexpr std::int64_t kOutputsPerPart = 64;
constexpr std::int64_t kNumberMax = std::int64_t{1} << 31;
constexpr std::int64_t kOffsetMax = std::int64_t{1} << 48;

struct SourceBlock;
struct ResultBlock;
struct Weights;
struct Computed;
struct BiasRow;
struct PaddedSource;

// ---- checks ------------------------------------------------------------------------------------

Status check_numbers(const Subject& s, std::size_t dims, const Tensor& boxed, std::size_t begin_list) {
  constexpr const char* kNames[] = {"stride",   "dilation", "before", "x_offset",
                                    "y_offset", "offset",   "length"};
  const auto at = [](std::size_t list, std::size_t d) { return Geometry::kLists + list * 3 + d; };
  MUSTER_RETURN_IF_ERROR(expect_int(s, Geometry::kAccumulate, "accumulate", 0, 1));
  for (std::size_t d = 0; d < 3; ++d) {
    const bool used = d < dims;
    for (const std::size_t list : {0, 1})
      MUSTER_RETURN_IF_ERROR(expect_int(s, at(list, d), kNames[list], 1, used ? kNumberMax : 1));
    MUSTER_RETURN_IF_ERROR(expect_int(s, at(2, d), kNames[2], 0, used ? kNumberMax : 0));
    for (const std::size_t list : {3, 4, 5})
      MUSTER_RETURN_IF_ERROR(
          expect_int(s, at(list, d), kNames[list], used ? -kOffsetMax : 0, used ? kOffsetMax : 0));
    if (!used) continue;
    MUSTER_RETURN_IF_ERROR(expect_int(s, at(6, d), "length", 0, kNumberMax));
  }
  for (std::size_t d = 0; d < dims; ++d)
    if (s.args.ints[at(6, d)] == 0) return {};  // a shard without results lies anywhere
  for (std::size_t d = 0; d < dims; ++d) {
    const std::int64_t begin = s.args.ints[at(begin_list, d)], size = boxed.size[d + 1];
    MUSTER_RETURN_IF_ERROR(expect_int(s, at(5, d), "offset", begin, begin + size));
    MUSTER_RETURN_IF_ERROR(expect_int(s, at(6, d), "length", 0, begin + size - s.args.ints[at(5, d)]));
  }
  return {};
}

// The operands by their roles.
struct Roles {
  std::size_t x, w, y;
};

Status check_shapes(const Subject& s, const Roles& roles, bool boxes_results) {
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, roles.x, {MUSTER_F32, MUSTER_BF16}));
  MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, roles.y, roles.x));
  const Tensor& x = s.tensor(roles.x);
  const Tensor& w = s.tensor(roles.w);
  if (x.dims < 3 || x.dims > 5)
    return failure(Code::kBadArgument,
                   "{}: {} has shape {}; samples, 1 to 3 spatial dims and channels are expected", s.kernel,
                   s.name(roles.x), shape_text(x));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, roles.w, x.dims));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, roles.y, x.dims));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, roles.y, 0, roles.x, 0));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, roles.y, x.dims - 1, roles.w, 0));
  for (std::int32_t d = 1; d < x.dims; ++d)
    MUSTER_RETURN_IF_ERROR(expect_size_in(s, roles.w, d, 1, kNumberMax));
  MUSTER_RETURN_IF_ERROR(expect_size_in(s, roles.w, 0, 1, kNumberMax));
  MUSTER_RETURN_IF_ERROR(expect_int(s, Geometry::kGroups, "groups", 1, w.size[0]));
  const std::int64_t groups = s.args.ints[Geometry::kGroups];
  MUSTER_RETURN_IF_ERROR(
      expect_size(s, roles.x, x.dims - 1, w.size[static_cast<std::size_t>(x.dims) - 1] * groups));
  if (w.size[0] % groups != 0)
    return failure(Code::kBadArgument, "{}: {} groups do not divide the {} outputs of {}", s.kernel, groups,
                   w.size[0], s.name(roles.w));
  return check_numbers(s, static_cast<std::size_t>(x.dims) - 2, s.tensor(boxes_results ? roles.y : roles.x),
                       boxes_results ? 4 : 3);
}

Status check_forward(const Args& args) {
  const Subject s{"convolution_forward", kForwardOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, 1, 0));
  MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, 2, 0));
  MUSTER_RETURN_IF_ERROR(check_shapes(s, {0, 1, 3}, true));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 2, 1));
  return expect_equal_size(s, 2, 0, 1, 0);
}

Status check_dgrad(const Args& args) {
  const Subject s{"convolution_dgrad", kDgradOperands, args};
  MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, 1, 0));
  return check_shapes(s, {2, 1, 0}, false);
}

Status check_wgrad(const Args& args) {
  const Subject s{"convolution_wgrad", kWgradOperands, args};
  for (const std::size_t operand : {2, 3})
    if (args.tensors[operand].dtype != MUSTER_F32) MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, operand, 0));
  MUSTER_RETURN_IF_ERROR(check_shapes(s, {1, 2, 0}, true));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 3, 1));
  return expect_equal_size(s, 3, 0, 2, 0);
}

// ---- parts -------------------------------------------------------------------------------------

// All of the weights, dense: [outputs, kernel..., channels of a group].
const float* weights_of(const Tensor& w) {
  const Tensor one{w.data, w.dtype, w.dims, w.size, w.stride};
  std::int64_t stride = 1;
  bool dense = w.dtype == MUSTER_F32;
  for (std::int32_t d = w.dims; d-- > 0;) {
    const auto i = static_cast<std::size_t>(d);
    dense = dense && (w.size[i] == 1 || w.stride[i] == stride);
    stride *= w.size[i];
  }
  if (dense) return elements<float>(one);
  float* const to = scratch<Weights>(w.count());
  const Walk<1> walk({&one});
  std::int64_t at = 0;
  dispatch_float(w.dtype, [&]<class E>(std::type_identity<E>) {
    walk.over(0, walk.count(), [&](const Walk<1>::Offsets& offsets, std::int64_t length) {
      for (std::int64_t i = 0; i < length; ++i)
        to[at++] = load(elements<E>(one) + offsets[0] + i * walk.step()[0]);
    });
  });
  return to;
}

const float* row_of(const Tensor& bias) {
  if (!bias.present()) return nullptr;
  return read(whole(bias), scratch<BiasRow>(bias.size[0]));
}

FieldBlock source_block(const Geometry& g, const Tensor& x, std::int64_t sample, const Region& region) {
  return {&x, g.dims, sample, region, g.source.begin, {0, g.channels}};
}
FieldBlock result_block(const Geometry& g, const Tensor& y, std::int64_t sample, const Region& region,
                        Range outputs) {
  return {&y, g.dims, sample, region, g.result.begin, outputs};
}

Geometry forward_geometry(const Args& args) {
  return Geometry::of(args, args.tensors[0], args.tensors[1], args.tensors[3]);
}
std::uint32_t parts_forward(const Args& args) {
  const Geometry g = forward_geometry(args);
  return static_cast<std::uint32_t>(g.samples) * g.tiles(kTileOperations);
}

void run_forward(const Args& args, std::uint32_t number) {
  const Geometry g = forward_geometry(args);
  const std::uint32_t tiles = g.tiles(kTileOperations);
  const std::int64_t sample = number / tiles;
  const Region wanted = g.tile(g.tile_rows(kTileOperations), number % tiles);
  const Tensor& y = args.tensors[3];
  const Range all{0, g.outputs};
  Geometry::Part part = g.results(wanted);
  const float* const bias = row_of(args.tensors[2]);
  if (part.empty || part.result != wanted) fill_block(result_block(g, y, sample, wanted, all), bias);
  if (part.empty) return;
  part.problem.has_bias = bias != nullptr;
  const float* const source = read_block<SourceBlock>(source_block(g, args.tensors[0], sample, part.source));
  const FieldBlock target = result_block(g, y, sample, part.result, all);
  const bool in_place = target.is_dense();
  float* const computed = in_place ? target.address() : scratch<Computed>(target.count());
  onednn::convolve(part.problem, source, weights_of(args.tensors[1]), bias, computed);
  if (!in_place) write_block(target, Write::kReplace, computed);
}

// Generates code for each problem once: parts have few different ones.
class Prepared {
 public:
  explicit Prepared(onednn::Pass pass) : pass_(pass) {}
  void add(const onednn::Convolution& problem) {
    if (std::ranges::find(seen_, problem) != seen_.end()) return;
    seen_.push_back(problem);
    onednn::prepare(problem, pass_);
  }

 private:
  const onednn::Pass pass_;
  std::vector<onednn::Convolution> seen_;
};

void prepare_forward(const Args& args) {
  const Geometry g = forward_geometry(args);
  Prepared prepared(onednn::Pass::kForward);
  for (std::uint32_t tile = 0; tile < g.tiles(kTileOperations); ++tile) {
    Geometry::Part part = g.results(g.tile(g.tile_rows(kTileOperations), tile));
    part.problem.has_bias = args.tensors[2].present();
    if (!part.empty) prepared.add(part.problem);
  }
}

Geometry dgrad_geometry(const Args& args) {
  return Geometry::of(args, args.tensors[2], args.tensors[1], args.tensors[0]);
}
std::uint32_t parts_dgrad(const Args& args) {
  const Geometry g = dgrad_geometry(args);
  return static_cast<std::uint32_t>(g.samples) * g.tiles(kTileOperations);
}

void run_dgrad(const Args& args, std::uint32_t number) {
  const Geometry g = dgrad_geometry(args);
  const std::uint32_t tiles = g.tiles(kTileOperations);
  const std::int64_t sample = number / tiles;
  const Region wanted = g.tile(g.tile_rows(kTileOperations), number % tiles);
  const Tensor& dx = args.tensors[2];
  const Write how = write_of(args.ints[Geometry::kAccumulate]);
  const Geometry::Part part = g.items(wanted);
  if (how == Write::kReplace && (part.empty || part.source != wanted))
    fill_block(source_block(g, dx, sample, wanted), nullptr);
  if (part.empty) return;
  const float* const gradients =
      read_block<ResultBlock>(result_block(g, args.tensors[0], sample, part.result, {0, g.outputs}));
  const FieldBlock target = source_block(g, dx, sample, part.source);
  const bool in_place = target.is_dense() && how == Write::kReplace;
  float* const computed = in_place ? target.address() : scratch<Computed>(target.count());
  onednn::convolve_back(part.problem, gradients, weights_of(args.tensors[1]), computed);
  if (!in_place) write_block(target, how, computed);
}

void prepare_dgrad(const Args& args) {
  const Geometry g = dgrad_geometry(args);
  Prepared prepared(onednn::Pass::kBack);
  for (std::uint32_t tile = 0; tile < g.tiles(kTileOperations); ++tile)
    if (const Geometry::Part part = g.items(g.tile(g.tile_rows(kTileOperations), tile)); !part.empty)
      prepared.add(part.problem);
}

Geometry wgrad_geometry(const Args& args) {
  return Geometry::of(args, args.tensors[1], args.tensors[2], args.tensors[0]);
}
// Groups stay together: they are small.
std::int64_t outputs_per_part(const Geometry& g) {
  return g.groups == 1 ? kOutputsPerPart : g.outputs;
}
std::uint32_t parts_wgrad(const Args& args) {
  const Geometry g = wgrad_geometry(args);
  return parts_of(g.outputs, outputs_per_part(g));
}

// Adds the dense block's sums by channel, in double.
void add_by_channel(const float* values, std::int64_t count, std::span<double> sums) {
  const auto channels = static_cast<std::int64_t>(sums.size());
  for (std::int64_t i = 0; i < count; i += channels)
    for (std::size_t c = 0; c < sums.size(); ++c)
      sums[c] += static_cast<double>(values[i + static_cast<std::int64_t>(c)]);
}

// Writes sums to a dense range of a tensor's first dim.
void write_sums(const Tensor& t, Range first, Write how, std::span<const double> sums) {
  Tensor part = t;
  dispatch_float(t.dtype, [&]<class E>(std::type_identity<E>) {
    part.data += first.begin * t.stride[0] * element_bytes(t.dtype);
    part.size[0] = first.end - first.begin;
    const Walk<1> walk({&part});
    std::size_t at = 0;
    walk.over(0, walk.count(), [&](const Walk<1>::Offsets& offsets, std::int64_t length) {
      for (std::int64_t i = 0; i < length; ++i) {
        E* const element = elements<E>(part) + offsets[0] + i * walk.step()[0];
        const double sum = sums[at++] + (how == Write::kAdd ? static_cast<double>(load(element)) : 0.0);
        store(element, sum);
      }
    });
  });
}

// Whether one window begins before the planes of the source and ends behind them. The library's code for
// gradients by weights leaves such windows out, in three dims (seen in oneDNN 2.6.3).
bool hangs_over(const onednn::Convolution& c) {
  if (c.dims < 3) return false;
  for (std::int64_t o = 0; o < c.result[0]; ++o) {
    const std::int64_t first = o * c.stride[0] - c.before[0];
    if (first < 0 && first + c.dilation[0] * (c.kernel[0] - 1) + 1 > c.source[0]) return true;
  }
  return false;
}
// The problem whose source has the pads of the outermost dim in it; and that source, in memory of this
// thread.
onednn::Convolution padded(onednn::Convolution c) {
  c.source[0] += c.before[0] + c.after[0];
  c.before[0] = c.after[0] = 0;
  return c;
}
const float* with_pads(const onednn::Convolution& c, const float* source) {
  std::int64_t plane = c.channels;
  for (std::size_t d = 1; d < c.dims; ++d) plane *= c.source[d];
  const std::int64_t planes = padded(c).source[0];
  float* const made = scratch<PaddedSource>(planes * plane);
  std::fill_n(made, planes * plane, 0.0F);
  std::copy_n(source, c.source[0] * plane, made + c.before[0] * plane);
  return made;
}

void prepare_wgrad(const Args& args) {
  const Geometry g = wgrad_geometry(args);
  Prepared prepared(onednn::Pass::kWeigh);
  for (std::uint32_t number = 0; number < parts_wgrad(args); ++number)
    for (std::uint32_t tile = 0; tile < g.tiles(kWeightTileOperations); ++tile) {
      Geometry::Part part = g.results(g.tile(g.tile_rows(kWeightTileOperations), tile));
      const Range outputs = range_of(g.outputs, outputs_per_part(g), number);
      part.problem.outputs = outputs.end - outputs.begin;
      if (!part.empty) prepared.add(hangs_over(part.problem) ? padded(part.problem) : part.problem);
    }
}

// Tiles of all samples in one order, whose weights' gradients are added in double.
void run_wgrad(const Args& args, std::uint32_t number) {
  const Geometry g = wgrad_geometry(args);
  const Range outputs = range_of(g.outputs, outputs_per_part(g), number);
  const Tensor& dw = args.tensors[2];
  const Tensor& dbias = args.tensors[3];
  const std::int64_t of_output = g.outputs == 0 ? 0 : dw.count() / g.outputs;
  const auto count = static_cast<std::size_t>((outputs.end - outputs.begin) * of_output);
  thread_local std::vector<double> sums, bias_sums;
  sums.assign(count, 0.0);
  bias_sums.assign(static_cast<std::size_t>(outputs.end - outputs.begin), 0.0);
  const std::int64_t rows = g.tile_rows(kWeightTileOperations);
  for (std::int64_t sample = 0; sample < g.samples; ++sample)
    for (std::uint32_t tile = 0; tile < g.tiles(kWeightTileOperations); ++tile) {
      const Region wanted = g.tile(rows, tile);
      if (dbias.present()) {
        const FieldBlock of_bias = result_block(g, args.tensors[0], sample, wanted, outputs);
        const float* const gradients = read_block<BiasRow>(of_bias);
        wide([&] { add_by_channel(gradients, of_bias.count(), bias_sums); });
      }
      Geometry::Part part = g.results(wanted);
      if (part.empty) continue;
      part.problem.outputs = outputs.end - outputs.begin;
      const float* source = read_block<SourceBlock>(source_block(g, args.tensors[1], sample, part.source));
      if (hangs_over(part.problem)) {
        source = with_pads(part.problem, source);
        part.problem = padded(part.problem);
      }
      const float* const gradients =
          read_block<ResultBlock>(result_block(g, args.tensors[0], sample, part.result, outputs));
      float* const computed = scratch<Computed>(static_cast<std::int64_t>(count));
      onednn::weigh(part.problem, source, gradients, computed);
      for (std::size_t i = 0; i < count; ++i) sums[i] += static_cast<double>(computed[i]);
    }
  const Write how = write_of(args.ints[Geometry::kAccumulate]);
  write_sums(dw, outputs, how, sums);
  if (dbias.present()) write_sums(dbias, outputs, how, bias_sums);
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 3> kRows{{
      {MUSTER_KERNEL_CONVOLUTION_FORWARD, "convolution_forward", kForwardOperands, Geometry::kIntsEnd, 0,
       check_forward, parts_forward, launchers(on_host<run_forward>), -1, false, prepare_forward},
      {MUSTER_KERNEL_CONVOLUTION_DGRAD, "convolution_dgrad", kDgradOperands, Geometry::kIntsEnd, 0,
       check_dgrad, parts_dgrad, launchers(on_host<run_dgrad>), -1, false, prepare_dgrad},
      {MUSTER_KERNEL_CONVOLUTION_WGRAD, "convolution_wgrad", kWgradOperands, Geometry::kIntsEnd, 0,
       check_wgrad, parts_wgrad, launchers(on_host<run_wgrad>), -1, false, prepare_wgrad},
  }};
  return kRows;
}

}  // namespace muster::kernels::convolution
