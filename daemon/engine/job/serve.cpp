// The engine's side of the client protocol: api/shm/control.hpp, message by message.
#include "api/shm/message.hpp"
#include "api/shm/tail.hpp"
#include "daemon/engine/job/answer.hpp"
#include "daemon/engine/job/conductor.hpp"

#include <algorithm>
#include <cstring>

namespace muster::engine {
namespace {

using shm::MessageHeader;
using shm::MessageKind;

Answer done(std::uint32_t serial) {
  return answer_with(shm::Plain{}, MessageKind::kDone, serial);
}

Result<Answer> buffer_alloc(Engine& engine, Session& session, std::span<const std::byte> bytes,
                            int imported) {
  MUSTER_ASSIGN_OR_RETURN(const auto request,
                          shm::checked<shm::BufferAlloc>(bytes, MessageKind::kBufferAlloc));
  engine.reclaim();  // room of ended sessions may be needed
  shm::BufferGrant grant;
  int descriptor = -1;
  const auto buffer = engine.buffers().alloc(session, request, imported, &grant, &descriptor);
  if (!buffer) return fail(buffer.error());
  Answer answer = answer_with(grant, MessageKind::kBufferGrant, request.header.serial);
  answer.descriptor = descriptor;
  return answer;
}

Result<Answer> plan_grant(Result<Handle> plan, std::uint32_t serial) {
  if (!plan) return fail(plan.error());
  shm::HandleMessage grant;
  grant.handle = plan->bits;
  return answer_with(grant, MessageKind::kPlanGrant, serial);
}

Result<Answer> plan_kernel(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::PlanKernel>(bytes, MessageKind::kPlanKernel,
                                                                            shm::Tail::kAllowed));
  MUSTER_ASSIGN_OR_RETURN(const muster_kernel kernel,
                          shm::kernel_in(request, shm::tail_of<shm::PlanKernel>(bytes)));
  return plan_grant(engine.plans().kernel(session, kernel), request.header.serial);
}

Result<Answer> plan_collective(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::PlanCollective>(
                                                  bytes, MessageKind::kPlanCollective, shm::Tail::kAllowed));
  MUSTER_ASSIGN_OR_RETURN(const CollectiveLists lists,
                          lists_in(request, shm::tail_of<shm::PlanCollective>(bytes)));
  return plan_grant(engine.plans().collective(session, request, lists), request.header.serial);
}

Result<Answer> with_handle(Engine& engine, Session& session, MessageKind kind,
                           std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::HandleMessage>(bytes, kind));
  switch (kind) {
    case MessageKind::kBufferFree:
      MUSTER_RETURN_IF_ERROR(engine.buffers().free(session, Handle(request.handle)));
      break;
    case MessageKind::kPlanDestroy:
      MUSTER_RETURN_IF_ERROR(engine.plans().destroy(session, Handle(request.handle)));
      break;
    case MessageKind::kGroupFree:
      MUSTER_RETURN_IF_ERROR(engine.groups().free(session, request.handle));
      break;
    default:
      MUSTER_RETURN_IF_ERROR(engine.meshes().free(session, request.handle));
      break;
  }
  return done(request.header.serial);
}

Result<Answer> group_abort(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::GroupAbort>(bytes, MessageKind::kGroupAbort));
  MUSTER_ASSIGN_OR_RETURN(const auto reason, shm::checked_text(request.reason, "reason"));
  MUSTER_RETURN_IF_ERROR(engine.faults().abort(session, request.group, reason));
  return done(request.header.serial);
}

Result<Answer> mesh_query(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::MeshQuery>(bytes, MessageKind::kMeshQuery));
  MUSTER_ASSIGN_OR_RETURN(const auto dim, shm::checked_text(request.dim, "dim"));
  MUSTER_ASSIGN_OR_RETURN(const auto answer, engine.meshes().dim(session, request.mesh, dim));
  return answer_with(answer, MessageKind::kMeshAnswer, request.header.serial);
}

Result<Answer> group_query(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request,
                          shm::checked<shm::HandleMessage>(bytes, MessageKind::kGroupQuery));
  shm::GroupAnswer head;
  MUSTER_ASSIGN_OR_RETURN(const auto ranks, engine.groups().group_ranks(session, request.handle, &head));
  return answer_with_list(head, MessageKind::kGroupAnswer, request.header.serial,
                          std::as_bytes(std::span(ranks)));
}

Answer granted(std::uint64_t handle, MessageKind kind, std::uint32_t serial) {
  shm::HandleMessage grant;
  grant.handle = handle;
  return answer_with(grant, kind, serial);
}

Result<Answer> group_make(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request,
                          shm::checked<shm::GroupMake>(bytes, MessageKind::kGroupMake, shm::Tail::kAllowed));
  MUSTER_ASSIGN_OR_RETURN(const auto name, shm::checked_text(request.name, "name"));
  const auto tail = shm::tail_of<shm::GroupMake>(bytes);
  if (tail.size() != request.ranks * sizeof(std::int32_t))
    return fail(Code::kProtocol, "a message says {} ranks, but {} bytes follow", request.ranks, tail.size());
  std::vector<std::int32_t> ranks(request.ranks);
  if (!ranks.empty()) std::memcpy(ranks.data(), tail.data(), tail.size());
  engine.reclaim();  // room of ended sessions may be needed
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t group, engine.groups().make(session, name, ranks));
  return granted(group, MessageKind::kGroupGrant, request.header.serial);
}

Result<Answer> group_shrink(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request,
                          shm::checked<shm::GroupShrink>(bytes, MessageKind::kGroupShrink));
  engine.reclaim();  // room of ended sessions may be needed
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t group,
                          engine.groups().shrink(session, request.group, request.gives_up != 0));
  return granted(group, MessageKind::kGroupGrant, request.header.serial);
}

Result<Answer> mesh_make(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::MeshMake>(bytes, MessageKind::kMeshMake));
  MUSTER_ASSIGN_OR_RETURN(const auto text, shm::checked_text(request.mesh, "mesh"));
  engine.reclaim();  // room of ended sessions may be needed
  MUSTER_ASSIGN_OR_RETURN(const std::uint64_t mesh, engine.meshes().make(session, request.group, text));
  return granted(mesh, MessageKind::kMeshGrant, request.header.serial);
}

// The dims behind `message`. The text may be anything that ends; the mesh checks the names.
Result<std::vector<std::string>> dims_in(const shm::MeshNames& message, std::span<const std::byte> tail) {
  if (tail.size() != message.dims * sizeof(shm::DimName))
    return fail(Code::kProtocol, "a message says {} dims, but {} bytes follow", message.dims, tail.size());
  std::vector<std::string> dims;
  for (std::uint32_t i = 0; i < message.dims; ++i) {
    const auto dim = shm::tail_entry<shm::DimName>(tail, i);
    MUSTER_ASSIGN_OR_RETURN(const auto text, shm::checked_text(dim.text, "dim"));
    dims.emplace_back(text);
  }
  return dims;
}

Result<Answer> mesh_names(Engine& engine, Session& session, MessageKind kind,
                          std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::MeshNames>(bytes, kind, shm::Tail::kAllowed));
  MUSTER_ASSIGN_OR_RETURN(const auto name, shm::checked_text(request.name, "name"));
  MUSTER_ASSIGN_OR_RETURN(const auto dims, dims_in(request, shm::tail_of<shm::MeshNames>(bytes)));
  if (kind == MessageKind::kMeshSlice) {
    MUSTER_ASSIGN_OR_RETURN(const std::uint64_t slice, engine.meshes().slice(session, request.mesh, dims));
    return granted(slice, MessageKind::kMeshGrant, request.header.serial);
  }
  engine.reclaim();  // room of ended sessions may be needed
  MUSTER_ASSIGN_OR_RETURN(const auto answer, engine.meshes().flatten(session, request.mesh, name, dims));
  return answer_with(answer, MessageKind::kMeshAnswer, request.header.serial);
}

Result<Answer> mesh_deadline(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request,
                          shm::checked<shm::MeshDeadline>(bytes, MessageKind::kMeshDeadline));
  if (request.deadline_ns < 0)
    return fail(Code::kProtocol, "a deadline of {} ns is negative", request.deadline_ns);
  MUSTER_ASSIGN_OR_RETURN(const auto groups,
                          engine.meshes().set_deadline(session, request.mesh, Nanos(request.deadline_ns)));
  return answer_with_list(shm::Plain{}, MessageKind::kMeshGroups, request.header.serial,
                          std::as_bytes(std::span(groups)));
}

Result<Answer> lane_open(Engine& engine, const Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::LaneOpen>(bytes, MessageKind::kLaneOpen));
  MUSTER_ASSIGN_OR_RETURN(const auto name, shm::checked_text(request.name, "name"));
  shm::LaneGrant grant;
  MUSTER_ASSIGN_OR_RETURN(grant.lane, engine.lanes().open(session, request.lane_class, name));
  return answer_with(grant, MessageKind::kLaneGrant, request.header.serial);
}

Result<Answer> lane_close(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::LaneGrant>(bytes, MessageKind::kLaneClose));
  MUSTER_RETURN_IF_ERROR(engine.lanes().close(session, request.lane));
  return done(request.header.serial);
}

Result<Answer> trace_begin(Engine& engine, const Session& session, std::uint32_t serial) {
  MUSTER_RETURN_IF_ERROR(engine.recorder().begin(recorder_name(session.options().rank)));
  return done(serial);
}

Result<Answer> trace_end(Engine& engine, const Session& session, std::uint32_t serial) {
  MUSTER_ASSIGN_OR_RETURN(const std::string json,
                          engine.recorder().end(recorder_name(session.options().rank)));
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor text, control::text_descriptor(json));
  shm::MemoryGrant grant;
  grant.bytes = json.size();
  Answer answer = answer_with(grant, MessageKind::kTraceGrant, serial);
  answer.own = std::move(text);
  answer.descriptor = answer.own.get();
  return answer;
}

Result<Answer> event_open(Engine& engine, Session& session, std::uint32_t serial) {
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor end, engine.lanes().open_events(session));
  Answer answer = done(serial);
  answer.own = std::move(end);
  answer.descriptor = answer.own.get();
  return answer;
}

Result<Answer> plain(Engine& engine, Session& session, MessageKind kind, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::Plain>(bytes, kind));
  const std::uint32_t serial = request.header.serial;
  switch (kind) {
    case MessageKind::kTraceBegin:
      return trace_begin(engine, session, serial);
    case MessageKind::kTraceEnd:
      return trace_end(engine, session, serial);
    case MessageKind::kEventOpen:
      return event_open(engine, session, serial);
    default:
      break;
  }
  Answer answer = done(serial);
  answer.goodbye = true;
  return answer;
}

Result<Answer> dispatch(Engine& engine, Session& session, MessageKind kind, std::span<const std::byte> bytes,
                        int descriptor) {
  switch (kind) {
    case MessageKind::kBufferAlloc:
      return buffer_alloc(engine, session, bytes, descriptor);
    case MessageKind::kPlanKernel:
      return plan_kernel(engine, session, bytes);
    case MessageKind::kPlanCollective:
      return plan_collective(engine, session, bytes);
    case MessageKind::kBufferFree:
    case MessageKind::kPlanDestroy:
    case MessageKind::kGroupFree:
    case MessageKind::kMeshFree:
      return with_handle(engine, session, kind, bytes);
    case MessageKind::kMeshQuery:
      return mesh_query(engine, session, bytes);
    case MessageKind::kGroupAbort:
      return group_abort(engine, session, bytes);
    case MessageKind::kGroupQuery:
      return group_query(engine, session, bytes);
    case MessageKind::kGroupMake:
      return group_make(engine, session, bytes);
    case MessageKind::kGroupShrink:
      return group_shrink(engine, session, bytes);
    case MessageKind::kMeshMake:
      return mesh_make(engine, session, bytes);
    case MessageKind::kMeshFlatten:
    case MessageKind::kMeshSlice:
      return mesh_names(engine, session, kind, bytes);
    case MessageKind::kMeshDeadline:
      return mesh_deadline(engine, session, bytes);
    case MessageKind::kLaneOpen:
      return lane_open(engine, session, bytes);
    case MessageKind::kLaneClose:
      return lane_close(engine, session, bytes);
    case MessageKind::kTraceBegin:
    case MessageKind::kTraceEnd:
    case MessageKind::kEventOpen:
    case MessageKind::kGoodbye:
      return plain(engine, session, kind, bytes);
    case MessageKind::kDirectGroup:
    case MessageKind::kPeerDirect:
    case MessageKind::kPeerArena:
    case MessageKind::kDirectEnd:
    case MessageKind::kDirectOverdue:
    case MessageKind::kDirectDisagree:
    case MessageKind::kInterrupted:
      return serve_direct(engine, session, kind, bytes);
    default:
      return fail(Code::kProtocol, "a message of kind {} is not a client's", static_cast<unsigned>(kind));
  }
}

Answer refusal(const Status& status, std::uint32_t serial) {
  shm::Failure message;
  message.status = static_cast<muster_status_t>(status.code());
  message.culprit_rank = status.culprit();
  message.length = static_cast<std::uint32_t>(std::min(status.message().size(), sizeof message.text - 1));
  status.message().copy(message.text, message.length);
  return answer_with(message, MessageKind::kFailure, serial);
}

}  // namespace

Result<Answer> serve(Engine& engine, Session& session, std::span<const std::byte> bytes, int descriptor) {
  const auto header = shm::checked_header(bytes);
  if (!header) return fail(Code::kProtocol, "{}", header.error().message());
  auto answer = dispatch(engine, session, header->kind, bytes, descriptor);
  if (answer || answer.error().code() == Code::kProtocol) return answer;
  return refusal(answer.error(), header->serial);
}

}  // namespace muster::engine
