#include "daemon/engine/session/resolve.hpp"

#include "api/base/dtype.hpp"
#include "api/base/empty_view.hpp"
#include "api/base/words.hpp"
#include "api/shm/message.hpp"
#include "api/shm/said_collective.hpp"
#include "api/shm/tail.hpp"
#include "kernels/check.hpp"
#include "kernels/table.hpp"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>
#include <utility>

namespace muster::engine {
namespace {

__extension__ using Wide = unsigned __int128;

// Bounds the product of the nonzero sizes of an empty view: its kernel has loops of these lengths.
constexpr std::uint64_t kEmptySizesMax = std::uint64_t{1} << 31;

// Bytes from the first to one past the last element; 0 for an empty view. A view may not have more elements
// than fit there: a few bytes read over and over would keep the shared workers busy without end.
Result<Wide> extent_bytes(const muster_tensor& tensor, const char* name) {
  constexpr Wide kElementsMax = std::numeric_limits<std::int64_t>::max();
  Wide last = 0;      // capped after each dim: products of 64-bit client numbers would overflow their sum
  Wide elements = 1;  // the same; sizes of 0 left out
  const bool empty = has_no_elements(tensor);
  for (std::int32_t d = 0; d < tensor.dims; ++d) {
    const std::int64_t size = tensor.size[d];
    const std::int64_t stride = empty ? 1 : tensor.stride[d];
    if (size < 0 || stride < 0)
      return fail(Code::kBadArgument, "{}: size {} and stride {} of dim {} must not be negative", name, size,
                  stride, d);
    if (size > 1 && stride == 0)
      return fail(Code::kBadArgument, "{}: stride 0 of dim {} with size {} would repeat one element", name, d,
                  size);
    if (size > 0) elements = std::min(elements * static_cast<Wide>(size), kElementsMax);
    if (size > 1 && !empty)
      last = std::min(last + static_cast<Wide>(size - 1) * static_cast<Wide>(stride), kElementsMax);
  }
  if (!empty && elements > last + 1)
    return fail(Code::kBadArgument,
                "{}: {} elements are seen in a range of {}; give strides under which none repeats", name,
                static_cast<std::uint64_t>(elements), static_cast<std::uint64_t>(last + 1));
  if (empty && elements > kEmptySizesMax)
    return fail(Code::kBadArgument, "{}: an empty view whose other sizes multiply to {}; {} is the most",
                name, static_cast<std::uint64_t>(elements), kEmptySizesMax);
  return empty ? Wide{0} : (last + 1) * dtype_bytes(tensor.dtype);
}

void hold_buffer(scheduler::Plan& plan, std::uint64_t handle) {
  const Handle buffer(handle);
  const bool held = std::find(plan.buffers.begin(), plan.buffers.end(), buffer) != plan.buffers.end();
  if (handle != 0 && !held) plan.buffers.push_back(buffer);
}

Status check_alignment(const muster_range& range, std::size_t element, const char* name) {
  if (range.offset_bytes % element == 0) return {};
  return failure(Code::kBadArgument, "{}: offset {} is not a multiple of the element's {} bytes", name,
                 range.offset_bytes, element);
}

Result<std::byte*> resolve_range(const SessionBuffers& buffers, const muster_range& range,
                                 std::span<const Block> blocks, muster_dtype dtype, const char* name) {
  const std::uint64_t count = extent_of(blocks);
  if (count == 0) return nullptr;
  const Buffer* buffer = buffers.find(Handle(range.buffer));
  if (buffer == nullptr)
    return fail(Code::kStale, "{}: {}", name, unknown_handle("buffer", range.buffer, "freed"));
  const std::size_t element = dtype_bytes(dtype);
  MUSTER_RETURN_IF_ERROR(check_alignment(range, element, name));
  const Wide end = static_cast<Wide>(range.offset_bytes) + static_cast<Wide>(count) * element;
  if (end > buffer->bytes)
    return fail(Code::kBadArgument, "{}: {}{} elements from byte {} end behind the buffer's {} bytes", name,
                blocks.size() > 1 ? fmt::format("{} blocks, ", blocks.size()) : "", count, range.offset_bytes,
                buffer->bytes);
  return buffer->grant.data + range.offset_bytes;
}

Share::Counts counts_in(const shm::PlanCollective& m, const CollectiveLists& lists) {
  const bool in_place = m.source.buffer == m.target.buffer && m.source.offset_bytes == m.target.offset_bytes;
  return {m.count,
          lists.source_counts,
          lists.source_offsets,
          lists.target_counts,
          lists.target_offsets,
          lists.piece_counts,
          lists.pieces,
          in_place};
}

Status resolve_vectors(const Scope& scope, const shm::PlanCollective& m, scheduler::Plan& plan,
                       scheduler::CollectiveWork& work) {
  const muster_dtype dtype = work.collective.dtype;
  Share& share = work.share;
  if (m.target.buffer == 0 && may_lack_target(work.collective, share.index)) share.target_blocks.clear();
  MUSTER_ASSIGN_OR_RETURN(share.source,
                          resolve_range(scope.buffers, m.source, share.source_blocks, dtype, "source"));
  MUSTER_ASSIGN_OR_RETURN(share.target,
                          resolve_range(scope.buffers, m.target, share.target_blocks, dtype, "target"));
  // Hold vectors that are empty now too: new counts may reach into them, and come late (M8).
  const auto hold = [&](std::span<const Block> blocks, const muster_range& range,
                        const char* name) -> Status {
    if (blocks.empty() || scope.buffers.find(Handle(range.buffer)) == nullptr) return {};
    hold_buffer(plan, range.buffer);
    return check_alignment(range, dtype_bytes(dtype), name);
  };
  MUSTER_RETURN_IF_ERROR(hold(share.source_blocks, m.source, "source"));
  return hold(share.target_blocks, m.target, "target");
}

// For starts that begin the vectors elsewhere in their buffers.
Rooms rooms_of(const Scope& scope, const shm::PlanCollective& m, const scheduler::CollectiveWork& work) {
  const auto room = [&](const muster_range& range) -> Rooms::Room {
    const Buffer* const buffer = scope.buffers.find(Handle(range.buffer));
    return {range.buffer, buffer == nullptr ? 0 : buffer->bytes};
  };
  return Rooms(work.collective, work.share, room(m.source), room(m.target),
               {m.source.offset_bytes, m.target.offset_bytes});
}

Result<std::vector<Face>> resolve_faces(const Scope& scope, std::span<const muster_face> said,
                                        const char* list, scheduler::Plan& plan) {
  std::vector<Face> faces;
  faces.reserve(said.size());
  for (std::size_t i = 0; i < said.size(); ++i) {
    const muster_tensor& view = said[i].view;
    const std::string name = fmt::format("{}[{}]", list, i);
    MUSTER_ASSIGN_OR_RETURN(const kernels::Tensor t, resolve_tensor(scope.buffers, view, name.c_str()));
    faces.push_back(make_face(said[i], t.data));
    hold_buffer(plan, view.buffer);
  }
  return faces;
}

// The target is one for all members if they all share its memory.
void note_shared_target(const Scope& scope, const shm::PlanCollective& m, Collective& collective,
                        const scheduler::Group& group) {
  if (!may_share_target(m.op)) return;
  const Buffer* buffer = scope.buffers.find(Handle(m.target.buffer));
  if (buffer == nullptr || buffer->shared_memory == 0) return;
  const auto& sharers = scope.groups[buffer->shared_by.value].ranks;
  const bool all = std::all_of(group.ranks.begin(), group.ranks.end(), [&](Rank rank) {
    return std::find(sharers.begin(), sharers.end(), rank) != sharers.end();
  });
  if (!all) return;
  collective.shared_memory = buffer->shared_memory;
  collective.shared_offset = m.target.offset_bytes;
}

}  // namespace

Result<CollectiveLists> lists_in(const shm::PlanCollective& m, std::span<const std::byte> tail) {
  const std::uint64_t faces = std::uint64_t{m.sends} + m.receives;
  if (faces > shm::kFacesMax)
    return fail(Code::kProtocol, "a message says {} sends and {} receives; {} are the most together", m.sends,
                m.receives, shm::kFacesMax);
  if (m.pieces > kPiecesMax)
    return fail(Code::kProtocol, "a message says {} pieces; {} are the most", m.pieces, kPiecesMax);
  CollectiveLists lists;
  shm::TailReader reader(tail);
  MUSTER_RETURN_IF_ERROR(reader.take(m.source_counts, "source_counts", &lists.source_counts));
  MUSTER_RETURN_IF_ERROR(reader.take(m.source_offsets, "source_offsets", &lists.source_offsets));
  MUSTER_RETURN_IF_ERROR(reader.take(m.target_counts, "target_counts", &lists.target_counts));
  MUSTER_RETURN_IF_ERROR(reader.take(m.target_offsets, "target_offsets", &lists.target_offsets));
  MUSTER_RETURN_IF_ERROR(reader.take(m.piece_counts, "piece_counts", &lists.piece_counts));
  MUSTER_RETURN_IF_ERROR(reader.take(m.pieces, "pieces", &lists.pieces));
  MUSTER_RETURN_IF_ERROR(reader.take(m.sends, "sends", &lists.sends));
  MUSTER_RETURN_IF_ERROR(reader.take(m.receives, "receives", &lists.receives));
  MUSTER_RETURN_IF_ERROR(reader.end());
  return lists;
}

Status check_on_node(const World& world, const scheduler::Group& group) {
  if (world.are_local(group.ranks)) return {};
  return failure(Code::kUnsupported, "group {} has {}; this needs all of them on one node", group.name,
                 world.text_of(group.ranks));
}

Status check_reach(const World& world, const scheduler::Group& group) {
  if (group.spans() || world.are_local(group.ranks)) return {};
  return failure(Code::kUnsupported, "group {} has {}; the job has no network (cluster.network)", group.name,
                 world.text_of(group.ranks));
}

Result<GroupId> find_group(const Scope& scope, std::uint64_t handle) {
  return scope.table.find(handle, scope.rank, scope.session);
}

Result<kernels::Tensor> resolve_tensor(const SessionBuffers& buffers, const muster_tensor& tensor,
                                       const char* name) {
  if (tensor.buffer == 0) return kernels::Tensor{};
  const std::size_t element = dtype_bytes(tensor.dtype);
  if (element == 0) return fail(Code::kBadArgument, "{}: dtype {} does not exist", name, tensor.dtype);
  if (tensor.dims < 0 || tensor.dims > MUSTER_TENSOR_DIMS_MAX)
    return fail(Code::kBadArgument, "{}: {} dims; 0 to {} are possible", name, tensor.dims,
                MUSTER_TENSOR_DIMS_MAX);
  const Buffer* buffer = buffers.find(Handle(tensor.buffer));
  if (buffer == nullptr)
    return fail(Code::kStale, "{}: {}", name, unknown_handle("buffer", tensor.buffer, "freed"));
  if (tensor.offset_bytes % element != 0)
    return fail(Code::kBadArgument, "{}: offset {} is not a multiple of the element's {} bytes", name,
                tensor.offset_bytes, element);
  MUSTER_ASSIGN_OR_RETURN(const Wide extent, extent_bytes(tensor, name));
  if (static_cast<Wide>(tensor.offset_bytes) + extent > buffer->bytes)
    return fail(Code::kBadArgument, "{}: the view ends behind the buffer's {} bytes (offset {})", name,
                buffer->bytes, tensor.offset_bytes);
  kernels::Tensor t;
  t.data = buffer->grant.data + tensor.offset_bytes;
  t.dtype = tensor.dtype;
  t.dims = tensor.dims;
  std::copy_n(tensor.size, tensor.dims, t.size.begin());
  if (has_no_elements(tensor))
    std::fill_n(t.stride.begin(), tensor.dims, 1);  // what the client says there may be any number
  else
    std::copy_n(tensor.stride, tensor.dims, t.stride.begin());
  return t;
}

Result<std::unique_ptr<scheduler::Plan>> resolve_kernel(const Scope& scope, const muster_kernel& kernel) {
  const kernels::Kernel* row = kernels::find(kernel.op);
  if (row == nullptr) return fail(Code::kBadArgument, "kernel op {} does not exist", kernel.op);
  if (kernel.tensor_count > MUSTER_KERNEL_TENSORS_MAX || kernel.flags != 0)
    return fail(Code::kBadArgument, "{}: {} operands (at most {}), flags {} (must be 0)", row->name,
                kernel.tensor_count, MUSTER_KERNEL_TENSORS_MAX, kernel.flags);
  if (kernel.int_count > MUSTER_KERNEL_INTS_MAX || kernel.real_count > MUSTER_KERNEL_REALS_MAX)
    return fail(Code::kBadArgument, "{}: {} ints (at most {}), {} reals (at most {})", row->name,
                kernel.int_count, MUSTER_KERNEL_INTS_MAX, kernel.real_count, MUSTER_KERNEL_REALS_MAX);
  auto plan = std::make_unique<scheduler::Plan>();
  scheduler::KernelWork work;
  work.kernel = row;
  work.args.tensors.reserve(kernel.tensor_count);
  for (std::uint32_t i = 0; i < kernel.tensor_count; ++i) {
    const char* name = i < row->operands.size() ? row->operands[i].name : "operand";
    auto tensor = resolve_tensor(scope.buffers, kernel.tensors[i], name);
    if (!tensor) return fail(tensor.error().code(), "{}: {}", row->name, tensor.error().message());
    work.args.tensors.push_back(*tensor);
    hold_buffer(*plan, kernel.tensors[i].buffer);
  }
  work.args.ints.assign(kernel.ints, kernel.ints + kernel.int_count);
  work.args.reals.assign(kernel.reals, kernel.reals + kernel.real_count);
  MUSTER_RETURN_IF_ERROR(kernels::validate(*row, work.args));
  kernels::prepare(*row, work.args);
  plan->work = std::move(work);
  return plan;
}

Result<std::unique_ptr<scheduler::Plan>> resolve_collective(const Scope& scope,
                                                            const shm::PlanCollective& message,
                                                            const CollectiveLists& lists) {
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(scope, message.group));
  const scheduler::Group& group = scope.groups[id.value];
  const auto member = std::find(group.ranks.begin(), group.ranks.end(), scope.rank);
  if (member == group.ranks.end())
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", scope.rank.value, group.name);
  MUSTER_RETURN_IF_ERROR(check_reach(scope.world, group));
  const auto index = static_cast<std::int32_t>(member - group.ranks.begin());
  const auto ranks = static_cast<std::int32_t>(group.ranks.size());
  const Share::Counts counts = counts_in(message, lists);

  auto plan = std::make_unique<scheduler::Plan>();
  scheduler::CollectiveWork work;
  work.group = id;
  MUSTER_ASSIGN_OR_RETURN(work.collective,
                          make_collective(shm::said_collective(message), index, ranks, counts));
  note_shared_target(scope, message, work.collective, group);
  const muster_op op = work.collective.op;
  MUSTER_ASSIGN_OR_RETURN(work.share, make_share(work.collective, index, ranks, counts));
  if (!has_faces(op) && (!lists.sends.empty() || !lists.receives.empty()))
    return fail(Code::kBadArgument, "{} sends and {} receives are given but {} has none", lists.sends.size(),
                lists.receives.size(), op_name(op));
  MUSTER_RETURN_IF_ERROR(resolve_vectors(scope, message, *plan, work));
  MUSTER_ASSIGN_OR_RETURN(work.share.sends, resolve_faces(scope, lists.sends, "sends", *plan));
  MUSTER_ASSIGN_OR_RETURN(work.share.receives, resolve_faces(scope, lists.receives, "receives", *plan));
  MUSTER_RETURN_IF_ERROR(check_share(work.collective, work.share, ranks));
  work.rooms = rooms_of(scope, message, work);
  plan->bytes = got_count(work.share) * dtype_bytes(work.collective.dtype);
  work.signature = signature_of(work.collective, work.share, ranks);
  work.neighbours = face_balances(work.share);
  MUSTER_ASSIGN_OR_RETURN(const std::string_view site, shm::checked_text(message.site, "site"));
  work.site = site;
  plan->work = std::move(work);
  return plan;
}

}  // namespace muster::engine
