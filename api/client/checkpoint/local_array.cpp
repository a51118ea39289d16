#include "api/client/checkpoint/local_array.hpp"

#include "api/base/checkpoint/names.hpp"
#include "api/base/dtype.hpp"
#include "api/base/empty_view.hpp"
#include "api/client/layout_handle.hpp"
#include "api/client/set/resources.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace muster::client {
namespace {

// The coordinates along the layout's axes, if all of them are dims of the session's mesh.
Result<std::optional<std::int64_t>> rank_in_mesh(muster_session* session, const Layout& layout) {
  std::int64_t rank = 0;
  for (const Layout::Axis& axis : layout.axes()) {
    if (axis.name.empty()) return std::nullopt;
    std::int32_t coordinate = 0, size = 0;
    const muster_status_t code = muster_mesh_coords(session, axis.name.c_str(), &coordinate, &size);
    if (code == MUSTER_ERR_NOT_FOUND || (code == MUSTER_OK && size != axis.ranks)) return std::nullopt;
    MUSTER_RETURN_IF_ERROR(status_of(code));
    rank = rank * size + coordinate;
  }
  return rank;
}

Result<std::int64_t> rank_in(const GroupMembers& members, const std::string& name, const Layout& layout) {
  MUSTER_ASSIGN_OR_RETURN(const std::optional<std::int64_t> rank, rank_in_mesh(members.session(), layout));
  if (rank) return *rank;
  if (layout.ranks() == static_cast<std::int64_t>(members.count()))
    return static_cast<std::int64_t>(members.index());
  return fail(Code::kBadArgument,
              "the layout of {} has {} ranks, but the group has {}; give as many, or name its axes as the "
              "mesh's dims are",
              checkpoint::tensor_text(name), layout.ranks(), members.count());
}

Status check_partial(const std::string& name, const Layout& layout) {
  for (std::size_t i = 0; i < layout.axes().size(); ++i)
    if (layout.axes()[i].placement.kind == Placement::Kind::kPartial && layout.axes()[i].ranks > 1)
      return failure(Code::kBadArgument, "{} is partial along {}: what is saved and loaded has been reduced",
                     checkpoint::tensor_text(name), layout.axis_text(i));
  return {};
}

// Elements from the first to behind the last one; nothing where that is no number of bytes.
std::optional<std::uint64_t> span_of(const muster_tensor& view) {
  constexpr std::int64_t kMost = std::int64_t{1} << 58;
  std::int64_t last = 0;
  // A view without elements has no bytes, whatever its strides are.
  if (has_no_elements(view)) return 0;
  for (std::int32_t dim = 0; dim < view.dims; ++dim) {
    if (view.size[dim] == 1) continue;
    if (view.stride[dim] < 1 || view.stride[dim] > (kMost - last) / (view.size[dim] - 1)) return std::nullopt;
    last += (view.size[dim] - 1) * view.stride[dim];
  }
  return static_cast<std::uint64_t>(last) + 1;
}

Status check_shape(const std::string& name, const muster_tensor& view, const Layout& layout,
                   std::int64_t rank) {
  const std::size_t element = dtype_bytes(view.dtype);
  if (element == 0)
    return failure(Code::kBadArgument, "{} has dtype {}, which is none", checkpoint::tensor_text(name),
                   view.dtype);
  const Index local = layout.local_shape(rank);
  const bool counted = view.dims >= 0 && view.dims <= MUSTER_TENSOR_DIMS_MAX;
  const std::span shape(view.size, counted ? static_cast<std::size_t>(view.dims) : 0);
  if (counted && std::ranges::equal(shape, std::span(local).first(layout.dims()))) return {};
  return failure(Code::kBadArgument, "the array of {} has shape {}, but in its layout this rank has {}",
                 checkpoint::tensor_text(name), to_text(shape),
                 to_text(std::span(local).first(layout.dims())));
}

// Where the view begins in this process.
Result<std::byte*> memory_of(muster_session* session, const std::string& name, const muster_tensor& view) {
  const std::optional<std::uint64_t> elements = span_of(view);
  if (!elements)
    return fail(
        Code::kBadArgument, "the array of {} has strides {}; they must be 1 or more, and not so large",
        checkpoint::tensor_text(name), to_text(std::span(view.stride, static_cast<std::size_t>(view.dims))));
  if (*elements == 0) return nullptr;
  muster_buffer_info buffer = MUSTER_BUFFER_INFO_INIT;
  if (const Status status = status_of(muster_buffer_query(session, view.buffer, &buffer)); !status.ok())
    return fail(Status(status.code(),
                       fmt::format("the array of {}: {}", checkpoint::tensor_text(name), status.message())));
  const std::uint64_t bytes = *elements * dtype_bytes(view.dtype);
  if (view.offset_bytes > buffer.bytes || bytes > buffer.bytes - view.offset_bytes)
    return fail(Code::kBadArgument, "the array of {} takes bytes {} to {} of a buffer of {}",
                checkpoint::tensor_text(name), view.offset_bytes, view.offset_bytes + bytes, buffer.bytes);
  if (buffer.address == nullptr)
    return fail(Code::kUnsupported, "the array of {} lies in memory that this process does not see",
                checkpoint::tensor_text(name));
  return static_cast<std::byte*>(buffer.address) + view.offset_bytes;
}

Result<LocalArray> local_array(const GroupMembers& members, const muster_checkpoint_tensor& said) {
  LocalArray array;
  array.name = said.name == nullptr ? "" : said.name;
  MUSTER_RETURN_IF_ERROR(checkpoint::check_tensor_name(array.name));
  if (said.layout == nullptr)
    return fail(Code::kBadArgument, "{} has no layout", checkpoint::tensor_text(array.name));
  const Layout& layout = said.layout->layout;
  MUSTER_RETURN_IF_ERROR(check_partial(array.name, layout));
  MUSTER_ASSIGN_OR_RETURN(const std::int64_t rank, rank_in(members, array.name, layout));
  MUSTER_RETURN_IF_ERROR(check_shape(array.name, said.array, layout, rank));
  MUSTER_ASSIGN_OR_RETURN(array.first, memory_of(members.session(), array.name, said.array));
  array.dtype = said.array.dtype;
  array.dims = layout.dims();
  array.shape = layout.shape();
  array.pieces = layout.pieces(rank);
  std::copy_n(said.array.stride, array.dims, array.strides.begin());
  return array;
}

}  // namespace

checkpoint::OwnTensor LocalArray::own() const {
  checkpoint::OwnTensor tensor{name, dtype, dims, shape};
  for (const Layout::Piece& piece : pieces) tensor.boxes.push_back(piece.box);
  return tensor;
}

Result<std::vector<LocalArray>> local_arrays(const GroupMembers& members,
                                             const muster_checkpoint_tensor* tensors, std::size_t count) {
  if (tensors == nullptr && count > 0)
    return fail(Code::kBadArgument, "tensors is NULL, but tensor_count is {}", count);
  std::vector<LocalArray> arrays;
  std::set<std::string> names;
  for (std::size_t i = 0; i < count; ++i) {
    MUSTER_ASSIGN_OR_RETURN(LocalArray array, local_array(members, tensors[i]));
    if (!names.insert(array.name).second)
      return fail(Code::kBadArgument, "{} stands twice in the list", checkpoint::tensor_text(array.name));
    arrays.push_back(std::move(array));
  }
  return arrays;
}

}  // namespace muster::client
