#include "api/client/direct/flight.hpp"

#include "api/base/fault_point.hpp"
#include "api/shm/untrusted.hpp"

namespace muster::client {

using shm::Published;
using shm::Untrusted;

FlightRing::FlightRing(std::byte* segment, const std::uint32_t* recording)
    : header_(reinterpret_cast<shm::DirectHeader*>(segment)),
      records_(reinterpret_cast<shm::DirectRecord*>(segment + shm::kDirectRecordsOffset)),
      recording_(recording) {}

void FlightRing::began(const Facts& facts, Instant now) {
  shm::DirectRecord* record = &records_[++index_ % shm::kDirectRecords];
  open_ = record;
  latest_ = now;
  Published<std::uint64_t>(&record->index).store(0);
  MUSTER_FAULT_POINT("record.open");
  Published<std::uint64_t>(&record->what).store_release(shm::pack_what(facts.what));
  Published<std::uint64_t>(&record->epoch).store_release(facts.epoch);
  Published<std::uint64_t>(&record->number).store_release(facts.number);
  Published<std::uint64_t>(&record->source_bytes).store_release(facts.source_bytes);
  Published<std::uint64_t>(&record->target_bytes).store_release(facts.target_bytes);
  Published<std::uint64_t>(&record->begun_ns).store_release(static_cast<std::uint64_t>(now.count()));
  Published<std::uint64_t>(&record->end).store_release(0);
  Published<std::uint64_t>(&record->index).store_release(index_);
  Published<std::uint64_t>(&header_->recorded).store_release(index_);
}

void FlightRing::awaits_readers_of(std::uint64_t index) {
  Published<std::uint64_t>(&header_->awaiting).store_release(index);
}

bool FlightRing::wants_end() const {
  return open_ != nullptr && Untrusted<std::uint32_t>(recording_).load() != 0;
}

void FlightRing::ended(shm::RecordState state, Instant now) {
  if (open_ == nullptr) return;
  const auto nanos = static_cast<std::uint64_t>(now.count());
  Published<std::uint64_t>(&open_->end)
      .store_release(nanos << shm::kRecordStateBits | static_cast<std::uint64_t>(state));
  open_ = nullptr;
}

}  // namespace muster::client
