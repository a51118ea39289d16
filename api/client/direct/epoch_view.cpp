#include "api/client/direct/epoch_view.hpp"

#include "api/shm/untrusted.hpp"

#include <atomic>

namespace muster::client {
namespace {

using shm::Published;
using shm::Untrusted;

}  // namespace

EpochView::EpochView(const shm::GroupLine* line, std::uint64_t* own, const std::vector<Peer>& peers)
    : line_(line), own_(own), peers_(peers) {}

void EpochView::move_to(std::uint64_t epoch, std::uint64_t base) {
  epoch_ = epoch;
  base_ = base;
  Published<std::uint64_t>(own_).store_release(epoch);
  std::atomic_thread_fence(std::memory_order_release);
}

const shm::EndedEpoch* EpochView::record_of(std::uint64_t epoch) const {
  for (const shm::EndedEpoch& record : line_->ended)
    if (look(&record.epoch) == epoch) return &record;
  return nullptr;
}

EpochView::Fate EpochView::fate_of(At at) const {
  if (!has_ended(at.epoch)) return Fate::kGoesOn;
  const shm::EndedEpoch* record = record_of(at.epoch);
  if (record == nullptr) return Fate::kEnded;
  const std::uint64_t met = look(&record->met);
  // Checked last: the engine clears a record's epoch before it reuses the record for another one.
  if (look(&record->epoch) != at.epoch) return Fate::kEnded;
  if (met == shm::kMetUncounted) return Fate::kUnknown;
  return at.position <= met ? Fate::kGoesOn : Fate::kEnded;
}

bool EpochView::parted_from(std::uint32_t i) const {
  return ended() || (closed() && look(peers_[i].life) % 2 == 0);
}

// Reads `life` first. When a rank attaches again, the engine sets the member's epoch to the present one
// before it changes `life`. So a reader that sees the new life also sees the new epoch.
bool EpochView::has_left(std::uint32_t i, std::uint64_t epoch) const {
  std::atomic_thread_fence(std::memory_order_acquire);  // reads of memory come before the checks
  if (!has_ended(epoch)) return false;
  return look(peers_[i].life) % 2 == 0 || look(&peers_[i].region->epoch) > epoch;
}

bool EpochView::let_go(std::uint32_t i, At at) const {
  return has_left(i, at.epoch) || fate_of(at) == Fate::kEnded;
}

}  // namespace muster::client
