#include "daemon/engine/session/session_buffers.hpp"

#include "api/base/words.hpp"

#include <algorithm>

namespace muster::engine {

Status SessionBuffers::check_limit() const {
  if (buffers_.size() < buffers_.capacity()) return {};
  return failure(Code::kNoResource,
                 "the rank has {} buffers already (limits.buffers_per_rank_max); free some", buffers_.size());
}

Result<Handle> SessionBuffers::add(Buffer buffer) {
  const Arena::Grant grant = buffer.grant;
  const std::uint64_t bytes = buffer.bytes;
  const auto handle = buffers_.insert(std::move(buffer));
  if (!handle) {
    arena_.free(grant);  // NOLINT(clang-analyzer-unix.Malloc): not the C library's free()
    return fail(check_limit());
  }
  bytes_ += bytes;
  bytes_peak_ = std::max(bytes_peak_, bytes_);
  counters_.set(shm::Counter::kBufferBytes, bytes_);
  counters_.set(shm::Counter::kBufferBytesPeak, bytes_peak_);
  return *handle;
}

bool SessionBuffers::holds(std::uint64_t identity) const {
  bool found = false;
  buffers_.for_each([&](Handle, const Buffer& buffer) {
    found = found || (buffer.name.valid() && buffer.name.identity() == identity);
  });
  return found;
}

std::size_t SessionBuffers::shared_by(GroupId group) const {
  std::size_t count = 0;
  buffers_.for_each([&](Handle, const Buffer& buffer) {
    count += buffer.shared_memory != 0 && buffer.shared_by == group ? 1 : 0;
  });
  return count;
}

Status SessionBuffers::free(Handle handle, Gone& gone) {
  Buffer* buffer = buffers_.find(handle);
  if (buffer == nullptr) return failure(Code::kStale, "{}", unknown_handle("buffer", handle.bits, "freed"));
  if (buffer->plans > 0)
    return failure(Code::kBusy, "plans use the buffer ({} of them); destroy those first", buffer->plans);
  gone.push_back(arena_.free(buffer->grant));
  gone.push_back(buffer->name.drop());
  bytes_ -= buffer->bytes;  // NOLINT(clang-analyzer-unix.Malloc): not the C library's free()
  counters_.set(shm::Counter::kBufferBytes, bytes_);
  buffers_.erase(handle);
  return {};
}

void SessionBuffers::hold(const scheduler::Plan& plan) {
  for (const Handle buffer : plan.buffers) ++buffers_.find(buffer)->plans;
}

void SessionBuffers::release(const scheduler::Plan& plan) {
  for (const Handle buffer : plan.buffers) --buffers_.find(buffer)->plans;
}

bool SessionBuffers::introduce_segment(std::uint32_t segment) {
  if (introduced_.size() <= segment) introduced_.resize(segment + 1, false);
  const bool known = introduced_[segment];
  introduced_[segment] = true;
  return !known;
}

void SessionBuffers::give_back(Gone& gone) {
  buffers_.for_each([&](Handle, Buffer& buffer) { gone.push_back(arena_.free(buffer.grant)); });
}

}  // namespace muster::engine
