// Shared memory without a name: sealed memfds, whose descriptors travel over a socket.
//
// The engine creates all of them. It reserves every page, so that no later access raises SIGBUS, and seals
// the size, so that the other side cannot take pages away. Once it has mapped the completion page it seals
// that against writing too: no other process can ever map the page writable.
#pragma once

#include "api/base/result.hpp"
#include "api/shm/completion.hpp"
#include "api/shm/descriptor.hpp"
#include "api/shm/headroom.hpp"
#include "api/shm/layout.hpp"
#include "api/shm/ring.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace muster::shm {

// Owns    one mapping, from map() to destruction. The descriptor may be closed before.
// Thread  a value; the bytes have rules of their own.
// Bound   size() bytes.
// Fails   map: kNoResource.
class Mapping {
 public:
  enum class Access { kRead, kReadWrite };

  Mapping() = default;
  static Result<Mapping> map(const Descriptor& memory, std::size_t bytes, Access access);
  Mapping(Mapping&& other) noexcept;
  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  const std::byte* data() const noexcept { return data_; }
  // Asserts that the mapping is writable.
  std::byte* writable() const noexcept;
  std::size_t size() const noexcept { return size_; }
  bool valid() const noexcept { return data_ != nullptr; }

 private:
  Mapping(std::byte* data, std::size_t size, Access access) : data_(data), size_(size), access_(access) {}
  void unmap() noexcept;

  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
  Access access_ = Access::kRead;
};

// kFinal: no seal can follow the size seals. kOpen: more seals can be added.
enum class Sealing { kFinal, kOpen };

// An empty memory file that can be sealed and is not executable. Invalid on failure; errno says why.
Descriptor open_memory_file(const char* name);

// Zeroed, reserved memory of a fixed size. `name` shows in /proc/PID/maps. Errors: BAD_ARGUMENT (0 bytes),
// NO_RESOURCE with need, limit and remedy.
Result<Descriptor> create_memory(const char* name, std::uint64_t bytes, const Headroom& headroom,
                                 Sealing sealing = Sealing::kFinal);
// As create_memory, but only the first `reserved` bytes are reserved. The rest costs nothing and must not be
// touched before reserve_memory() has covered it.
Result<Descriptor> create_growing_memory(const char* name, std::uint64_t bytes, std::uint64_t reserved,
                                         const Headroom& headroom);
// Reserves bytes [first, first + bytes) of such memory. Errors: NO_RESOURCE.
Status reserve_memory(const Descriptor& memory, std::uint64_t first, std::uint64_t bytes,
                      const Headroom& headroom);

// Refuses memory that could still shrink, or that has not the stated size. Errors: PROTOCOL.
Status check_memory(const Descriptor& memory, std::uint64_t bytes);

// The segment that the client writes.
//
// Owns    its descriptor and its mapping.
// Thread  a value; words follow the ring's rules.
// Bound   kSubmissionBytes.
// Fails   create: NO_RESOURCE; attach: PROTOCOL, NO_RESOURCE.
class SubmissionView {
 public:
  // For the engine, which maps this segment for reading alone.
  static Result<SubmissionView> create(const Headroom& headroom);
  // Client.
  static Result<SubmissionView> attach(Descriptor memory);

  const Descriptor& descriptor() const { return memory_; }
  const SubmissionHeader* header() const;
  SubmissionHeader* writable_header() const;
  const std::uint64_t* slots() const;
  std::uint64_t* writable_slots() const;

 private:
  SubmissionView(Descriptor memory, Mapping mapping)
      : memory_(std::move(memory)), mapping_(std::move(mapping)) {}
  Descriptor memory_;
  Mapping mapping_;
};

// The segment that the engine writes.
//
// Owns    its descriptor and its mapping.
// Thread  a value; words follow the completion page's rules.
// Bound   kCompletionBytes.
// Fails   create: NO_RESOURCE; attach: PROTOCOL, VERSION (magic, versions or sizes differ), NO_RESOURCE.
class CompletionView {
 public:
  // For the engine: writes the header, then seals the segment against writing by any other process.
  static Result<CompletionView> create(std::uint32_t session, std::uint64_t epoch, const Headroom& headroom);
  // Client.
  static Result<CompletionView> attach(Descriptor memory);

  const Descriptor& descriptor() const { return memory_; }
  const CompletionSegment* page() const;
  CompletionSegment* writable_page() const;

 private:
  CompletionView(Descriptor memory, Mapping mapping)
      : memory_(std::move(memory)), mapping_(std::move(mapping)) {}
  Descriptor memory_;
  Mapping mapping_;
};

// The header of a page of this library.
CompletionHeader completion_header(std::uint32_t session, std::uint64_t epoch);
// Whether a copy of a header fits this library. Pure. Errors: VERSION, with the field and both values.
Status check_header(const CompletionHeader& header);

// Both sides of the ring, from the segments of one session.
RingWriter<> ring_writer(const SubmissionView& submission, const CompletionView& completion);
RingReader<> ring_reader(const SubmissionView& submission, const CompletionView& completion);

}  // namespace muster::shm
