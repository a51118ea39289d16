#include "api/client/redistributed.hpp"

#include "api/base/collective.hpp"
#include "api/base/dtype.hpp"
#include "api/shm/control.hpp"

#include <algorithm>
#include <limits>
#include <span>
#include <string>

namespace muster::client {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr Wide kBytesMax = static_cast<Wide>(std::numeric_limits<std::int64_t>::max());

// `name`: of the argument. The engine checks whether the view lies in its buffer.
Status check_view(const muster_tensor& view, const char* name, const Layout& layout, std::int64_t rank) {
  const std::size_t element = dtype_bytes(view.dtype);
  if (element == 0)
    return failure(Code::kBadArgument, "{} has dtype {}, which does not exist", name, view.dtype);
  if (view.dims < 0 || view.dims > MUSTER_TENSOR_DIMS_MAX)
    return failure(Code::kBadArgument, "{} has {} dims; 0 to {} are possible", name, view.dims,
                   MUSTER_TENSOR_DIMS_MAX);
  const std::span<const std::int64_t> shape(view.size, static_cast<std::size_t>(view.dims));
  const Index local = layout.local_shape(rank);
  const std::span<const std::int64_t> expected(local.data(), layout.dims());
  if (!std::ranges::equal(shape, expected))
    return failure(Code::kBadArgument, "{} has shape {}, but in its layout rank {} has {}", name,
                   to_text(shape), rank, to_text(expected));
  if (layout.local_elements(rank) == 0) return {};
  Wide last = 0;
  for (int dim = 0; dim < view.dims; ++dim) {
    if (view.size[dim] == 1) continue;
    if (view.stride[dim] < 1)
      return failure(Code::kBadArgument, "{} has stride {} in dim {}; it must be 1 or more", name,
                     view.stride[dim], dim);
    last += static_cast<Wide>(view.size[dim] - 1) * static_cast<Wide>(view.stride[dim]);
    if (last > kBytesMax / element)
      return failure(Code::kBadArgument, "{} spans more than 2^63 bytes: stride {} in dim {}", name,
                     view.stride[dim], dim);
  }
  return {};
}

// The block of a view that begins at `at`.
muster_tensor block_of(const muster_tensor& view, const Index& at, const Index& length) {
  muster_tensor block = view;
  std::uint64_t elements = 0;  // before the block
  for (std::size_t dim = 0; dim < static_cast<std::size_t>(view.dims); ++dim) {
    elements += static_cast<std::uint64_t>(at[dim] * view.stride[dim]);
    block.size[dim] = length[dim];
  }
  block.offset_bytes += elements * dtype_bytes(view.dtype);
  return block;
}

// Whether two views of one shape are the same memory in the same order.
bool same_place(const muster_tensor& a, const muster_tensor& b) {
  if (a.buffer != b.buffer || a.offset_bytes != b.offset_bytes) return false;
  for (int dim = 0; dim < a.dims; ++dim)
    if (a.size[dim] > 1 && a.stride[dim] != b.stride[dim]) return false;
  return true;
}

// Adds a face for what goes to, or comes from, `peer`. Both ends list the blocks of a pair in one order, so a
// block's number in the pair is its tag.
void add_face(std::vector<muster_face>& faces, std::int64_t peer, const muster_tensor& view) {
  const bool another = faces.empty() || faces.back().peer != peer;
  faces.push_back({static_cast<std::int32_t>(peer), another ? 0 : faces.back().tag + 1, view});
}

Result<Redistributed> exchange(const Redistribution& redistribution, std::int64_t rank,
                               const muster_tensor& source, const muster_tensor& target) {
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Overlap> sends, redistribution.sends(rank));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Overlap> receives, redistribution.receives(rank));
  Redistributed made;
  made.collective.op = MUSTER_EXCHANGE;
  const auto stays = [&](const Overlap& block) {
    return block.from == block.to && same_place(block_of(source, block.taken, block.box.length),
                                                block_of(target, block.put, block.box.length));
  };
  for (const Overlap& block : sends)
    if (!stays(block)) add_face(made.sends, block.to, block_of(source, block.taken, block.box.length));
  for (const Overlap& block : receives)
    if (!stays(block)) add_face(made.receives, block.from, block_of(target, block.put, block.box.length));
  if (made.sends.size() + made.receives.size() > shm::kFacesMax)
    return fail(Code::kNoResource,
                "rank {} would have {} sends and {} receives; one exchange has at most {} faces at a member",
                rank, made.sends.size(), made.receives.size(), shm::kFacesMax);
  return made;
}

bool is_dense(const muster_tensor& view) {
  std::int64_t stride = 1;
  for (int dim = view.dims; dim-- > 0;) {
    if (view.size[dim] > 1 && view.stride[dim] != stride) return false;
    stride *= view.size[dim];
  }
  return true;
}

std::string strides_text(const muster_tensor& view) {
  return to_text(std::span(view.stride, static_cast<std::size_t>(view.dims)));
}

// From partial to replicate along the axis that has all ranks.
Result<Redistributed> all_reduce(const Redistribution& redistribution, std::int64_t rank,
                                 const muster_tensor& source, const muster_tensor& target) {
  for (const muster_tensor* view : {&source, &target})
    if (!is_dense(*view))
      return fail(Code::kUnsupported,
                  "this is an all_reduce, which takes arrays without gaps; {} has strides {}: copy it "
                  "(muster_copy), or plan views without gaps",
                  view == &source ? "source" : "target", strides_text(*view));
  Redistributed made;
  made.collective.op = MUSTER_ALL_REDUCE;
  made.collective.dtype = source.dtype;
  made.collective.redop = redistribution.reductions()[0].redop;
  made.collective.source = {source.buffer, source.offset_bytes};
  made.collective.target = {target.buffer, target.offset_bytes};
  made.collective.count = static_cast<std::uint64_t>(redistribution.from().local_elements(rank));
  return made;
}

// The operations that a redistribution takes, in their order.
std::string operations_of(const Redistribution& redistribution) {
  std::vector<std::string> operations;
  for (const AxisReduction& reduction : redistribution.reductions())
    operations.push_back(fmt::format("an all_reduce by {} along {}", redop_name(reduction.redop),
                                     redistribution.from().axis_text(reduction.axis)));
  if (redistribution.moves())
    operations.push_back(operations.empty() ? "a redistribution to the layout that is not partial"
                                            : "a redistribution from the layout that is replicated there");
  if (redistribution.scale() != 1)
    operations.push_back(fmt::format("a product with {} (muster_axpby)", redistribution.scale()));
  return fmt::format("{}", fmt::join(operations, ", then "));
}

}  // namespace

Result<Redistributed> redistributed(const Redistribution& redistribution, std::int64_t rank,
                                    const muster_tensor& source, const muster_tensor& target) {
  const Layout& from = redistribution.from();
  MUSTER_RETURN_IF_ERROR(check_view(source, "source", from, rank));
  MUSTER_RETURN_IF_ERROR(check_view(target, "target", redistribution.to(), rank));
  if (source.dtype != target.dtype)
    return fail(Code::kBadArgument,
                "source has dtype {} and target dtype {}; a redistribution converts nothing", source.dtype,
                target.dtype);
  const std::vector<AxisReduction>& reductions = redistribution.reductions();
  if (reductions.empty() && redistribution.scale() == 1)
    return exchange(redistribution, rank, source, target);
  if (reductions.size() == 1 && redistribution.scale() == 1 && !redistribution.moves() &&
      from.axes()[reductions[0].axis].ranks == from.ranks())
    return all_reduce(redistribution, rank, source, target);
  return fail(Code::kUnsupported, "one plan cannot do this, but several can: {}",
              operations_of(redistribution));
}

}  // namespace muster::client
