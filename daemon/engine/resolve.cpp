#include "daemon/engine/resolve.hpp"

#include "api/base/dtype.hpp"

#include <algorithm>
#include <limits>

namespace muster::engine {
namespace {

__extension__ using Wide =
    unsigned __int128;  // sums and products of 64-bit client numbers cannot overflow it here

// Bytes from the first to one past the last element; 0 for an empty view.
Result<Wide> extent_bytes(const muster_tensor& tensor, const char* name) {
  Wide last = 0;
  bool empty = false;
  for (std::int32_t d = 0; d < tensor.dims; ++d) {
    const std::int64_t size = tensor.size[d];
    const std::int64_t stride = tensor.stride[d];
    if (size < 0 || stride < 0)
      return fail(Code::kBadArgument, "{}: size {} and stride {} of dim {} must not be negative", name, size,
                  stride, d);
    if (size > 1 && stride == 0)
      return fail(Code::kBadArgument, "{}: stride 0 of dim {} with size {} would repeat one element", name, d,
                  size);
    empty = empty || size == 0;
    if (size > 1) last += static_cast<Wide>(size - 1) * static_cast<Wide>(stride);
  }
  return empty ? Wide{0} : (last + 1) * dtype_bytes(tensor.dtype);
}

void hold_buffer(scheduler::Plan& plan, std::uint64_t handle) {
  const auto end = plan.buffers.begin() + plan.buffer_count;
  if (handle == 0 || std::find(plan.buffers.begin(), end, Handle(handle)) != end) return;
  plan.buffers[plan.buffer_count++] = Handle(handle);
}

Result<std::byte*> resolve_range(const Session& session, const muster_range& range, std::uint64_t count,
                                 muster_dtype dtype, const char* name) {
  if (count == 0) return nullptr;
  const Buffer* buffer = session.buffer(Handle(range.buffer));
  if (buffer == nullptr) return fail(Code::kStale, "{}: no such buffer", name);
  const std::size_t element = dtype_bytes(dtype);
  if (range.offset_bytes % element != 0)
    return fail(Code::kBadArgument, "{}: offset {} is not a multiple of the element's {} bytes", name,
                range.offset_bytes, element);
  const Wide end = static_cast<Wide>(range.offset_bytes) + static_cast<Wide>(count) * element;
  if (end > buffer->bytes)
    return fail(Code::kBadArgument, "{}: {} elements from byte {} end behind the buffer's {} bytes", name,
                count, range.offset_bytes, buffer->bytes);
  return buffer->grant.data + range.offset_bytes;
}

Result<transport::Collective> describe(const shm::PlanCollective& m, std::span<const std::uint64_t> counts,
                                       const scheduler::Group& group, std::int32_t index) {
  transport::Collective c;
  c.op = m.op;
  c.dtype = m.op == MUSTER_BARRIER ? MUSTER_U8 : m.dtype;
  c.redop = m.redop;
  c.count = m.op == MUSTER_BARRIER ? 0 : m.count;
  c.counts.assign(counts.begin(), counts.end());
  c.scale = m.redop == MUSTER_PREMUL_SUM ? m.scale : 1.0;
  const auto ranks = static_cast<std::int32_t>(group.ranks.size());
  const bool has_peer = m.op == MUSTER_BROADCAST || m.op == MUSTER_SEND || m.op == MUSTER_RECV;
  if (has_peer && (m.peer < 0 || m.peer >= ranks))
    return fail(Code::kBadArgument, "peer {} is not a member of group {} with {} ranks", m.peer, group.name,
                ranks);
  if (m.op == MUSTER_SEND || m.op == MUSTER_RECV) {
    if (m.peer == index) return fail(Code::kBadArgument, "peer {} is this rank itself", m.peer);
    c.root = m.op == MUSTER_SEND ? index : m.peer;
    c.receiver = m.op == MUSTER_SEND ? m.peer : index;
  } else if (has_peer) {
    c.root = m.peer;
  }
  MUSTER_RETURN_IF_ERROR(transport::validate(c, ranks));
  // counts[] replaces count where blocks are uneven; the client may leave it at its own block's.
  if (!c.counts.empty()) c.count = c.counts[static_cast<std::size_t>(index)];
  return c;
}

}  // namespace

std::uint64_t group_handle(GroupId group, std::uint64_t epoch) {
  return Handle(static_cast<std::uint16_t>(group.value), epoch).bits;
}

Result<GroupId> find_group(const Scope& scope, std::uint64_t handle) {
  if (handle == MUSTER_GROUP_SELF)
    return GroupId(scope.self_group_first + scope.session.options().rank.value);
  const Handle h(handle);
  if (!h.valid() || h.slot() >= scope.self_group_first ||
      h.generation() != (scope.epoch & Handle::kGenerationMask))
    return fail(Code::kStale, "no such group; get it again with muster_mesh_group");
  return GroupId(h.slot());
}

Result<kernels::Tensor> resolve_tensor(const Session& session, const muster_tensor& tensor,
                                       const char* name) {
  if (tensor.buffer == 0) return kernels::Tensor{};
  const std::size_t element = dtype_bytes(tensor.dtype);
  if (element == 0) return fail(Code::kBadArgument, "{}: dtype {} does not exist", name, tensor.dtype);
  if (tensor.dims < 0 || tensor.dims > MUSTER_TENSOR_DIMS_MAX)
    return fail(Code::kBadArgument, "{}: {} dims; 0 to {} are possible", name, tensor.dims,
                MUSTER_TENSOR_DIMS_MAX);
  const Buffer* buffer = session.buffer(Handle(tensor.buffer));
  if (buffer == nullptr) return fail(Code::kStale, "{}: no such buffer", name);
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
  std::copy_n(tensor.size, MUSTER_TENSOR_DIMS_MAX, t.size.begin());
  std::copy_n(tensor.stride, MUSTER_TENSOR_DIMS_MAX, t.stride.begin());
  return t;
}

Result<std::unique_ptr<scheduler::Plan>> resolve_kernel(const Scope& scope, const muster_kernel& kernel) {
  const kernels::Kernel* row = kernels::find(kernel.op);
  if (row == nullptr) return fail(Code::kBadArgument, "kernel op {} does not exist", kernel.op);
  if (kernel.tensor_count > MUSTER_KERNEL_TENSORS_MAX || kernel.flags != 0)
    return fail(Code::kBadArgument, "{}: {} operands (at most {}), flags {} (must be 0)", row->name,
                kernel.tensor_count, MUSTER_KERNEL_TENSORS_MAX, kernel.flags);
  auto plan = std::make_unique<scheduler::Plan>();
  scheduler::KernelWork work;
  work.kernel = row;
  work.args.tensor_count = kernel.tensor_count;
  for (std::uint32_t i = 0; i < kernel.tensor_count; ++i) {
    const char* name = i < row->operands.size() ? row->operands[i].name : "operand";
    auto tensor = resolve_tensor(scope.session, kernel.tensors[i], name);
    if (!tensor) return fail(tensor.error().code(), "{}: {}", row->name, tensor.error().message());
    work.args.tensors[i] = *tensor;
    hold_buffer(*plan, kernel.tensors[i].buffer);
  }
  std::copy_n(kernel.ints, MUSTER_KERNEL_INTS_MAX, work.args.ints.begin());
  std::copy_n(kernel.reals, MUSTER_KERNEL_REALS_MAX, work.args.reals.begin());
  MUSTER_RETURN_IF_ERROR(kernels::validate(*row, work.args));
  plan->work = work;
  return plan;
}

Result<std::unique_ptr<scheduler::Plan>> resolve_collective(const Scope& scope,
                                                            const shm::PlanCollective& message,
                                                            std::span<const std::uint64_t> counts) {
  MUSTER_ASSIGN_OR_RETURN(const GroupId id, find_group(scope, message.group));
  const scheduler::Group& group = scope.groups[id.value];
  const auto member = std::find(group.ranks.begin(), group.ranks.end(), scope.session.options().rank);
  if (member == group.ranks.end())
    return fail(Code::kBadArgument, "rank {} is not a member of group {}", scope.session.options().rank.value,
                group.name);
  const auto index = static_cast<std::int32_t>(member - group.ranks.begin());
  const auto ranks = static_cast<std::int32_t>(group.ranks.size());
  MUSTER_ASSIGN_OR_RETURN(transport::Collective what, describe(message, counts, group, index));

  auto plan = std::make_unique<scheduler::Plan>();
  scheduler::CollectiveWork work;
  work.group = id;
  work.index = index;
  const std::uint64_t sources = transport::source_count(what, index, ranks);
  const std::uint64_t targets = transport::target_count(what, index, ranks);
  MUSTER_ASSIGN_OR_RETURN(work.source,
                          resolve_range(scope.session, message.source, sources, what.dtype, "source"));
  MUSTER_ASSIGN_OR_RETURN(work.target,
                          resolve_range(scope.session, message.target, targets, what.dtype, "target"));
  MUSTER_RETURN_IF_ERROR(transport::check_member(what, {index, work.source, work.target}, ranks));
  if (sources > 0) hold_buffer(*plan, message.source.buffer);
  if (targets > 0) hold_buffer(*plan, message.target.buffer);
  plan->bytes = targets * dtype_bytes(what.dtype);
  work.signature = scheduler::signature_of(what);
  work.collective = std::move(what);
  plan->work = std::move(work);
  return plan;
}

}  // namespace muster::engine
