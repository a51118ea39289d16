#include "kernels/group_norm/group_norm.hpp"

#include "kernels/check.hpp"
#include "kernels/element.hpp"
#include "kernels/on_host.hpp"
#include "kernels/row.hpp"
#include "kernels/wide.hpp"

#include <muster/field_kernels.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <type_traits>
#include <vector>

namespace muster::kernels::group_norm {
namespace {

constexpr std::array<Operand, 2> kStatisticsOperands{
    {{"x", Operand::kRead}, {"statistics", Operand::kWrite}}};
constexpr std::array<Operand, 2> kMergeOperands{{{"all", Operand::kRead}, {"merged", Operand::kWrite}}};
constexpr std::array<Operand, 5> kForwardOperands{{{"x", Operand::kRead},
                                                   {"merged", Operand::kRead},
                                                   {"weight", Operand::kRead, true},
                                                   {"bias", Operand::kRead, true},
                                                   {"y", Operand::kWrite}}};
constexpr std::array<Operand, 7> kSumsOperands{{{"dy", Operand::kRead},
                                                {"x", Operand::kRead},
                                                {"merged", Operand::kRead},
                                                {"weight", Operand::kRead, true},
                                                {"sums", Operand::kWrite},
                                                {"dweight", Operand::kReadWrite, true},
                                                {"dbias", Operand::kReadWrite, true}}};
constexpr std::array<Operand, 6> kBackwardOperands{{{"dy", Operand::kRead},
                                                    {"x", Operand::kRead},
                                                    {"merged", Operand::kRead},
                                                    {"weight", Operand::kRead, true},
                                                    {"sums", Operand::kRead},
                                                    {"dx", Operand::kWrite}}};

constexpr std::int64_t kElementsPerPart = 1 << 16;
// A part that reads some channels of each point reads at least a line of memory there.
constexpr std::int64_t kLineBytes = 64;
constexpr std::int64_t kBlock = 16;  // channels
using BlockSums = std::array<double, kBlock>;

struct NormWeightRow;
struct NormBiasRow;
struct NormValues;
struct NormGradients;
struct NormOutput;

// ---- fields ------------------------------------------------------------------------------------

// [samples, items..., channels]: rows are the items of the outermost spatial dim.
struct Field {
  explicit Field(const Tensor& t)
      : samples(t.size[0]), rows(t.size[1]), channels(t.size[static_cast<std::size_t>(t.dims) - 1]) {
    for (std::int32_t d = 2; d < t.dims - 1; ++d) row_points *= t.size[static_cast<std::size_t>(d)];
  }
  std::int64_t samples, rows, channels;
  std::int64_t row_points = 1;

  std::int64_t rows_per_part() const {
    return std::max<std::int64_t>(1, kElementsPerPart / std::max<std::int64_t>(1, row_points * channels));
  }
  std::uint32_t parts() const {
    return static_cast<std::uint32_t>(samples) * parts_of(rows, rows_per_part());
  }
};

// Calls visit(elements) with the first channel of each point of some rows of a sample, in each of the
// tensors, which have equal sizes.
template<std::size_t N, class Visit>
void each_point(const std::array<const Tensor*, N>& tensors, std::int64_t sample, Range rows, Visit visit) {
  const Tensor& shape = *tensors[0];
  // The last spatial dim is the inner loop; with one such dim, each row is a point.
  const auto inner = static_cast<std::size_t>(shape.dims - 2);
  const std::int64_t columns = inner > 2 ? shape.size[2] : 1, run = inner > 1 ? shape.size[inner] : 1;
  std::array<std::int64_t, N> at;
  for (std::int64_t i = rows.begin; i < rows.end; ++i)
    for (std::int64_t j = 0; j < columns; ++j) {
      for (std::size_t t = 0; t < N; ++t) {
        const auto& stride = tensors[t]->stride;
        at[t] = sample * stride[0] + i * stride[1] + (inner > 2 ? j * stride[2] : 0);
      }
      for (std::int64_t k = 0; k < run; ++k) {
        visit(at);
        for (std::size_t t = 0; t < N; ++t) at[t] += tensors[t]->stride[inner];
      }
    }
}

// Some channels of the points of a field, as floats: in place, or through the thread's row of `Use`.
template<class Use>
class Channels {
 public:
  Channels(const Tensor& field, Range channels)
      : field_(field),
        step_(field.stride[static_cast<std::size_t>(field.dims) - 1]),
        first_(channels.begin * step_),
        count_(channels.end - channels.begin),
        in_place_(field.dtype == MUSTER_F32 && step_ == 1),
        buffer_(in_place_ ? nullptr : scratch<Use>(count_)) {}

  // `at`: the first channel of the point.
  const float* values(std::int64_t at) const {
    return in_place_ ? elements<float>(field_) + at + first_ : read(row(at), buffer_);
  }
  float* target(std::int64_t at) const { return in_place_ ? elements<float>(field_) + at + first_ : buffer_; }
  // Call it once the target is computed.
  void write_back(std::int64_t at) const {
    if (!in_place_) write(row(at), Write::kReplace, buffer_);
  }

 private:
  Row row(std::int64_t at) const { return {field_, at + first_, step_, count_}; }

  const Tensor& field_;
  std::int64_t step_, first_, count_;
  bool in_place_;
  float* buffer_;
};

// Calls visit(first, count) for channels in blocks, whose sums stay in registers while it goes over points.
// `count` is a constant but for the last block.
template<class Visit>
void each_block(std::int64_t channels, Visit visit) {
  std::int64_t first = 0;
  for (; first + kBlock <= channels; first += kBlock)
    visit(first, std::integral_constant<std::int64_t, kBlock>());
  if (first < channels) visit(first, channels - first);
}

// A number for each channel. The memory stays with the thread.
template<class Use>
double* numbers(std::int64_t channels) {
  thread_local std::vector<double> all;
  if (static_cast<std::int64_t>(all.size()) < channels) all.resize(static_cast<std::size_t>(channels));
  return all.data();
}

// A number of a F64 [.., .., n] operand.
double& number(const Tensor& t, std::int64_t a, std::int64_t b, std::int64_t c) {
  return elements<double>(t)[a * t.stride[0] + b * t.stride[1] + c * t.stride[2]];
}

// A group of a sample, over the whole field.
struct GroupMoments {
  double mean, rstd, count;
};
GroupMoments moments_of(const Tensor& merged, std::int64_t sample, std::int64_t group) {
  return {number(merged, sample, group, 0), number(merged, sample, group, 1),
          number(merged, sample, group, 2)};
}

const float* parameters(const Tensor& t, float* buffer) {
  return t.present() ? read(whole(t), buffer) : nullptr;
}

// ---- checks ------------------------------------------------------------------------------------

// x of 1 to 3 spatial dims, and F64 [samples, groups, numbers].
Status check_field(const Subject& s, std::size_t x, std::size_t by_group, std::int64_t numbers) {
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, x, {MUSTER_F32, MUSTER_BF16}));
  const Tensor& field = s.tensor(x);
  if (field.dims < 3 || field.dims > 5)
    return failure(Code::kBadArgument,
                   "{}: {} has shape {}; samples, 1 to 3 spatial dims and channels are expected", s.kernel,
                   s.name(x), shape_text(field));
  MUSTER_RETURN_IF_ERROR(expect_size_in(s, x, -1, 1, kRowElementsMax));
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, by_group, {MUSTER_F64}));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, by_group, 3));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, by_group, 0, x, 0));
  MUSTER_RETURN_IF_ERROR(expect_size(s, by_group, 2, numbers));
  MUSTER_RETURN_IF_ERROR(
      expect_size_in(s, by_group, 1, 1, field.size[static_cast<std::size_t>(field.dims) - 1]));
  const std::int64_t groups = s.tensor(by_group).size[1], channels = Field(field).channels;
  if (channels % groups == 0) return {};
  return failure(Code::kBadArgument, "{}: {} groups of {} do not divide the {} channels of {}", s.kernel,
                 groups, s.name(by_group), channels, s.name(x));
}

// [channels], as x or F32.
Status check_parameters(const Subject& s, std::size_t x, std::initializer_list<std::size_t> all,
                        bool gradients) {
  for (const std::size_t operand : all) {
    if (!gradients || s.tensor(operand).dtype != MUSTER_F32)
      MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, operand, x));
    MUSTER_RETURN_IF_ERROR(expect_dims(s, operand, 1));
    MUSTER_RETURN_IF_ERROR(expect_equal_size(s, operand, 0, x, -1));
  }
  return {};
}

Status check_statistics(const Args& args) {
  return check_field({"group_norm_statistics", kStatisticsOperands, args}, 0, 1, 3);
}

Status check_merge(const Args& args) {
  const Subject s{"group_norm_merge", kMergeOperands, args};
  for (const std::size_t operand : {0, 1}) MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, operand, {MUSTER_F64}));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 0, 4));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, 1, 3));
  MUSTER_RETURN_IF_ERROR(expect_size_in(s, 0, 0, 1, std::int64_t{1} << 31));
  for (const std::int32_t d : {0, 1, 2}) MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 1, d, 0, d + 1));
  MUSTER_RETURN_IF_ERROR(expect_size(s, 1, 2, 3));
  return expect_finite(s, 0, "epsilon");
}

Status check_forward(const Args& args) {
  const Subject s{"group_norm_forward", kForwardOperands, args};
  MUSTER_RETURN_IF_ERROR(check_field(s, 0, 1, 3));
  MUSTER_RETURN_IF_ERROR(check_parameters(s, 0, {2, 3}, false));
  return expect_like(s, {4}, 0);
}

Status check_sums(const Args& args) {
  const Subject s{"group_norm_backward_sums", kSumsOperands, args};
  MUSTER_RETURN_IF_ERROR(check_field(s, 1, 2, 3));
  MUSTER_RETURN_IF_ERROR(expect_like(s, {0}, 1));
  MUSTER_RETURN_IF_ERROR(check_parameters(s, 1, {3}, false));
  MUSTER_RETURN_IF_ERROR(check_parameters(s, 1, {5, 6}, true));
  MUSTER_RETURN_IF_ERROR(check_field(s, 1, 4, 2));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, 4, 1, 2, 1));
  return expect_int(s, 0, "accumulate", 0, 1);
}

Status check_backward(const Args& args) {
  const Subject s{"group_norm_backward", kBackwardOperands, args};
  MUSTER_RETURN_IF_ERROR(check_field(s, 1, 2, 3));
  MUSTER_RETURN_IF_ERROR(expect_like(s, {0, 5}, 1));
  MUSTER_RETURN_IF_ERROR(check_parameters(s, 1, {3}, false));
  MUSTER_RETURN_IF_ERROR(check_field(s, 1, 4, 2));
  return expect_equal_size(s, 4, 1, 2, 1);
}

// ---- statistics --------------------------------------------------------------------------------

// Groups of which a part has whole lines.
std::int64_t groups_per_part(const Tensor& x, std::int64_t groups) {
  const std::int64_t width = Field(x).channels / groups, bytes = width * element_bytes(x.dtype);
  return std::clamp<std::int64_t>((kLineBytes + bytes - 1) / bytes, 1, groups);
}

std::uint32_t parts_statistics(const Args& args) {
  const Tensor& statistics = args.tensors[1];
  const std::int64_t groups = statistics.size[1];
  return static_cast<std::uint32_t>(statistics.size[0]) *
         parts_of(groups, groups_per_part(args.tensors[0], groups));
}

struct NormShift;
struct NormPlain;
struct NormSquares;

// How many numbers, their mean, and the squared deviations from it.
struct Moments {
  double count = 0, mean = 0, squares = 0;

  // Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
  // 1979.
  void add(const Moments& more) {
    if (more.count == 0) return;
    const double delta = more.mean - mean, total = count + more.count;
    mean += delta * (more.count / total);
    squares += more.squares + delta * delta * (count * more.count / total);
    count = total;
  }
};

// Sums a channel's distances from its first element, and their squares: these keep their digits however large
// the elements are. Chan, Golub, LeVeque, "Algorithms for computing the sample variance", 1983.
void run_statistics(const Args& args, std::uint32_t part) {
  const Tensor& x = args.tensors[0];
  const Tensor& statistics = args.tensors[1];
  const Field field(x);
  const std::int64_t groups = statistics.size[1], width = field.channels / groups;
  const std::int64_t at_once = groups_per_part(x, groups);
  const std::uint32_t of_sample = parts_of(groups, at_once);
  const std::int64_t sample = part / of_sample;
  const Range range = range_of(groups, at_once, part % of_sample);
  const std::int64_t count = (range.end - range.begin) * width;
  double* const shift = numbers<NormShift>(count);
  double* const plain = numbers<NormPlain>(count);
  double* const squares = numbers<NormSquares>(count);
  const bool is_empty = field.rows * field.row_points == 0;
  wide([&] {
    each_block(count, [&](std::int64_t first, auto block) {
      const std::int64_t begin = range.begin * width + first;
      const Channels<NormValues> channels(x, {begin, begin + block});
      BlockSums from{}, sum{}, square{};
      if (!is_empty) std::copy_n(channels.values(sample * x.stride[0]), block, from.begin());
      each_point<1>({&x}, sample, {0, field.rows}, [&](const auto& at) {
        const float* const values = channels.values(at[0]);
        for (std::int64_t c = 0; c < block; ++c) {
          const auto i = static_cast<std::size_t>(c);
          const double distance = static_cast<double>(values[c]) - from[i];
          sum[i] += distance;
          square[i] += distance * distance;
        }
      });
      std::copy_n(from.begin(), block, shift + first);
      std::copy_n(sum.begin(), block, plain + first);
      std::copy_n(square.begin(), block, squares + first);
    });
  });
  const auto points = static_cast<double>(field.rows * field.row_points);
  for (std::int64_t g = range.begin; g < range.end; ++g) {
    Moments moments;
    for (std::int64_t c = (g - range.begin) * width; points > 0 && c < (g - range.begin + 1) * width; ++c)
      moments.add(
          {points, shift[c] + plain[c] / points, std::max(squares[c] - plain[c] * (plain[c] / points), 0.0)});
    number(statistics, sample, g, 0) = moments.count;
    number(statistics, sample, g, 1) = moments.mean;
    number(statistics, sample, g, 2) = moments.squares;
  }
}

std::uint32_t one_part(const Args& /*args*/) {
  return 1;
}

// In the order of ranks. An empty shard adds nothing.
void run_merge(const Args& args, std::uint32_t /*part*/) {
  const Tensor& all = args.tensors[0];
  const Tensor& merged = args.tensors[1];
  const auto of_rank = [&](std::int64_t rank, std::int64_t sample, std::int64_t group, std::int64_t which) {
    return elements<double>(
        all)[rank * all.stride[0] + sample * all.stride[1] + group * all.stride[2] + which * all.stride[3]];
  };
  for (std::int64_t b = 0; b < merged.size[0]; ++b)
    for (std::int64_t g = 0; g < merged.size[1]; ++g) {
      Moments moments;
      for (std::int64_t rank = 0; rank < all.size[0]; ++rank)
        moments.add({of_rank(rank, b, g, 0), of_rank(rank, b, g, 1), of_rank(rank, b, g, 2)});
      const double variance = moments.count > 0 ? moments.squares / moments.count : 0;
      number(merged, b, g, 0) = moments.mean;
      number(merged, b, g, 1) = 1 / std::sqrt(variance + args.reals[0]);
      number(merged, b, g, 2) = moments.count;
    }
}

// ---- passes ------------------------------------------------------------------------------------

// The rows of a part of a pass.
struct FieldRows {
  std::int64_t sample;
  Range rows;
};
FieldRows piece_of(const Field& field, std::uint32_t part) {
  const std::uint32_t of_sample = parts_of(field.rows, field.rows_per_part());
  return {part / of_sample, range_of(field.rows, field.rows_per_part(), part % of_sample)};
}

std::uint32_t parts_forward(const Args& args) {
  return Field(args.tensors[0]).parts();
}

struct NormMean;
struct NormFactor;
struct NormOffset;
struct NormSlope;

// y = (x - mean) factor + offset, of rstd weight and bias.
void run_forward(const Args& args, std::uint32_t part) {
  const Tensor& x = args.tensors[0];
  const Tensor& merged = args.tensors[1];
  const Tensor& y = args.tensors[4];
  const Field field(x);
  const FieldRows piece = piece_of(field, part);
  const float* const weight = parameters(args.tensors[2], scratch<NormWeightRow>(field.channels));
  const float* const bias = parameters(args.tensors[3], scratch<NormBiasRow>(field.channels));
  double* const factor = numbers<NormFactor>(field.channels);
  double* const offset = numbers<NormOffset>(field.channels);
  double* const mean = numbers<NormMean>(field.channels);
  const std::int64_t width = field.channels / merged.size[1];
  for (std::int64_t c = 0; c < field.channels; ++c) {
    const GroupMoments moments = moments_of(merged, piece.sample, c / width);
    mean[c] = moments.mean;
    factor[c] = moments.rstd * (weight == nullptr ? 1.0 : static_cast<double>(weight[c]));
    offset[c] = bias == nullptr ? 0.0 : static_cast<double>(bias[c]);
  }
  const Range all{0, field.channels};
  const Channels<NormValues> from(x, all);
  const Channels<NormOutput> to(y, all);
  wide([&] {
    each_point<2>({&x, &y}, piece.sample, piece.rows, [&](const auto& at) {
      const float* const values = from.values(at[0]);
      float* const target = to.target(at[1]);
      for (std::int64_t c = 0; c < field.channels; ++c)
        target[c] = static_cast<float>((static_cast<double>(values[c]) - mean[c]) * factor[c] + offset[c]);
      to.write_back(at[1]);
    });
  });
}

std::uint32_t parts_sums(const Args& args) {
  const std::int64_t groups = args.tensors[4].size[1];
  return parts_of(groups, groups_per_part(args.tensors[1], groups));
}

struct NormWithX;
struct NormDweight;
struct NormDbias;

// Some groups' channels, over all samples.
void run_sums(const Args& args, std::uint32_t part) {
  const Tensor& dy = args.tensors[0];
  const Tensor& x = args.tensors[1];
  const Tensor& sums = args.tensors[4];
  const Field field(x);
  const std::int64_t groups = sums.size[1], width = field.channels / groups;
  const Range range = range_of(groups, groups_per_part(x, groups), part);
  const Range channels{range.begin * width, range.end * width};
  const std::int64_t count = channels.end - channels.begin;
  const float* const weight = parameters(args.tensors[3], scratch<NormWeightRow>(field.channels));
  double* const mean = numbers<NormMean>(count);
  double* const plain = numbers<NormPlain>(count);
  double* const with_x = numbers<NormWithX>(count);
  double* const by_weight = numbers<NormDweight>(count);
  double* const by_bias = numbers<NormDbias>(count);
  std::fill_n(by_weight, count, 0.0);
  std::fill_n(by_bias, count, 0.0);
  for (std::int64_t sample = 0; sample < field.samples; ++sample) {
    for (std::int64_t c = 0; c < count; ++c)
      mean[c] = moments_of(args.tensors[2], sample, range.begin + c / width).mean;
    wide([&] {
      each_block(count, [&](std::int64_t first, auto block) {
        const Range some{channels.begin + first, channels.begin + first + block};
        const Channels<NormValues> values_of(x, some);
        const Channels<NormGradients> gradients_of(dy, some);
        BlockSums from{}, sum{}, product{};
        std::copy_n(mean + first, block, from.begin());
        each_point<2>({&x, &dy}, sample, {0, field.rows}, [&](const auto& at) {
          const float* const values = values_of.values(at[0]);
          const float* const gradients = gradients_of.values(at[1]);
          for (std::int64_t c = 0; c < block; ++c) {
            const auto i = static_cast<std::size_t>(c);
            const auto gradient = static_cast<double>(gradients[c]);
            sum[i] += gradient;
            product[i] += gradient * (static_cast<double>(values[c]) - from[i]);
          }
        });
        std::copy_n(sum.begin(), block, plain + first);
        std::copy_n(product.begin(), block, with_x + first);
      });
    });
    for (std::int64_t g = range.begin; g < range.end; ++g) {
      const double rstd = moments_of(args.tensors[2], sample, g).rstd;
      double group_plain = 0, group_with_x = 0;
      for (std::int64_t c = (g - range.begin) * width; c < (g - range.begin + 1) * width; ++c) {
        const double factor = weight == nullptr ? 1.0 : static_cast<double>(weight[channels.begin + c]);
        by_weight[c] += with_x[c] * rstd;
        by_bias[c] += plain[c];
        group_plain += plain[c] * factor;
        group_with_x += with_x[c] * rstd * factor;
      }
      number(sums, sample, g, 0) = group_plain;
      number(sums, sample, g, 1) = group_with_x;
    }
  }
  const bool add = args.ints[0] != 0;
  const auto write_out = [&](const Tensor& t, const double* values) {
    if (!t.present()) return;
    dispatch_float(t.dtype, [&]<class E>(std::type_identity<E>) {
      for (std::int64_t c = 0; c < count; ++c) {
        E* const element = elements<E>(t) + (channels.begin + c) * t.stride[0];
        store(element, values[c] + (add ? static_cast<double>(load(element)) : 0.0));
      }
    });
  };
  write_out(args.tensors[5], by_weight);
  write_out(args.tensors[6], by_bias);
}

std::uint32_t parts_backward(const Args& args) {
  return Field(args.tensors[1]).parts();
}

// dx = rstd (dy weight - plain/n - (x - mean) rstd with_x/n), as dy factor + (x - mean) slope + offset.
void run_backward(const Args& args, std::uint32_t part) {
  const Tensor& dy = args.tensors[0];
  const Tensor& x = args.tensors[1];
  const Tensor& merged = args.tensors[2];
  const Tensor& sums = args.tensors[4];
  const Tensor& dx = args.tensors[5];
  const Field field(x);
  const FieldRows piece = piece_of(field, part);
  const float* const weight = parameters(args.tensors[3], scratch<NormWeightRow>(field.channels));
  double* const factor = numbers<NormFactor>(field.channels);
  double* const slope = numbers<NormSlope>(field.channels);
  double* const offset = numbers<NormOffset>(field.channels);
  double* const mean = numbers<NormMean>(field.channels);
  const std::int64_t width = field.channels / merged.size[1];
  for (std::int64_t c = 0; c < field.channels; ++c) {
    const std::int64_t g = c / width;
    const GroupMoments moments = moments_of(merged, piece.sample, g);
    mean[c] = moments.mean;
    const double plain = number(sums, piece.sample, g, 0) / moments.count;
    const double with_x = number(sums, piece.sample, g, 1) / moments.count;
    factor[c] = moments.rstd * (weight == nullptr ? 1.0 : static_cast<double>(weight[c]));
    slope[c] = -moments.rstd * moments.rstd * with_x;
    offset[c] = -moments.rstd * plain;
  }
  const Range all{0, field.channels};
  const Channels<NormValues> values_of(x, all);
  const Channels<NormGradients> gradients_of(dy, all);
  const Channels<NormOutput> to(dx, all);
  wide([&] {
    each_point<3>({&x, &dy, &dx}, piece.sample, piece.rows, [&](const auto& at) {
      const float* const values = values_of.values(at[0]);
      const float* const gradients = gradients_of.values(at[1]);
      float* const target = to.target(at[2]);
      for (std::int64_t c = 0; c < field.channels; ++c)
        target[c] = static_cast<float>(static_cast<double>(gradients[c]) * factor[c] +
                                       (static_cast<double>(values[c]) - mean[c]) * slope[c] + offset[c]);
      to.write_back(at[2]);
    });
  });
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 5> kRows{{
      {MUSTER_KERNEL_GROUP_NORM_STATISTICS, "group_norm_statistics", kStatisticsOperands, 0, 0,
       check_statistics, parts_statistics, launchers(on_host<run_statistics>)},
      {MUSTER_KERNEL_GROUP_NORM_MERGE, "group_norm_merge", kMergeOperands, 0, 1, check_merge, one_part,
       launchers(on_host<run_merge>)},
      {MUSTER_KERNEL_GROUP_NORM_FORWARD, "group_norm_forward", kForwardOperands, 0, 0, check_forward,
       parts_forward, launchers(on_host<run_forward>), 0},
      {MUSTER_KERNEL_GROUP_NORM_BACKWARD_SUMS, "group_norm_backward_sums", kSumsOperands, 1, 0, check_sums,
       parts_sums, launchers(on_host<run_sums>)},
      {MUSTER_KERNEL_GROUP_NORM_BACKWARD, "group_norm_backward", kBackwardOperands, 0, 0, check_backward,
       parts_backward, launchers(on_host<run_backward>), 0},
  }};
  return kRows;
}

}  // namespace muster::kernels::group_norm
