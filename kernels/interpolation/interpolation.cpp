#include "kernels/interpolation/interpolation.hpp"

#include "api/base/halo/reach.hpp"
#include "kernels/check.hpp"
#include "kernels/element.hpp"
#include "kernels/on_host.hpp"
#include "kernels/row.hpp"

#include <muster/field_kernels.h>

#include <array>
#include <vector>

namespace muster::kernels::interpolation {
namespace {

using halo::Window;

constexpr std::array<Operand, 2> kForwardOperands{{{"x", Operand::kRead}, {"y", Operand::kReadWrite}}};
constexpr std::array<Operand, 2> kBackwardOperands{{{"dy", Operand::kRead}, {"dx", Operand::kReadWrite}}};

// The ints: mode, accumulate, and six lists of three numbers.
constexpr std::size_t kMode = 0, kAccumulate = 1, kLists = 2, kInts = kLists + 6 * 3;
constexpr std::size_t kItems = 0, kResults = 1, kXOffset = 2, kYOffset = 3, kOffset = 4, kLength = 5;
constexpr std::int64_t kElementsPerPart = 1 << 16;
constexpr std::int64_t kOffsetMax = std::int64_t{1} << 48;

struct MixedRow;

// An element of the other array, and how much of it is taken.
struct Addend {
  std::int64_t at;  // its number in that array
  float weight;
};
// All that the elements of the box take along one dim. Those of element i end at ends[i].
struct DimAddends {
  std::vector<Addend> all;
  std::vector<std::size_t> ends;
  std::span<const Addend> of(std::int64_t i) const {
    const std::size_t begin = i == 0 ? 0 : ends[static_cast<std::size_t>(i) - 1];
    return std::span(all).subspan(begin, ends[static_cast<std::size_t>(i)] - begin);
  }
};

// One dim of a field and of its interpolation.
struct FieldLine {
  Window window;
  std::int64_t items, x_begin, x_size, y_begin, y_size, begin, length;  // the arrays', and the box's

  static FieldLine of(const Args& args, const Tensor& x, const Tensor& y, std::size_t d) {
    const auto number = [&](std::size_t list) { return args.ints[kLists + list * 3 + d]; };
    FieldLine line{{},
                   number(kItems),
                   number(kXOffset),
                   x.size[d + 1],
                   number(kYOffset),
                   y.size[d + 1],
                   number(kOffset),
                   number(kLength)};
    line.window.kind = static_cast<Window::Kind>(args.ints[kMode]);
    line.window.length = number(kResults);
    line.window.scale = args.reals[d];
    return line;
  }

  // Items that a range of results reads. Those that the array does not have count nothing: no rank has them.
  void add_items(std::int64_t first, std::int64_t count, DimAddends& to) const {
    to.all.clear();
    to.ends.clear();
    for (std::int64_t o = first; o < first + count; ++o) {
      const Window::Mix mix = window.mix(o, items);
      add(mix.first, 1 - mix.next, x_begin, x_size, to);
      if (mix.next > 0) add(mix.first + 1, mix.next, x_begin, x_size, to);
      to.ends.push_back(to.all.size());
    }
  }
  // Results of the array that read a range of items.
  void add_results(std::int64_t first, std::int64_t count, DimAddends& to) const {
    to.all.clear();
    to.ends.clear();
    for (std::int64_t i = first; i < first + count; ++i) {
      const std::int64_t end = y_begin + y_size;
      for (std::int64_t o = halo::first_where(
               y_begin, end, [&](std::int64_t result) { return window.mix(result, items).first + 1 >= i; });
           o < end; ++o) {
        const Window::Mix mix = window.mix(o, items);
        if (mix.first > i) break;  // they rise
        if (mix.first == i) add(o, 1 - mix.next, y_begin, y_size, to);
        if (mix.first + 1 == i && mix.next > 0) add(o, mix.next, y_begin, y_size, to);
      }
      to.ends.push_back(to.all.size());
    }
  }

 private:
  static void add(std::int64_t number, double weight, std::int64_t begin, std::int64_t size, DimAddends& to) {
    if (number >= begin && number < begin + size && weight > 0)
      to.all.push_back({number - begin, static_cast<float>(weight)});
  }
};

// ---- checks ------------------------------------------------------------------------------------

Status check_numbers(const Subject& s, const Tensor& x, const Tensor& y, bool boxes_results) {
  constexpr const char* kNames[] = {"items", "results", "x_offset", "y_offset", "offset", "length"};
  const auto at = [](std::size_t list, std::size_t d) { return kLists + list * 3 + d; };
  const auto dims = static_cast<std::size_t>(x.dims) - 2;
  MUSTER_RETURN_IF_ERROR(expect_int(s, kMode, "mode", static_cast<int>(Window::Kind::kNearest),
                                    static_cast<int>(Window::Kind::kLinearAligned)));
  MUSTER_RETURN_IF_ERROR(expect_int(s, kAccumulate, "accumulate", 0, 1));
  for (std::size_t d = 0; d < 3; ++d) {
    MUSTER_RETURN_IF_ERROR(expect_finite(s, d, "scale"));
    for (const std::size_t list : {kItems, kResults, kXOffset, kYOffset, kOffset, kLength})
      MUSTER_RETURN_IF_ERROR(expect_int(s, at(list, d), kNames[list], 0, d < dims ? kOffsetMax : 0));
    if (d >= dims) continue;
    const FieldLine line = FieldLine::of(s.args, x, y, d);
    if (Status fits = line.window.check(line.items); !fits.ok())
      return failure(fits.code(), "{}: spatial dim {}: {}", s.kernel, d, fits.message());
    MUSTER_RETURN_IF_ERROR(expect_int(s, at(kXOffset, d), "x_offset", 0, line.items - line.x_size));
    MUSTER_RETURN_IF_ERROR(
        expect_int(s, at(kYOffset, d), "y_offset", 0, line.window.results(line.items) - line.y_size));
  }
  for (std::size_t d = 0; d < dims; ++d)
    if (s.args.ints[at(kLength, d)] == 0) return {};  // a shard without results lies anywhere
  for (std::size_t d = 0; d < dims; ++d) {
    const FieldLine line = FieldLine::of(s.args, x, y, d);
    const std::int64_t begin = boxes_results ? line.y_begin : line.x_begin;
    const std::int64_t size = boxes_results ? line.y_size : line.x_size;
    MUSTER_RETURN_IF_ERROR(expect_int(s, at(kOffset, d), "offset", begin, begin + size));
    MUSTER_RETURN_IF_ERROR(expect_int(s, at(kLength, d), "length", 0, begin + size - line.begin));
  }
  return {};
}

Status check_fields(const Subject& s, std::size_t x, std::size_t y, bool boxes_results) {
  MUSTER_RETURN_IF_ERROR(expect_dtype_in(s, x, {MUSTER_F32, MUSTER_BF16}));
  MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, y, x));
  const Tensor& field = s.tensor(x);
  if (field.dims < 3 || field.dims > 5)
    return failure(Code::kBadArgument,
                   "{}: {} has shape {}; samples, 1 to 3 spatial dims and channels are expected", s.kernel,
                   s.name(x), shape_text(field));
  MUSTER_RETURN_IF_ERROR(expect_dims(s, y, field.dims));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, y, 0, x, 0));
  MUSTER_RETURN_IF_ERROR(expect_equal_size(s, y, -1, x, -1));
  MUSTER_RETURN_IF_ERROR(expect_size_in(s, x, -1, 0, kRowElementsMax));
  return check_numbers(s, field, s.tensor(y), boxes_results);
}

Status check_forward(const Args& args) {
  return check_fields({"interpolate_forward", kForwardOperands, args}, 0, 1, true);
}
Status check_backward(const Args& args) {
  return check_fields({"interpolate_backward", kBackwardOperands, args}, 1, 0, false);
}

// ---- parts -------------------------------------------------------------------------------------

// The box as lines, with one element for each dim that the field does not have.
struct FieldBox {
  std::array<std::int64_t, 3> begin{0, 0, 0}, length{1, 1, 1};
  std::int64_t samples, channels;
  explicit FieldBox(const Args& args, const Tensor& field)
      : samples(field.size[0]), channels(field.size[static_cast<std::size_t>(field.dims) - 1]) {
    for (std::size_t d = 0; d + 2 < static_cast<std::size_t>(field.dims); ++d) {
      begin[d] = args.ints[kLists + kOffset * 3 + d];
      length[d] = args.ints[kLists + kLength * 3 + d];
    }
  }
  std::int64_t rows_per_part() const {
    return std::max<std::int64_t>(
        1, kElementsPerPart / std::max<std::int64_t>(1, length[1] * length[2] * channels));
  }
  std::uint32_t parts() const {
    return length[1] * length[2] == 0
               ? 0
               : static_cast<std::uint32_t>(samples) * parts_of(length[0], rows_per_part());
  }
};

std::uint32_t parts(const Args& args) {
  return FieldBox(args, args.tensors[1]).parts();
}

// Each element of a tile of `to` gets its addends of `from`, dim by dim in their order.
template<class E>
void mix(const Tensor& from, const Tensor& to, std::int64_t sample, const std::array<DimAddends, 3>& addends,
         const std::array<std::int64_t, 3>& first, const std::array<std::int64_t, 3>& count, Write how,
         std::int64_t channels) {
  const auto dims = static_cast<std::size_t>(to.dims) - 2;
  const auto stride = [dims](const Tensor& t, std::size_t d) { return d < dims ? t.stride[d + 1] : 0; };
  const std::int64_t from_step = from.stride[dims + 1], to_step = to.stride[dims + 1];
  float* const sums = scratch<MixedRow>(channels);
  for (std::int64_t i = 0; i < count[0]; ++i)
    for (std::int64_t j = 0; j < count[1]; ++j)
      for (std::int64_t k = 0; k < count[2]; ++k) {
        std::fill_n(sums, channels, 0.0F);
        for (const Addend& a : addends[0].of(i))
          for (const Addend& b : addends[1].of(j))
            for (const Addend& c : addends[2].of(k)) {
              const E* const source = elements<E>(from) + sample * from.stride[0] + a.at * stride(from, 0) +
                                      b.at * stride(from, 1) + c.at * stride(from, 2);
              const float weight = a.weight * b.weight * c.weight;
              for (std::int64_t each = 0; each < channels; ++each)
                sums[each] += weight * load(source + each * from_step);
            }
        E* const target = elements<E>(to) + sample * to.stride[0] + (first[0] + i) * stride(to, 0) +
                          (first[1] + j) * stride(to, 1) + (first[2] + k) * stride(to, 2);
        for (std::int64_t each = 0; each < channels; ++each)
          store(target + each * to_step,
                how == Write::kAdd ? load(target + each * to_step) + sums[each] : sums[each]);
      }
}

// `forward`: results from items, else gradients of items from those of results.
void run_pass(const Args& args, std::uint32_t part, bool forward) {
  const Tensor& from = args.tensors[0];
  const Tensor& to = args.tensors[1];
  const FieldBox box(args, to);
  const std::uint32_t of_sample = parts_of(box.length[0], box.rows_per_part());
  const Range rows = range_of(box.length[0], box.rows_per_part(), part % of_sample);
  const auto dims = static_cast<std::size_t>(to.dims) - 2;
  thread_local std::array<DimAddends, 3> addends;
  std::array<std::int64_t, 3> first{0, 0, 0}, count{1, 1, 1};
  for (std::size_t d = 0; d < 3; ++d) {
    if (d >= dims) {
      addends[d].all.assign(1, {0, 1.0F});
      addends[d].ends.assign(1, 1);
      continue;
    }
    const FieldLine line = forward ? FieldLine::of(args, from, to, d) : FieldLine::of(args, to, from, d);
    const std::int64_t begin = line.begin + (d == 0 ? rows.begin : 0);
    count[d] = d == 0 ? rows.end - rows.begin : line.length;
    first[d] = begin - (forward ? line.y_begin : line.x_begin);
    if (forward)
      line.add_items(begin, count[d], addends[d]);
    else
      line.add_results(begin, count[d], addends[d]);
  }
  dispatch_float(to.dtype, [&]<class E>(std::type_identity<E>) {
    mix<E>(from, to, part / of_sample, addends, first, count, write_of(args.ints[kAccumulate]), box.channels);
  });
}

void run_forward(const Args& args, std::uint32_t part) {
  run_pass(args, part, true);
}
void run_backward(const Args& args, std::uint32_t part) {
  run_pass(args, part, false);
}

}  // namespace

std::span<const Kernel> rows() {
  static constexpr std::array<Kernel, 2> kRows{{
      {MUSTER_KERNEL_INTERPOLATE_FORWARD, "interpolate_forward", kForwardOperands, kInts, 3, check_forward,
       parts, launchers(on_host<run_forward>)},
      {MUSTER_KERNEL_INTERPOLATE_BACKWARD, "interpolate_backward", kBackwardOperands, kInts, 3,
       check_backward, parts, launchers(on_host<run_backward>)},
  }};
  return kRows;
}

}  // namespace muster::kernels::interpolation
