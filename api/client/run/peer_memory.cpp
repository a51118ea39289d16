#include "api/client/run/peer_memory.hpp"

#include "api/base/fault_point.hpp"
#include "api/shm/segment.hpp"

namespace muster::client {

Result<shm::Mapping> PeerMemory::ask(shm::MessageKind kind, std::int32_t rank, std::uint32_t segment) {
  shm::PeerMessage request;
  request.rank = rank;
  request.segment = segment;
  shm::Descriptor memory;
  MUSTER_ASSIGN_OR_RETURN(
      const auto grant,
      connection_.ask<shm::MemoryGrant>(request, kind, shm::MessageKind::kPeerGrant, {}, nullptr, &memory));
  MUSTER_FAULT_POINT("peer.granted");
  MUSTER_RETURN_IF_ERROR(shm::check_memory(memory, grant.bytes));
  return shm::Mapping::map(memory, grant.bytes, shm::Mapping::Access::kRead);
}

Result<PeerMemory::Scratch> PeerMemory::scratch(std::uint64_t bytes) {
  if (bytes_ >= bytes) return scratch_;
  if (buffer_ != 0) MUSTER_RETURN_IF_ERROR(buffers_.free(buffer_));
  buffer_ = 0;
  bytes_ = 0;
  MUSTER_ASSIGN_OR_RETURN(const auto buffer, buffers_.alloc(bytes));
  MUSTER_FAULT_POINT("scratch.granted");
  buffer_ = buffer.buffer;
  bytes_ = bytes;
  return scratch_ = {buffer.address, buffers_.location_of({buffer.buffer, 0})};
}

}  // namespace muster::client
