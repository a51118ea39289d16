// Buffers: the session's memory. The engine makes it; each of its segments is mapped once.
#pragma once

#include "api/client/connection.hpp"
#include "api/client/groups.hpp"
#include "api/shm/control.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/segment.hpp"
#include "api/shm/socket.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <unordered_map>

namespace muster::client {

class CheckMode;

// Owns    the mappings of the segments, and where each buffer lies.
// Thread  the session's.
// Bound   the engine's limits for buffers and memory.
// Fails   as Connection::ask; BAD_ARGUMENT for options that are not valid; NO_RESOURCE if this process cannot
//         map the memory (the buffer is then given back); STALE for an unknown buffer.
class Buffers {
 public:
  struct Granted {
    muster_buffer buffer = 0;
    std::byte* address = nullptr;  // null: this process does not see the memory of its device
  };

  // All outlive it. check: null if the session is not in check mode, in which each buffer has mappings of its
  // own.
  Buffers(Connection& connection, Groups& groups, CheckMode* check)
      : connection_(connection), groups_(groups), check_(check) {}

  Result<Granted> alloc(std::uint64_t bytes);
  Result<Granted> create(const muster_buffer_options& options);
  // The caller has destroyed all plans that name the buffer. In check mode also kState for a finding: then it
  // is freed all the same.
  Status free(muster_buffer buffer);

  bool has(muster_buffer buffer) const { return buffers_.contains(buffer); }
  Status query(muster_buffer buffer, muster_buffer_info* info) const;
  // For an unknown buffer these return no location, null and 0.
  shm::PayloadLocation location_of(const muster_range& range) const;
  std::byte* address_of(const muster_range& range) const;
  // Bytes from the range's start to the buffer's end.
  std::uint64_t room_of(const muster_range& range) const;
  // The node-shared memory in which the buffer lies, if all members of the group share it; else 0.
  Result<std::uint64_t> shared_target(muster_buffer buffer, muster_group group);

 private:
  struct Segment {
    shm::Mapping mapping;
    shm::Descriptor memory;  // kept until it is mapped
    std::uint64_t bytes = 0;
    std::byte* data = nullptr;  // once it is mapped, by `mapping` or in check mode
  };
  struct Buffer {
    std::uint32_t segment = 0;
    std::uint64_t offset = 0;
    std::uint64_t bytes = 0;
    std::uint64_t shared_memory = 0;
    muster_group shared_by = 0;
    bool found = false;
    bool whole_segment = false;  // the segment is unmapped with the buffer
  };
  // Memory that this process makes and the engine imports, between guards.
  Result<Granted> alloc_guarded(std::uint64_t bytes);
  Result<Granted> alloc(const shm::BufferAlloc& request, int imported);
  Result<Granted> map(const shm::BufferAlloc& request, const shm::BufferGrant& grant, shm::Descriptor memory);
  Status open_segment(const shm::BufferGrant& grant, shm::Descriptor memory);
  void give_back(const shm::BufferGrant& grant);
  void forget_segment(std::uint32_t segment);
  std::byte* address(const Buffer& buffer) const;

  Connection& connection_;
  Groups& groups_;
  CheckMode* check_;
  std::map<std::uint32_t, Segment> segments_;
  std::unordered_map<muster_buffer, Buffer> buffers_;
};

}  // namespace muster::client
