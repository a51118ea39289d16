// Requests of the direct path: where the memory of peers is, and how an operation has ended.
#include "api/shm/message.hpp"
#include "daemon/engine/job/answer.hpp"
#include "daemon/engine/job/conductor.hpp"

#include <cstring>

namespace muster::engine {
namespace {

using shm::MessageKind;

Result<Answer> direct_group(Engine& engine, Session& session, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request,
                          shm::checked<shm::HandleMessage>(bytes, MessageKind::kDirectGroup));
  shm::DirectGroupAnswer head;
  MUSTER_ASSIGN_OR_RETURN(const auto members, engine.direct().group(session, request.handle, &head));
  return answer_with_list(head, MessageKind::kDirectGroupAnswer, request.header.serial,
                          std::as_bytes(std::span(members)));
}

Result<Answer> peer_memory(Engine& engine, MessageKind kind, std::span<const std::byte> bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::PeerMessage>(bytes, kind));
  shm::MemoryGrant grant;
  auto memory = kind == MessageKind::kPeerDirect
                    ? engine.direct().segment(request.rank, &grant.bytes)
                    : engine.direct().arena(request.rank, request.segment, &grant.bytes);
  if (!memory) return fail(memory.error());
  Answer answer = answer_with(grant, MessageKind::kPeerGrant, request.header.serial);
  answer.own = *std::move(memory);
  answer.descriptor = answer.own.get();
  return answer;
}

}  // namespace

Result<Answer> serve_direct(Engine& engine, Session& session, MessageKind kind,
                            std::span<const std::byte> bytes) {
  if (kind == MessageKind::kDirectGroup) return direct_group(engine, session, bytes);
  if (kind == MessageKind::kPeerDirect || kind == MessageKind::kPeerArena)
    return peer_memory(engine, kind, bytes);
  if (kind == MessageKind::kInterrupted) {
    MUSTER_ASSIGN_OR_RETURN(const auto leaving, shm::checked<shm::InterruptMessage>(bytes, kind));
    MUSTER_RETURN_IF_ERROR(engine.faults().interrupt(session, leaving));
    return answer_with(shm::Plain{}, MessageKind::kDone, leaving.header.serial);
  }
  MUSTER_ASSIGN_OR_RETURN(const auto request, shm::checked<shm::DirectMessage>(bytes, kind));
  if (kind == MessageKind::kDirectEnd) {
    std::string text;
    MUSTER_ASSIGN_OR_RETURN(const auto end, engine.direct().end(session, request, &text));
    return answer_with_list(end, MessageKind::kDirectEndAnswer, request.header.serial,
                            std::as_bytes(std::span(text)));
  }
  const Status told = kind == MessageKind::kDirectOverdue ? engine.direct().overdue(session, request)
                                                          : engine.direct().disagree(session, request);
  if (!told.ok()) return fail(told);
  return answer_with(shm::Plain{}, MessageKind::kDone, request.header.serial);
}

}  // namespace muster::engine
