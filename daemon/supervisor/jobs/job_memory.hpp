// JobMemory: the memory pages of the users who have jobs, kept for a successor and shared out anew.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/descriptor_store.hpp"
#include "daemon/supervisor/jobs/memory_shares.hpp"

#include <chrono>
#include <cstdint>
#include <optional>

namespace muster::supervisor {

// Owns    the pages (MemoryShares), and the timer of their refresh.
// Thread  the supervisor's loop.
// Bound   a page for each user with jobs; a refresh once in kPeriod while there is one.
// Fails   enter: as MemoryShares.
class JobMemory {
 public:
  static constexpr Nanos kPeriod = std::chrono::seconds(1);

  JobMemory(control::Loop& loop, DescriptorStore& store, Shares::Limits limits, std::uint32_t governor)
      : loop_(loop), store_(store), shares_(limits, governor) {}

  // A new job. Its user's page is in the store before an engine has it.
  Status enter(Account who, std::uint64_t job);
  // The engine of the job is gone.
  void leave(Account who, std::uint64_t job);
  // Takes over a predecessor's page of that user. False if it is invalid, or the user has one already.
  bool adopt(Account who, shm::Descriptor page);
  // Finds a predecessor's job in its user's page. False: its memory is not counted.
  bool adopt_job(Account who, std::uint64_t job) { return shares_.adopt_job(who, job); }
  // Refreshes now, and then once in kPeriod: engines take and give back memory without a message.
  void refresh();

  // The page and slot in which an engine counts its memory.
  struct Slot {
    int page = -1;
    std::uint32_t slot = 0;
  };
  std::optional<Slot> place_of(Account who, std::uint64_t job) const;
  Shares held() const { return shares_.held(); }
  const MemoryShares& shares() const { return shares_; }

 private:
  control::Loop& loop_;
  DescriptorStore& store_;
  MemoryShares shares_;
  control::Loop::Watch timer_ = 0;
};

}  // namespace muster::supervisor
