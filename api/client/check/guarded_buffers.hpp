// GuardedBuffers: the memory of a session in check mode, as this process sees it. Each buffer has mappings of
// its own, with an inaccessible page on both sides.
#pragma once

#include "api/base/result.hpp"
#include "api/client/check/faults.hpp"
#include "api/client/check/memory_use.hpp"
#include "api/shm/descriptor.hpp"

#include <muster/muster.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace muster::client {

// Owns    the mappings. The memory of a buffer that was freed is gone; its addresses stay inaccessible.
// Thread  the session's; other threads may touch a protected page meanwhile.
// Bound   a page on both sides of each buffer; kFreedMax freed ones.
// Fails   own_memory() and map(): NO_RESOURCE. Finds: overwritten bytes around a buffer.
class GuardedBuffers {
 public:
  static constexpr std::size_t kFreedMax = 4096;

  explicit GuardedBuffers(std::int32_t rank) : rank_(rank) {}
  ~GuardedBuffers();
  GuardedBuffers(const GuardedBuffers&) = delete;
  GuardedBuffers& operator=(const GuardedBuffers&) = delete;

  // Memory for one buffer, of whole pages, in which it begins at `offset`: it ends within 64 bytes of them.
  struct OwnMemory {
    shm::Descriptor file;
    std::uint64_t offset = 0;
  };
  static Result<OwnMemory> own_memory(std::uint64_t bytes);
  // Maps all bytes of a memory, between two guards.
  Result<std::byte*> map(const shm::Descriptor& memory, std::uint64_t bytes);
  void unmap(std::byte* mapped);

  // A buffer that lies in a mapping. owned: the bytes around it in its pages belong to nobody, and must not
  // change.
  void add(muster_buffer buffer, std::byte* mapped, std::byte* data, std::uint64_t bytes, bool owned);
  // Names the buffer in findings.
  void name(muster_buffer buffer, std::string name);
  // The buffer is freed.
  Status give_back(muster_buffer buffer);
  // kState, if something was written around a buffer. Each buffer is reported once.
  Status check_around();

  // Until release() the process must not touch memory that a start writes, nor write memory that it reads. A
  // forbidden access reports `why`. Only pages that lie wholly in a use are protected.
  void protect(const MemoryUses& uses, const std::string& why);
  void release(const MemoryUses& uses);
  // "bytes [0, 64) of buffer 0x10001".
  std::string name_of(const std::byte* from, const std::byte* to) const;
  // Whether the address is of a buffer that this process sees.
  bool has(const std::byte* address) const { return find(address) != nullptr; }
  // Where the buffer lies; nulls if there is none of that handle.
  std::pair<const std::byte*, const std::byte*> extent_of(muster_buffer buffer) const;

 private:
  struct Page {
    std::uint32_t writers = 0, readers = 0;
    int access = 0;  // of mprotect(2)
  };
  struct Guarded {
    muster_buffer buffer = 0;  // 0: none is known yet
    std::string name;          // empty: none was given
    std::byte* mapped = nullptr;
    std::size_t mapped_bytes = 0;
    std::byte* data = nullptr;
    std::uint64_t bytes = 0;
    bool owned = false;
    bool told = false;  // that something was written around it
    WatchedRange range;
    std::vector<Page> pages;  // of the mapping
  };

  Guarded* find(const std::byte* address);
  const Guarded* find(const std::byte* address) const;
  std::string full_name(const Guarded& guarded) const;
  Status check_around(Guarded& guarded);
  template<class Change>
  void change_pages(const MemoryUse& use, Change change);
  void set_access(Guarded& guarded, std::size_t first, std::size_t last);
  void drop(Guarded& guarded);

  std::int32_t rank_;
  std::map<const std::byte*, std::unique_ptr<Guarded>> all_;  // by the end of the mapping
  std::map<muster_buffer, Guarded*> by_buffer_;
  std::deque<std::unique_ptr<Guarded>> freed_;
};

}  // namespace muster::client
