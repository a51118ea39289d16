// What the jobs of one user hold of the node's memory, and how much they may: a page that the supervisor
// makes for each user who has jobs, and that the engines of those jobs write.
//
//   +--------------------------------------------+ 0
//   | MemoryPageHeader                           |
//   +--------------------------------------------+ 1 line
//   | MemoryLimits: the supervisor's             |
//   +--------------------------------------------+ 2 lines
//   | MemorySlot[kMemorySlots]: one for each job |
//   +--------------------------------------------+
//
// 1. The supervisor writes limits, and the slots that no engine has. An engine writes the bytes of its slot.
// 2. Who takes bytes adds them to its slot first and sums all slots then, so of two that take at once one at
//    least sees both. Who is over the limit gives them back.
// 3. An engine runs as its job's user, who can ptrace it: what it writes may be anything. Too much hurts that
//    user's other jobs alone. Too little hides what the user takes of the node. So the page bounds the memory
//    of honest engines; a cgroup bounds a hostile user.
#pragma once

#include "api/shm/segment.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace muster::shm {

constexpr std::uint64_t kMagicMemoryPage = 0x4d555354454d45;  // "MUSTEME"
constexpr std::uint32_t kMemorySlots = 1024;                  // as many jobs as a node may have

struct MemoryPageHeader {
  std::uint64_t magic = 0;
  std::uint32_t abi_version = 0;
  std::uint32_t uid = 0;       // whose jobs they are
  std::uint32_t governor = 0;  // the daemon's user, who governs it beside root
  std::uint32_t unused = 0;
};
struct MemoryLimits {
  std::uint64_t share = 0;  // of the user, whatever others have
  std::uint64_t limit = 0;  // less, where the node has not so much left
};
struct MemorySlot {
  std::uint64_t job = 0;  // its epoch; 0: nobody's
  std::uint64_t bytes = 0;
};
constexpr std::size_t kMemoryLimitsOffset = kLineBytes;
constexpr std::size_t kMemorySlotsOffset = 2 * kLineBytes;
constexpr std::size_t kMemoryPageBytes = kMemorySlotsOffset + kMemorySlots * sizeof(MemorySlot);

// A copy of the header of such a page, checked. PROTOCOL, VERSION.
Result<MemoryPageHeader> check_memory_page(const Descriptor& memory, const Mapping& mapping);
// What all slots but one hold; at most UINT64_MAX / 2, whatever is written there.
std::uint64_t bytes_of_others(const Mapping& mapping, std::uint32_t slot);

// The supervisor's end.
//
// Owns    the memory, and which slot is which job's: what the page says of that counts in find_again() alone.
// Thread  one.
// Bound   kMemorySlots jobs.
// Fails   create: NO_RESOURCE; adopt: PROTOCOL, VERSION, NO_RESOURCE.
class MemoryPage {
 public:
  static Result<MemoryPage> create(std::uint32_t uid, std::uint32_t governor, const Headroom& headroom);
  // A predecessor's.
  static Result<MemoryPage> adopt(Descriptor memory);

  const Descriptor& descriptor() const { return memory_; }
  std::uint32_t uid() const { return uid_; }
  void set_limits(const MemoryLimits& limits);
  // A slot for a job that has none. False: all are given.
  bool give(std::uint64_t job);
  // The slot that a predecessor gave the job. False: there is none.
  bool find_again(std::uint64_t job);
  // The job's engine has ended, or was never there.
  void take_back(std::uint64_t job);
  std::optional<std::uint32_t> slot_of(std::uint64_t job) const;
  bool empty() const { return slots_.empty(); }
  // What the jobs hold, as their engines say; at most UINT64_MAX / 2.
  std::uint64_t held() const;

 private:
  MemoryPage(Descriptor memory, Mapping mapping, std::uint32_t uid)
      : memory_(std::move(memory)), mapping_(std::move(mapping)), uid_(uid) {}
  MemorySlot* slot(std::uint32_t index) const;

  Descriptor memory_;
  Mapping mapping_;
  std::uint32_t uid_ = 0;
  std::map<std::uint64_t, std::uint32_t> slots_;  // by job
  std::vector<bool> given_ = std::vector<bool>(kMemorySlots);
};

}  // namespace muster::shm
