#include "api/client/submit/buffers.hpp"

#include "api/base/fault_point.hpp"
#include "api/base/words.hpp"
#include "api/client/check/check_mode.hpp"

#include <algorithm>
#include <thread>
#include <utility>

#include <fcntl.h>

namespace muster::client {
namespace {

constexpr Nanos kNameBusyPause = std::chrono::milliseconds(1);

Status check_options(const muster_buffer_options& options) {
  if (options.size != sizeof options)
    return failure(Code::kBadArgument,
                   "muster_buffer_options has size {}; initialise it with MUSTER_BUFFER_OPTIONS_INIT",
                   options.size);
  if (options.flags != 0 || options.reserved != 0)
    return failure(Code::kBadArgument, "flags {} and reserved {} must be 0", options.flags, options.reserved);
  if (options.memory < -1)
    return failure(Code::kBadArgument, "memory {} is no descriptor; -1 is the daemon's own", options.memory);
  if (options.memory == -1 && options.memory_offset_bytes != 0)
    return failure(Code::kBadArgument, "memory_offset_bytes {} is of imported memory, and there is none",
                   options.memory_offset_bytes);
  if (options.name != nullptr && options.name[0] == '\0')
    return failure(Code::kBadArgument, "name is empty; NULL is none");
  // Checked here, because sendmsg(2) fails the whole message for a bad descriptor.
  if (options.memory >= 0 && ::fcntl(options.memory, F_GETFD) < 0)
    return failure(Code::kBadArgument, "memory {} is no open descriptor", options.memory);
  return {};
}

}  // namespace

Result<Buffers::Granted> Buffers::alloc(std::uint64_t bytes) {
  if (check_ != nullptr && bytes > 0) {
    auto guarded = alloc_guarded(bytes);
    if (guarded || guarded.error().code() != Code::kUnsupported) return guarded;
  }
  shm::BufferAlloc request;
  request.bytes = bytes;
  return alloc(request, -1);
}

Result<Buffers::Granted> Buffers::alloc_guarded(std::uint64_t bytes) {
  MUSTER_ASSIGN_OR_RETURN(const auto own, GuardedBuffers::own_memory(bytes));
  shm::BufferAlloc request;
  request.bytes = bytes;
  request.memory_offset = own.offset;
  request.imported = 1;
  MUSTER_ASSIGN_OR_RETURN(const Granted granted, alloc(request, own.file.get()));
  const Buffer& made = buffers_.at(granted.buffer);
  check_->buffers().add(granted.buffer, segments_[made.segment].data, granted.address, bytes, true);
  return granted;
}

Result<Buffers::Granted> Buffers::create(const muster_buffer_options& options) {
  MUSTER_RETURN_IF_ERROR(check_options(options));
  shm::BufferAlloc request;
  request.bytes = options.bytes;
  request.shared_by = options.shared_by;
  request.memory_offset = options.memory_offset_bytes;
  request.imported = options.memory >= 0 ? 1 : 0;
  MUSTER_FAULT_POINT("buffer.describing");
  if (options.name != nullptr) MUSTER_RETURN_IF_ERROR(shm::set_text(request.name, options.name, "name"));
  auto granted = alloc(request, options.memory);
  if (granted && check_ != nullptr && granted->address != nullptr) {
    const Buffer& made = buffers_.at(granted->buffer);
    check_->buffers().add(granted->buffer, segments_[made.segment].data, granted->address, made.bytes, false);
  }
  return granted;
}

// Asks again on BUSY: work of the rank's former session still uses the memory of that name, but ends soon.
Result<Buffers::Granted> Buffers::alloc(const shm::BufferAlloc& request, int imported) {
  MUSTER_FAULT_POINT("buffer.asking");
  const Clock& clock = connection_.clock();
  const Instant deadline = later(clock.now(), connection_.timeout());
  while (true) {
    shm::Descriptor memory;
    const auto grant =
        connection_.ask<shm::BufferGrant>(request, shm::MessageKind::kBufferAlloc,
                                          shm::MessageKind::kBufferGrant, {}, nullptr, &memory, imported);
    if (grant) return map(request, *grant, std::move(memory));
    if (grant.error().code() == Code::kNoResource) {
      // The engine may have granted the buffer, but this process had no free descriptor for its memory.
      const auto unopened = connection_.latest_answer<shm::BufferGrant>(shm::MessageKind::kBufferGrant);
      if (unopened) give_back(*unopened);
    }
    if (grant.error().code() != Code::kBusy || clock.now() >= deadline) return fail(grant.error());
    std::this_thread::sleep_for(kNameBusyPause);
  }
}

// Keeps a named buffer that existed before: to free it would lose its contents.
void Buffers::give_back(const shm::BufferGrant& grant) {
  if (grant.found == 0) static_cast<void>(free(grant.buffer));
}

void Buffers::forget_segment(std::uint32_t segment) {
  const auto known = segments_.find(segment);
  if (known == segments_.end()) return;
  if (check_ != nullptr && known->second.data != nullptr) check_->buffers().unmap(known->second.data);
  segments_.erase(known);
}

// A segment's descriptor comes only once, so it is kept until its memory is mapped.
Status Buffers::open_segment(const shm::BufferGrant& grant, shm::Descriptor memory) {
  if (grant.segment_is_new != 0 && memory.valid()) {
    MUSTER_RETURN_IF_ERROR(shm::check_memory(memory, grant.segment_bytes));
    segments_[grant.segment] = Segment{{}, std::move(memory), grant.segment_bytes, nullptr};
  }
  const auto known = segments_.find(grant.segment);
  if (known == segments_.end())
    return failure(
        Code::kNoResource,
        "the buffer lies in memory that could not be opened when it came; raise the open-files limit "
        "(RLIMIT_NOFILE, ulimit -n) and open the session again");
  Segment& segment = known->second;
  if (segment.data != nullptr) return {};
  if (check_ != nullptr) {
    MUSTER_ASSIGN_OR_RETURN(segment.data, check_->buffers().map(segment.memory, segment.bytes));
  } else {
    MUSTER_ASSIGN_OR_RETURN(
        segment.mapping, shm::Mapping::map(segment.memory, segment.bytes, shm::Mapping::Access::kReadWrite));
    segment.data = segment.mapping.writable();
  }
  segment.memory.reset();
  return {};
}

Result<Buffers::Granted> Buffers::map(const shm::BufferAlloc& request, const shm::BufferGrant& grant,
                                      shm::Descriptor memory) {
  MUSTER_FAULT_POINT("buffer.granted");
  const bool whole = request.imported != 0 || request.name[0] != '\0';
  Status opened = open_segment(grant, std::move(memory));
  MUSTER_FAULT_POINT("buffer.mapped");
  if (opened.ok()) {
    const std::uint64_t size = segments_[grant.segment].bytes;
    if (grant.offset > size || request.bytes > size - grant.offset)
      opened = failure(Code::kProtocol, "the daemon granted a buffer outside of its memory");
  }
  if (!opened.ok()) {
    give_back(grant);
    if (whole) forget_segment(grant.segment);
    return fail(opened);
  }
  const Buffer made{grant.segment,     grant.offset,     request.bytes, grant.shared_memory,
                    request.shared_by, grant.found != 0, whole};
  buffers_[grant.buffer] = made;
  MUSTER_FAULT_POINT("buffer.known");
  return Granted{grant.buffer, address(made)};
}

std::byte* Buffers::address(const Buffer& buffer) const {
  const auto segment = segments_.find(buffer.segment);
  return segment == segments_.end() ? nullptr : segment->second.data + buffer.offset;
}

shm::PayloadLocation Buffers::location_of(const muster_range& range) const {
  const auto buffer = buffers_.find(range.buffer);
  if (buffer == buffers_.end()) return {};
  return {shm::PayloadLocation::Kind::kArena, buffer->second.segment,
          buffer->second.offset + range.offset_bytes};
}

std::byte* Buffers::address_of(const muster_range& range) const {
  const auto buffer = buffers_.find(range.buffer);
  return buffer == buffers_.end() ? nullptr : address(buffer->second) + range.offset_bytes;
}

std::uint64_t Buffers::room_of(const muster_range& range) const {
  const auto buffer = buffers_.find(range.buffer);
  if (buffer == buffers_.end() || range.offset_bytes > buffer->second.bytes) return 0;
  return buffer->second.bytes - range.offset_bytes;
}

Result<std::uint64_t> Buffers::shared_target(muster_buffer buffer, muster_group group) {
  const auto known = buffers_.find(buffer);
  if (known == buffers_.end() || known->second.shared_memory == 0) return 0;
  MUSTER_ASSIGN_OR_RETURN(const Groups::Facts* sharers, groups_.facts(known->second.shared_by));
  MUSTER_ASSIGN_OR_RETURN(const Groups::Facts* members, groups_.facts(group));
  const auto shares = [&](std::int32_t rank) {
    return std::find(sharers->ranks.begin(), sharers->ranks.end(), rank) != sharers->ranks.end();
  };
  const bool all = std::all_of(members->ranks.begin(), members->ranks.end(), shares);
  return all ? known->second.shared_memory : 0;
}

Status Buffers::query(muster_buffer buffer, muster_buffer_info* info) const {
  const auto known = buffers_.find(buffer);
  if (known == buffers_.end()) return failure(Code::kStale, "{}", unknown_handle("buffer", buffer, "freed"));
  info->found = known->second.found ? 1 : 0;
  info->bytes = known->second.bytes;
  info->address = address(known->second);
  return {};
}

Status Buffers::free(muster_buffer buffer) {
  shm::HandleMessage request;
  request.handle = buffer;
  MUSTER_FAULT_POINT("buffer.freeing");
  MUSTER_RETURN_IF_ERROR(connection_.tell(request, shm::MessageKind::kBufferFree));
  MUSTER_FAULT_POINT("buffer.freed");
  const auto known = buffers_.find(buffer);
  if (known == buffers_.end()) return {};
  Status finding;
  if (check_ != nullptr) finding = check_->buffer_gone(buffer);
  if (known->second.whole_segment) segments_.erase(known->second.segment);
  buffers_.erase(known);
  return finding;
}

}  // namespace muster::client
