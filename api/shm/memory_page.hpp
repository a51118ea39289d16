// How much of the node's memory the jobs of one account hold and may hold: of one user, or of one container.
// The supervisor makes such a page for each account with jobs, and the engines of those jobs write it.
//
//   +--------------------------------------------+ 0
//   | Header                                     |
//   +--------------------------------------------+ 1 line
//   | Limits: the supervisor's                   |
//   +--------------------------------------------+ 2 lines
//   | Slot[kMemorySlots]: one for each job       |
//   +--------------------------------------------+
//
// 1. The supervisor writes limits, and the slots that no engine has. An engine writes the bytes of its slot.
// 2. An engine that takes bytes first adds them to its slot and then sums all slots. So of two that take at
//    once at least one sees both. An engine over the limit gives its bytes back.
// 3. An engine runs as its job's user, who can ptrace it: it may write anything. Too large a number hurts
//    that user's other jobs alone. Too small a number hides what the user takes of the node. So the page
//    bounds the memory of honest engines; a cgroup bounds a hostile user.
#pragma once

#include "api/shm/segment.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace muster::shm {

constexpr std::uint64_t kMagicMemoryPage = 0x4d555354454d45;  // "MUSTEME"
constexpr std::uint32_t kMemorySlots = 1024;                  // as many jobs as a node may have

constexpr std::size_t kMemoryLimitsOffset = kLineBytes;
constexpr std::size_t kMemorySlotsOffset = 2 * kLineBytes;

// The supervisor's side.
//
// Owns    the memory, and a table of which slot is which job's: only find_again() reads that from the page.
// Thread  one.
// Bound   kMemorySlots jobs.
// Fails   create: NO_RESOURCE; adopt: PROTOCOL, VERSION, NO_RESOURCE.
class MemoryPage {
 public:
  struct Header {
    std::uint64_t magic = 0;
    std::uint32_t abi_version = 0;
    std::uint32_t uid = 0;       // of the account
    std::uint32_t governor = 0;  // the daemon's user, which may govern the page beside root
    std::uint32_t unused = 0;
    std::uint64_t container = 0;  // of the account; 0: a user of the node
  };

  struct Limits {
    std::uint64_t share = 0;  // the user's, whatever others hold
    std::uint64_t limit = 0;  // the share, or what the node has left if that is less
  };

  struct Slot {
    std::uint64_t job = 0;  // its epoch; 0: the slot is free
    std::uint64_t bytes = 0;
  };

  static Result<MemoryPage> create(std::uint32_t uid, std::uint64_t container, std::uint32_t governor,
                                   const Headroom& headroom);
  // The page of a former supervisor.
  static Result<MemoryPage> adopt(Descriptor memory);

  const Descriptor& descriptor() const { return memory_; }
  std::uint32_t uid() const { return uid_; }
  std::uint64_t container() const { return container_; }
  void set_limits(const Limits& limits);
  // Gives a slot to a job that has none. False: no slot is free.
  bool give(std::uint64_t job);
  // Finds the slot that a former supervisor gave the job. False: there is none.
  bool find_again(std::uint64_t job);
  // The job's engine has ended, or was never there.
  void take_back(std::uint64_t job);
  std::optional<std::uint32_t> slot_of(std::uint64_t job) const;
  bool empty() const { return slots_.empty(); }
  // Bytes that the job's engine says it holds; 0: it has no slot.
  std::uint64_t held_by(std::uint64_t job) const;
  // Bytes that the engines say their jobs hold; at most UINT64_MAX / 2.
  std::uint64_t held() const;

 private:
  MemoryPage(Descriptor memory, Mapping mapping, std::uint32_t uid, std::uint64_t container)
      : memory_(std::move(memory)), mapping_(std::move(mapping)), uid_(uid), container_(container) {}
  Slot* slot(std::uint32_t index) const;

  Descriptor memory_;
  Mapping mapping_;
  std::uint32_t uid_ = 0;
  std::uint64_t container_ = 0;
  std::map<std::uint64_t, std::uint32_t> slots_;  // by job
  std::vector<bool> given_ = std::vector<bool>(kMemorySlots);
};

constexpr std::size_t kMemoryPageBytes = kMemorySlotsOffset + kMemorySlots * sizeof(MemoryPage::Slot);

// A checked copy of a page's header. Errors: PROTOCOL, VERSION.
Result<MemoryPage::Header> check_memory_page(const Descriptor& memory, const Mapping& mapping);
// The sum of all slots but one; at most UINT64_MAX / 2, whatever is written there.
std::uint64_t bytes_of_others(const Mapping& mapping, std::uint32_t slot);

}  // namespace muster::shm
