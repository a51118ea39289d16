// MemoryShares: how much of the node's memory the jobs of each user hold and may hold.
#pragma once

#include "api/shm/memory_page.hpp"
#include "daemon/supervisor/base/shares.hpp"

#include <cstdint>
#include <map>

namespace muster::supervisor {

// Owns    a page for each user who has jobs (api/shm/memory_page.hpp).
// Thread  the supervisor's loop.
// Bound   as Shares, in bytes. Reports of engines count up to their user's share. Users who take memory at
//         once may pass the node's limit until the next refresh().
// Fails   enter: kNoResource.
class MemoryShares {
 public:
  MemoryShares(Shares::Limits limits, std::uint32_t governor) : limits_(limits), governor_(governor) {}

  // Takes over a predecessor's page of that user. False if it is invalid.
  bool adopt(Account who, shm::Descriptor page);
  // Finds a predecessor's job in a page that was taken over. False: its memory is not counted.
  bool adopt_job(Account who, std::uint64_t job);
  // Gives a new job a slot in its owner's page. True if that page is new.
  Result<bool> enter(Account who, std::uint64_t job);
  // The engine of the job is gone. True if its page was removed too.
  bool leave(Account who, std::uint64_t job);
  bool empty() const { return pages_.empty(); }
  // nullptr: the user has no page.
  const shm::MemoryPage* page(Account who) const;
  // The memory that the jobs of each user report now, up to its share.
  Shares held() const;
  // The memory that one job reports.
  std::uint64_t held_by(Account who, std::uint64_t job) const;
  // The bytes by which the user would pass his limit, if a job of his takes `bytes` more. 0: they fit.
  std::uint64_t lacking(Account who, std::uint64_t bytes) const;
  // Sets what each user may still take, from what is left now.
  void refresh();

 private:
  Shares now() const;
  Shares::Limits limits_;
  std::uint32_t governor_;
  std::map<Account, shm::MemoryPage> pages_;  // by user
};

}  // namespace muster::supervisor
