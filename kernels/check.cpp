#include "kernels/check.hpp"

#include "api/base/collective/overlap.hpp"
#include "kernels/element.hpp"

#include <algorithm>
#include <cmath>

namespace muster::kernels {
namespace {

const char* ordinal(std::int32_t dim) {
  static constexpr std::array<const char*, MUSTER_TENSOR_DIMS_MAX> kNames{
      "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth"};
  return kNames[static_cast<std::size_t>(dim)];
}

std::size_t from_end(std::int32_t dim, const Tensor& t) {
  return static_cast<std::size_t>(dim < 0 ? dim + t.dims : dim);
}

// Whether every element has an address of its own, which parts that write side by side need. Exact for views
// cut from a row-major or permuted buffer. It also refuses some unusual views whose elements are distinct.
bool elements_are_distinct(const Tensor& t) {
  std::array<std::size_t, MUSTER_TENSOR_DIMS_MAX> order{};  // dims of more than one element, by rising stride
  std::size_t used = 0;
  for (std::int32_t d = 0; d < t.dims; ++d) {
    const auto i = static_cast<std::size_t>(d);
    if (t.size[i] == 0) return true;
    if (t.size[i] == 1) continue;
    std::size_t at = used++;
    for (; at > 0 && t.stride[order[at - 1]] > t.stride[i]; --at) order[at] = order[at - 1];
    order[at] = i;
  }
  std::int64_t reach = 0;  // the largest offset within the dims visited so far
  for (std::size_t i = 0; i < used; ++i) {
    if (t.stride[order[i]] <= reach) return false;
    reach += (t.size[order[i]] - 1) * t.stride[order[i]];
  }
  return true;
}

// The address behind the last byte of a view that is not empty.
const std::byte* end_of(const Tensor& t) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(t.dims); ++d) last += (t.size[d] - 1) * t.stride[d];
  return t.data + (last + 1) * element_bytes(t.dtype);
}

Face face_of(const Tensor& t) {
  Face face;
  face.dtype = t.dtype;
  face.dims = t.dims;
  face.size = t.size;
  face.stride = t.stride;
  face.data = t.data;
  return face;
}

BytesShared overlap_of(const Tensor& a, const Tensor& b, OverlapBudget& budget) {
  if (a.count() == 0 || b.count() == 0 || a.data >= end_of(b) || b.data >= end_of(a))
    return BytesShared::kNone;
  return muster::overlap_of(face_of(a), face_of(b), budget);
}

bool same_view(const Tensor& a, const Tensor& b) {
  bool same = a.data == b.data && a.dtype == b.dtype && a.dims == b.dims;
  for (std::size_t d = 0; same && d < static_cast<std::size_t>(a.dims); ++d)
    same = a.size[d] == b.size[d] && (a.size[d] <= 1 || a.stride[d] == b.stride[d]);
  return same;
}

// An output must overlap no other operand, because parts run side by side and in any order.
Status check_apart(const Kernel& kernel, const Args& args) {
  OverlapBudget budget;
  for (std::size_t i = 0; i < args.tensors.size(); ++i) {
    if (kernel.operands[i].intent == Operand::kRead || !args.tensors[i].present()) continue;
    for (std::size_t j = 0; j < args.tensors.size(); ++j) {
      const bool counted = j < i && kernel.operands[j].intent != Operand::kRead;
      if (j == i || counted || !args.tensors[j].present()) continue;
      const bool may_be_it = static_cast<std::int32_t>(j) == kernel.in_place_of;
      if (may_be_it && same_view(args.tensors[i], args.tensors[j])) continue;
      const BytesShared found = overlap_of(args.tensors[i], args.tensors[j], budget);
      if (found == BytesShared::kNone) continue;
      return failure(Code::kBadArgument, "{}: {} and {} {}; what is written must lie apart from the rest",
                     kernel.name, kernel.operands[i].name, kernel.operands[j].name,
                     found == BytesShared::kSome ? "overlap" : "interleave in a way that is not told apart");
    }
  }
  return {};
}

std::string stride_text(const Tensor& t) {
  return fmt::format("[{}]", fmt::join(t.stride.begin(), t.stride.begin() + t.dims, ", "));
}

}  // namespace

std::string shape_text(const Tensor& tensor) {
  if (tensor.dims == 0) return "a scalar";
  return fmt::format("[{}]", fmt::join(tensor.size.begin(), tensor.size.begin() + tensor.dims, ", "));
}

std::string dtype_text(muster_dtype dtype) {
  return dtype_bytes(dtype) == 0 ? fmt::format("dtype {}", dtype) : dtype_name(dtype);
}

Status expect_dims(const Subject& s, std::size_t operand, std::int32_t dims) {
  const Tensor& t = s.tensor(operand);
  if (!t.present() || t.dims == dims) return {};
  return failure(Code::kBadArgument, "{}: {} is {} and has {} dims; it must have {}", s.kernel,
                 s.name(operand), shape_text(t), t.dims, dims);
}

Status expect_dtype_in(const Subject& s, std::size_t operand, std::initializer_list<muster_dtype> allowed) {
  const Tensor& t = s.tensor(operand);
  if (!t.present() || std::find(allowed.begin(), allowed.end(), t.dtype) != allowed.end()) return {};
  std::string names;
  for (const muster_dtype dtype : allowed) names += (names.empty() ? "" : ", ") + dtype_text(dtype);
  return failure(Code::kBadArgument, "{}: {} is {}; it must be {}{}", s.kernel, s.name(operand),
                 dtype_text(t.dtype), allowed.size() > 1 ? "one of " : "", names);
}

Status expect_same_dtype(const Subject& s, std::size_t operand, std::size_t like) {
  const Tensor& t = s.tensor(operand);
  const Tensor& model = s.tensor(like);
  if (!t.present() || !model.present() || t.dtype == model.dtype) return {};
  return failure(Code::kBadArgument, "{}: {} is {}, but {} is {}: their dtypes must be equal", s.kernel,
                 s.name(operand), dtype_text(t.dtype), s.name(like), dtype_text(model.dtype));
}

Status expect_same_shape(const Subject& s, std::size_t operand, std::size_t like) {
  const Tensor& t = s.tensor(operand);
  const Tensor& model = s.tensor(like);
  if (!t.present() || !model.present()) return {};
  if (t.dims == model.dims && std::equal(t.size.begin(), t.size.begin() + t.dims, model.size.begin()))
    return {};
  return failure(Code::kBadArgument, "{}: {} is {}, but {} is {}: their shapes must be equal", s.kernel,
                 s.name(operand), shape_text(t), s.name(like), shape_text(model));
}

Status expect_like(const Subject& s, std::initializer_list<std::size_t> operands, std::size_t like) {
  for (const std::size_t operand : operands) {
    MUSTER_RETURN_IF_ERROR(expect_same_shape(s, operand, like));
    MUSTER_RETURN_IF_ERROR(expect_same_dtype(s, operand, like));
  }
  return {};
}

Status expect_size(const Subject& s, std::size_t operand, std::int32_t dim, std::int64_t value) {
  const Tensor& t = s.tensor(operand);
  if (!t.present()) return {};
  const std::size_t d = from_end(dim, t);
  if (t.size[d] == value) return {};
  return failure(Code::kBadArgument, "{}: {} is {}: its {} size must be {}", s.kernel, s.name(operand),
                 shape_text(t), ordinal(static_cast<std::int32_t>(d)), value);
}

Status expect_size_in(const Subject& s, std::size_t operand, std::int32_t dim, std::int64_t low,
                      std::int64_t high) {
  const Tensor& t = s.tensor(operand);
  if (!t.present()) return {};
  const std::size_t d = from_end(dim, t);
  if (t.size[d] >= low && t.size[d] <= high) return {};
  return failure(Code::kBadArgument, "{}: {} is {}: its {} size must lie in {}..{}", s.kernel,
                 s.name(operand), shape_text(t), ordinal(static_cast<std::int32_t>(d)), low, high);
}

Status expect_equal_size(const Subject& s, std::size_t operand, std::int32_t dim, std::size_t like,
                         std::int32_t like_dim) {
  const Tensor& t = s.tensor(operand);
  const Tensor& model = s.tensor(like);
  if (!t.present() || !model.present()) return {};
  const std::size_t d = from_end(dim, t);
  const std::size_t m = from_end(like_dim, model);
  if (t.size[d] == model.size[m]) return {};
  return failure(Code::kBadArgument, "{}: {} is {}, but {} is {}: {}'s {} size must equal {}'s {}", s.kernel,
                 s.name(operand), shape_text(t), s.name(like), shape_text(model), s.name(operand),
                 ordinal(static_cast<std::int32_t>(d)), s.name(like), ordinal(static_cast<std::int32_t>(m)));
}

Status expect_count(const Subject& s, std::size_t operand, std::int64_t value) {
  const Tensor& t = s.tensor(operand);
  if (!t.present() || t.count() == value) return {};
  return failure(Code::kBadArgument, "{}: {} is {}: it must have {} element{}", s.kernel, s.name(operand),
                 shape_text(t), value, value == 1 ? "" : "s");
}

Status expect_int(const Subject& s, std::size_t index, const char* name, std::int64_t low,
                  std::int64_t high) {
  const std::int64_t value = s.args.ints[index];
  if (value >= low && value <= high) return {};
  return failure(Code::kBadArgument, "{}: {} is {}; it must lie in {}..{}", s.kernel, name, value, low, high);
}

Status expect_finite(const Subject& s, std::size_t index, const char* name) {
  if (std::isfinite(s.args.reals[index])) return {};
  return failure(Code::kBadArgument, "{}: {} is {}; it must be finite", s.kernel, name, s.args.reals[index]);
}

Status validate(const Kernel& kernel, const Args& args) {
  if (args.tensors.size() != kernel.operands.size())
    return failure(Code::kBadArgument, "{}: {} operands were given; it takes {}", kernel.name,
                   args.tensors.size(), kernel.operands.size());
  if (args.ints.size() != kernel.ints || args.reals.size() != kernel.reals)
    return failure(Code::kBadArgument, "{}: {} ints and {} reals were given; it takes {} and {}", kernel.name,
                   args.ints.size(), args.reals.size(), kernel.ints, kernel.reals);
  for (std::size_t i = 0; i < kernel.operands.size(); ++i) {
    const Operand& operand = kernel.operands[i];
    const Tensor& t = args.tensors[i];
    if (!t.present()) {
      if (operand.optional) continue;
      return failure(Code::kBadArgument,
                     "{}: {} is absent; only an operand marked (opt) may be muster_none()", kernel.name,
                     operand.name);
    }
    if (element_bytes(t.dtype) == 0)
      return failure(Code::kBadArgument, "{}: {} has {}; see the MUSTER_F32… list for valid ones",
                     kernel.name, operand.name, dtype_text(t.dtype));
    if (t.dims < 0 || t.dims > MUSTER_TENSOR_DIMS_MAX)
      return failure(Code::kBadArgument, "{}: {} has {} dims; 0..{} are possible", kernel.name, operand.name,
                     t.dims, MUSTER_TENSOR_DIMS_MAX);
    if (operand.intent != Operand::kRead && !elements_are_distinct(t))
      return failure(Code::kBadArgument,
                     "{}: {} is {} with strides {}: elements of an output must not overlap", kernel.name,
                     operand.name, shape_text(t), stride_text(t));
  }
  MUSTER_RETURN_IF_ERROR(kernel.check(args));
  return check_apart(kernel, args);
}

void prepare(const Kernel& kernel, Args& args) {
  if (kernel.has_partials) args.partials.resize(kernel.parts(args));
  if (kernel.prepare != nullptr) kernel.prepare(args);
}

}  // namespace muster::kernels
