#include "api/client/entries/redistributed.hpp"

#include "api/base/collective/collective.hpp"
#include "api/base/dtype.hpp"
#include "api/base/empty_view.hpp"
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

// Adds a face for the data that goes to `peer`, or comes from it. Both ends list the blocks of a pair in one
// order, so a block's number in the pair is its tag.
void add_face(std::vector<muster_face>& faces, std::int64_t peer, const muster_tensor& view) {
  const bool another = faces.empty() || faces.back().peer != peer;
  faces.push_back({static_cast<std::int32_t>(peer), another ? 0 : faces.back().tag + 1, view});
}

Result<Redistributed> exchange(const Redistribution& redistribution, std::int64_t rank,
                               const muster_tensor& source, const muster_tensor& target) {
  if (const auto crowded = redistribution.crowded(shm::kFacesMax))
    return fail(
        Code::kNoResource,
        "rank {} would have more than {} faces, sends and receives together, of which one exchange has "
        "no more; redistribute the tensor in parts",
        *crowded, shm::kFacesMax);
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Redistribution::Overlap> sends, redistribution.sends(rank));
  MUSTER_ASSIGN_OR_RETURN(const std::vector<Redistribution::Overlap> receives, redistribution.receives(rank));
  Redistributed made;
  made.collective.op = MUSTER_EXCHANGE;
  const auto stays = [&](const Redistribution::Overlap& block) {
    return block.from == block.to && same_place(block_of(source, block.taken, block.box.length),
                                                block_of(target, block.put, block.box.length));
  };
  for (const Redistribution::Overlap& block : sends)
    if (!stays(block)) add_face(made.sends, block.to, block_of(source, block.taken, block.box.length));
  for (const Redistribution::Overlap& block : receives)
    if (!stays(block)) add_face(made.receives, block.from, block_of(target, block.put, block.box.length));
  return made;
}

// A view without elements has no gaps, whatever its strides are.
bool is_dense(const muster_tensor& view) {
  if (has_no_elements(view)) return true;
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

// The blocks of a reduce-scatter: one each, if that is all, else pieces.
void cut(const std::vector<std::vector<Block>>& blocks, Redistributed& made) {
  if (std::ranges::all_of(blocks, [](const auto& block) { return block.size() <= 1; })) {
    for (const std::vector<Block>& block : blocks) {
      made.counts.push_back(block.empty() ? 0 : block[0].count);
      made.offsets.push_back(block.empty() ? 0 : block[0].offset);
    }
    return;
  }
  for (const std::vector<Block>& block : blocks) {
    made.piece_counts.push_back(static_cast<std::uint32_t>(block.size()));
    for (const Block& piece : block) made.pieces.push_back({piece.offset, piece.count});
  }
}

// From partial to replicate: an all-reduce. From partial to a part of the sum at each rank: a reduce-scatter.
Result<Redistributed> reduction_of(const Redistribution& redistribution, std::int64_t rank,
                                   const muster_tensor& source, const muster_tensor& target) {
  MUSTER_ASSIGN_OR_RETURN(const Redistribution::PartReduction reduction, redistribution.part_reduction(rank));
  Redistributed made;
  muster_collective& c = made.collective;
  c.op = redistribution.moves() ? MUSTER_REDUCE_SCATTER : MUSTER_ALL_REDUCE;
  for (const muster_tensor* view : {&source, &target})
    if (!is_dense(*view))
      return fail(
          Code::kUnsupported,
          "this is {} {}, which takes arrays without gaps; {} has strides {}: copy it (muster_copy), or "
          "plan views without gaps",
          c.op == MUSTER_ALL_REDUCE ? "an" : "a", op_name(c.op), view == &source ? "source" : "target",
          strides_text(*view));
  if (static_cast<std::int64_t>(reduction.ranks.size()) < redistribution.from().ranks())
    made.ranks = reduction.ranks;
  c.dtype = source.dtype;
  c.redop = reduction.redop;
  c.source = {source.buffer, source.offset_bytes};
  c.target = {target.buffer, target.offset_bytes};
  if (c.op == MUSTER_ALL_REDUCE) {
    c.count = static_cast<std::uint64_t>(redistribution.from().local_elements(rank));
    return made;
  }
  cut(reduction.blocks, made);
  if (!made.pieces.empty() && c.source.buffer == c.target.buffer &&
      c.source.offset_bytes == c.target.offset_bytes)
    return fail(Code::kBadArgument,
                "target begins where source does, but what rank {} keeps does not lie end to end there; give "
                "it memory of its own",
                rank);
  return made;
}

// The operations that a redistribution takes, in their order.
std::string operations_of(const Redistribution& redistribution) {
  std::vector<std::string> operations;
  for (const Redistribution::AxisReduction& reduction : redistribution.reductions())
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

muster_collective Redistributed::in(muster_group group) const {
  muster_collective c = collective;
  c.group = group;
  c.sends = sends.data();
  c.send_count = static_cast<std::uint32_t>(sends.size());
  c.receives = receives.data();
  c.receive_count = static_cast<std::uint32_t>(receives.size());
  if (!counts.empty()) c.source_blocks = {counts.data(), offsets.data(), nullptr, nullptr};
  if (!piece_counts.empty()) c.source_blocks = {nullptr, nullptr, piece_counts.data(), pieces.data()};
  c.site = "muster_plan_redistribution";
  return c;
}

Result<Redistributed> redistributed(const Redistribution& redistribution, std::int64_t rank,
                                    const muster_tensor& source, const muster_tensor& target) {
  const Layout& from = redistribution.from();
  MUSTER_RETURN_IF_ERROR(check_view(source, "source", from, rank));
  MUSTER_RETURN_IF_ERROR(check_view(target, "target", redistribution.to(), rank));
  if (source.dtype != target.dtype)
    return fail(Code::kBadArgument,
                "source has dtype {} and target dtype {}; a redistribution converts nothing", source.dtype,
                target.dtype);
  if (redistribution.reductions().empty() && redistribution.scale() == 1)
    return exchange(redistribution, rank, source, target);
  if (redistribution.is_part_reduction()) return reduction_of(redistribution, rank, source, target);
  return fail(Code::kUnsupported, "one plan cannot do this, but several can: {}",
              operations_of(redistribution));
}

}  // namespace muster::client
