#include "kernels/group_norm/group_norm.hpp"

#include "kernels/check.hpp"
#include "kernels/element.hpp"
#include "kernels/on_host.hpp"
#include "kernels/row.hpp"

#include <muster/field_kernels.h>

#include <array>
#include <cmath>
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

struct NormWeightRow;
struct NormBiasRow;

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
  const bool two = shape.dims > 3, three = shape.dims > 4;
  const std::int64_t columns = two ? shape.size[2] : 1, depth = three ? shape.size[3] : 1;
  std::array<std::int64_t, N> at;
  for (std::int64_t i = rows.begin; i < rows.end; ++i)
    for (std::int64_t j = 0; j < columns; ++j)
      for (std::int64_t k = 0; k < depth; ++k) {
        for (std::size_t t = 0; t < N; ++t) {
          const auto& stride = tensors[t]->stride;
          at[t] =
              sample * stride[0] + i * stride[1] + (two ? j * stride[2] : 0) + (three ? k * stride[3] : 0);
        }
        visit(at);
      }
}

std::int64_t channel_stride(const Tensor& t) {
  return t.stride[static_cast<std::size_t>(t.dims) - 1];
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

std::uint32_t parts_statistics(const Args& args) {
  const Tensor& statistics = args.tensors[1];
  return static_cast<std::uint32_t>(statistics.size[0] * statistics.size[1]);
}

// Twice over the elements: the deviations are from the mean, so they keep their digits however large it is.
void run_statistics(const Args& args, std::uint32_t part) {
  const Tensor& x = args.tensors[0];
  const Tensor& statistics = args.tensors[1];
  const Field field(x);
  const std::int64_t groups = statistics.size[1], sample = part / groups, group = part % groups;
  const std::int64_t width = field.channels / groups, step = channel_stride(x);
  const double count = static_cast<double>(field.rows * field.row_points * width);
  double mean = 0, squares = 0;
  dispatch_float(x.dtype, [&]<class E>(std::type_identity<E>) {
    const E* const first = elements<E>(x) + group * width * step;
    const auto sum_over = [&](auto term) {
      double sum = 0;
      each_point<1>({&x}, sample, {0, field.rows}, [&](const auto& at) {
        double of_point = 0;
        for (std::int64_t c = 0; c < width; ++c)
          of_point += term(static_cast<double>(load(first + at[0] + c * step)));
        sum += of_point;
      });
      return sum;
    };
    if (count > 0) mean = sum_over([](double value) { return value; }) / count;
    squares = sum_over([mean](double value) { return (value - mean) * (value - mean); });
  });
  number(statistics, sample, group, 0) = count;
  number(statistics, sample, group, 1) = mean;
  number(statistics, sample, group, 2) = squares;
}

std::uint32_t one_part(const Args& /*args*/) {
  return 1;
}

// In the order of ranks: Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing
// sample variances", 1979. An empty shard adds nothing.
void run_merge(const Args& args, std::uint32_t /*part*/) {
  const Tensor& all = args.tensors[0];
  const Tensor& merged = args.tensors[1];
  const auto of_rank = [&](std::int64_t rank, std::int64_t sample, std::int64_t group, std::int64_t which) {
    return elements<double>(
        all)[rank * all.stride[0] + sample * all.stride[1] + group * all.stride[2] + which * all.stride[3]];
  };
  for (std::int64_t b = 0; b < merged.size[0]; ++b)
    for (std::int64_t g = 0; g < merged.size[1]; ++g) {
      double count = 0, mean = 0, squares = 0;
      for (std::int64_t rank = 0; rank < all.size[0]; ++rank) {
        const double more = of_rank(rank, b, g, 0);
        if (more == 0) continue;
        const double delta = of_rank(rank, b, g, 1) - mean, total = count + more;
        mean += delta * (more / total);
        squares += of_rank(rank, b, g, 2) + delta * delta * (count * more / total);
        count = total;
      }
      number(merged, b, g, 0) = mean;
      number(merged, b, g, 1) = 1 / std::sqrt((count > 0 ? squares / count : 0) + args.reals[0]);
      number(merged, b, g, 2) = count;
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

void run_forward(const Args& args, std::uint32_t part) {
  const Tensor& x = args.tensors[0];
  const Tensor& merged = args.tensors[1];
  const Tensor& y = args.tensors[4];
  const Field field(x);
  const FieldRows piece = piece_of(field, part);
  const float* const weight = parameters(args.tensors[2], scratch<NormWeightRow>(field.channels));
  const float* const bias = parameters(args.tensors[3], scratch<NormBiasRow>(field.channels));
  const std::int64_t width = field.channels / merged.size[1], step = channel_stride(x),
                     y_step = channel_stride(y);
  dispatch_float(x.dtype, [&]<class E>(std::type_identity<E>) {
    each_point<2>({&x, &y}, piece.sample, piece.rows, [&](const auto& at) {
      E* const target = elements<E>(y) + at[1];
      for (std::int64_t g = 0; g < merged.size[1]; ++g) {
        const GroupMoments moments = moments_of(merged, piece.sample, g);
        for (std::int64_t c = g * width; c < (g + 1) * width; ++c) {
          const double normed =
              (static_cast<double>(load(elements<E>(x) + at[0] + c * step)) - moments.mean) * moments.rstd;
          store(target + c * y_step, normed * (weight == nullptr ? 1.0 : static_cast<double>(weight[c])) +
                                         (bias == nullptr ? 0.0 : static_cast<double>(bias[c])));
        }
      }
    });
  });
}

std::uint32_t parts_sums(const Args& args) {
  return static_cast<std::uint32_t>(args.tensors[4].size[1]);
}

// A group's channels over all samples.
void run_sums(const Args& args, std::uint32_t part) {
  const Tensor& dy = args.tensors[0];
  const Tensor& x = args.tensors[1];
  const Tensor& sums = args.tensors[4];
  const Field field(x);
  const std::int64_t group = part, width = field.channels / sums.size[1], first = group * width;
  const std::int64_t step = channel_stride(x), dy_step = channel_stride(dy);
  const float* const weight = parameters(args.tensors[3], scratch<NormWeightRow>(field.channels));
  thread_local std::vector<double> by_weight, by_bias;
  by_weight.assign(static_cast<std::size_t>(width), 0.0);
  by_bias.assign(static_cast<std::size_t>(width), 0.0);
  dispatch_float(x.dtype, [&]<class E>(std::type_identity<E>) {
    for (std::int64_t sample = 0; sample < field.samples; ++sample) {
      const GroupMoments moments = moments_of(args.tensors[2], sample, group);
      double plain = 0, with_x = 0;
      each_point<2>({&x, &dy}, sample, {0, field.rows}, [&](const auto& at) {
        const E* const gradients = elements<E>(dy) + at[1];
        for (std::int64_t c = 0; c < width; ++c) {
          const double gradient = static_cast<double>(load(gradients + (first + c) * dy_step));
          const double normed =
              (static_cast<double>(load(elements<E>(x) + at[0] + (first + c) * step)) - moments.mean) *
              moments.rstd;
          by_weight[static_cast<std::size_t>(c)] += gradient * normed;
          by_bias[static_cast<std::size_t>(c)] += gradient;
          const double weighted =
              weight == nullptr ? gradient : gradient * static_cast<double>(weight[first + c]);
          plain += weighted;
          with_x += weighted * normed;
        }
      });
      number(sums, sample, group, 0) = plain;
      number(sums, sample, group, 1) = with_x;
    }
  });
  const bool add = args.ints[0] != 0;
  const auto write_out = [&](const Tensor& t, const std::vector<double>& values) {
    if (!t.present()) return;
    dispatch_float(t.dtype, [&]<class E>(std::type_identity<E>) {
      for (std::int64_t c = 0; c < width; ++c) {
        E* const element = elements<E>(t) + (first + c) * t.stride[0];
        store(element,
              values[static_cast<std::size_t>(c)] + (add ? static_cast<double>(load(element)) : 0.0));
      }
    });
  };
  write_out(args.tensors[5], by_weight);
  write_out(args.tensors[6], by_bias);
}

std::uint32_t parts_backward(const Args& args) {
  return Field(args.tensors[1]).parts();
}

void run_backward(const Args& args, std::uint32_t part) {
  const Tensor& dy = args.tensors[0];
  const Tensor& x = args.tensors[1];
  const Tensor& merged = args.tensors[2];
  const Tensor& sums = args.tensors[4];
  const Tensor& dx = args.tensors[5];
  const Field field(x);
  const FieldRows piece = piece_of(field, part);
  const float* const weight = parameters(args.tensors[3], scratch<NormWeightRow>(field.channels));
  const std::int64_t width = field.channels / merged.size[1];
  dispatch_float(x.dtype, [&]<class E>(std::type_identity<E>) {
    each_point<3>({&x, &dy, &dx}, piece.sample, piece.rows, [&](const auto& at) {
      for (std::int64_t g = 0; g < merged.size[1]; ++g) {
        const GroupMoments moments = moments_of(merged, piece.sample, g);
        const double plain = number(sums, piece.sample, g, 0) / moments.count;
        const double with_x = number(sums, piece.sample, g, 1) / moments.count;
        for (std::int64_t c = g * width; c < (g + 1) * width; ++c) {
          const double normed =
              (static_cast<double>(load(elements<E>(x) + at[0] + c * channel_stride(x))) - moments.mean) *
              moments.rstd;
          const double gradient =
              static_cast<double>(load(elements<E>(dy) + at[1] + c * channel_stride(dy))) *
              (weight == nullptr ? 1.0 : static_cast<double>(weight[c]));
          store(elements<E>(dx) + at[2] + c * channel_stride(dx),
                moments.rstd * (gradient - plain - normed * with_x));
        }
      }
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
