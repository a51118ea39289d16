// The engine's half of the client protocol: api/shm/control.hpp, message by message.
#include "daemon/engine/conductor.hpp"

#include <algorithm>
#include <cstring>

namespace muster::engine {
namespace {

using shm::MessageHeader;
using shm::MessageKind;

template<class T>
Answer answer_with(T message, MessageKind kind, std::uint32_t serial) {
  message.header = MessageHeader{};
  message.header.kind = kind;
  message.header.serial = serial;
  message.header.bytes = sizeof(T);
  Answer answer;
  answer.bytes.resize(sizeof(T));
  std::memcpy(answer.bytes.data(), &message, sizeof(T));
  return answer;
}

Answer done(std::uint32_t serial) { return answer_with(shm::Plain{}, MessageKind::kDone, serial); }

// A fixed-size message: exactly its size, copied out before anything is looked at.
template<class T>
Result<T> take(std::span<const std::byte> bytes) {
  if (bytes.size() != sizeof(T)) return fail(Code::kProtocol, "a message has {} bytes instead of {}", bytes.size(), sizeof(T));
  T message;
  std::memcpy(&message, bytes.data(), sizeof(T));
  return message;
}

// A message with a list behind it.
template<class T, class E>
Result<std::pair<T, std::vector<E>>> take_with_list(std::span<const std::byte> bytes, std::uint32_t T::* entries,
                                                    std::uint32_t entries_max) {
  if (bytes.size() < sizeof(T)) return fail(Code::kProtocol, "a message has {} bytes; it needs {}", bytes.size(), sizeof(T));
  T message;
  std::memcpy(&message, bytes.data(), sizeof(T));
  const std::uint32_t count = message.*entries;
  if (count > entries_max || bytes.size() != sizeof(T) + std::size_t{count} * sizeof(E))
    return fail(Code::kProtocol, "a message says {} entries, but has {} bytes", count, bytes.size());
  std::vector<E> list(count);
  std::memcpy(list.data(), bytes.data() + sizeof(T), list.size() * sizeof(E));
  return std::pair{message, std::move(list)};
}

Result<Answer> buffer_alloc(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, take<shm::BufferAlloc>(bytes));
  shm::BufferGrant grant;
  int descriptor = -1;
  const auto buffer = engine.alloc_buffer(session, request.bytes, &grant, &descriptor);
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
  MUSTER_ASSIGN_OR_RETURN(const auto request, take<shm::PlanKernel>(bytes));
  return plan_grant(engine.plan_kernel(session, request.kernel), request.header.serial);
}

Result<Answer> plan_collective(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  auto request = take_with_list<shm::PlanCollective, std::uint64_t>(bytes, &shm::PlanCollective::count_entries,
                                                                    shm::kCountEntriesMax);
  if (!request) return fail(request.error());
  return plan_grant(engine.plan_collective(session, request->first, request->second), request->first.header.serial);
}

Result<Answer> with_handle(Engine& engine, Session& session, MessageKind kind, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, take<shm::HandleMessage>(bytes));
  switch (kind) {
    case MessageKind::kBufferFree: MUSTER_RETURN_IF_ERROR(engine.free_buffer(session, Handle(request.handle))); break;
    case MessageKind::kPlanDestroy: MUSTER_RETURN_IF_ERROR(engine.destroy_plan(session, Handle(request.handle))); break;
    default: MUSTER_RETURN_IF_ERROR(engine.abort_group(session, request.handle)); break;
  }
  return done(request.header.serial);
}

Result<Answer> mesh_query(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, take<shm::MeshQuery>(bytes));
  const auto* end = std::find(std::begin(request.dim), std::end(request.dim), '\0');
  if (end == std::end(request.dim)) return fail(Code::kProtocol, "a dim's name has no end");
  MUSTER_ASSIGN_OR_RETURN(const auto answer, engine.mesh_dim(session, {request.dim, static_cast<std::size_t>(end - request.dim)}));
  return answer_with(answer, MessageKind::kMeshAnswer, request.header.serial);
}

Result<Answer> group_query(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, take<shm::HandleMessage>(bytes));
  shm::GroupAnswer head;
  MUSTER_ASSIGN_OR_RETURN(const auto ranks, engine.group_ranks(session, request.handle, &head));
  Answer answer = answer_with(head, MessageKind::kGroupAnswer, request.header.serial);
  const std::size_t list_bytes = ranks.size() * sizeof(std::int32_t);
  if (answer.bytes.size() + list_bytes > shm::kMessageBytesMax)
    return fail(Code::kNoResource, "group {} has {} ranks, more than a message holds", head.name, ranks.size());
  answer.bytes.resize(sizeof head + list_bytes);
  std::memcpy(answer.bytes.data() + sizeof head, ranks.data(), list_bytes);
  const auto total = static_cast<std::uint32_t>(answer.bytes.size());
  std::memcpy(answer.bytes.data() + offsetof(MessageHeader, bytes), &total, sizeof total);
  return answer;
}

Result<Answer> trace_end(Engine& engine, std::uint32_t serial) {
  const std::string json = engine.trace_end();
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor text, control::text_descriptor(json));
  shm::TraceGrant grant;
  grant.bytes = json.size();
  Answer answer = answer_with(grant, MessageKind::kTraceGrant, serial);
  answer.own = std::move(text);
  answer.descriptor = answer.own.get();
  return answer;
}

Result<Answer> event_open(Session& session, std::uint32_t serial) {
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor end, session.open_events());
  Answer answer = done(serial);
  answer.own = std::move(end);
  answer.descriptor = answer.own.get();
  return answer;
}

Result<Answer> plain(Engine& engine, Session& session, MessageKind kind, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, take<shm::Plain>(bytes));
  const std::uint32_t serial = request.header.serial;
  switch (kind) {
    case MessageKind::kTraceBegin: engine.trace_begin(); return done(serial);
    case MessageKind::kTraceEnd: return trace_end(engine, serial);
    case MessageKind::kEventOpen: return event_open(session, serial);
    default: break;
  }
  Answer answer = done(serial);
  answer.goodbye = true;
  return answer;
}

Result<Answer> dispatch(Engine& engine, Session& session, MessageKind kind, std::span<const std::byte> bytes) {
  switch (kind) {
    case MessageKind::kBufferAlloc: return buffer_alloc(engine, session, bytes);
    case MessageKind::kPlanKernel: return plan_kernel(engine, session, bytes);
    case MessageKind::kPlanCollective: return plan_collective(engine, session, bytes);
    case MessageKind::kBufferFree:
    case MessageKind::kPlanDestroy:
    case MessageKind::kGroupAbort: return with_handle(engine, session, kind, bytes);
    case MessageKind::kMeshQuery: return mesh_query(engine, session, bytes);
    case MessageKind::kGroupQuery: return group_query(engine, session, bytes);
    case MessageKind::kTraceBegin:
    case MessageKind::kTraceEnd:
    case MessageKind::kEventOpen:
    case MessageKind::kGoodbye: return plain(engine, session, kind, bytes);
    default: return fail(Code::kProtocol, "a message of kind {} is not a client's", static_cast<unsigned>(kind));
  }
}

Answer refusal(const Status& status, std::uint32_t serial) {
  shm::Failure message;
  message.status = static_cast<muster_status_t>(status.code());
  message.length = static_cast<std::uint32_t>(std::min(status.message().size(), sizeof message.text - 1));
  status.message().copy(message.text, message.length);
  return answer_with(message, MessageKind::kFailure, serial);
}

}  // namespace

Result<Answer> serve(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MessageHeader header;
  if (bytes.size() < sizeof header) return fail(Code::kProtocol, "a message of {} bytes is too short", bytes.size());
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.magic != shm::kMagicMessage || header.version != shm::kAbiVersion || header.bytes != bytes.size())
    return fail(Code::kProtocol, "a message's header is not ours");
  auto answer = dispatch(engine, session, header.kind, bytes);
  if (answer || answer.error().code() == Code::kProtocol) return answer;
  return refusal(answer.error(), header.serial);
}

}  // namespace muster::engine
