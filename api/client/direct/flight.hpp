// FlightRing: the flight recorder of this rank's operations on the direct path, for reports on hangs. Each
// operation has one DirectRecord (api/shm/direct.hpp). The clock is read once, after the rank has arrived,
// when it usually has to wait anyway. It is read again at the end only while a trace is taken.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/fault_point.hpp"
#include "api/shm/direct.hpp"
#include "api/shm/untrusted.hpp"

#include <cstddef>
#include <cstdint>

namespace muster::client {

// Owns    the right to write the records of the own segment.
// Thread  the session's.
// Bound   kDirectRecords; the oldest is overwritten.
// Fails   never.
class FlightRing {
 public:
  // The own segment, and the word of the group page that says whether a trace is taken.
  FlightRing(std::byte* segment, const std::uint32_t* recording);

  // The fields that are the same for all runs of a plan.
  struct Constants {
    std::uint64_t what = 0;  // RecordedWhat, packed, without the peer
    std::uint64_t source_bytes = 0;
    std::uint64_t target_bytes = 0;
  };
  // `peer`: the index of the other side in SEND and RECV.
  void began(const Constants& constants, std::uint32_t peer, std::uint64_t epoch, std::uint64_t number,
             Instant now) {
    using Word = shm::Published<std::uint64_t>;
    const std::uint64_t index = ++index_;
    shm::DirectRecord* record = &records_[index % shm::kDirectRecords];
    open_ = record;
    latest_ = now;
    Word(&record->index).store(0);
    MUSTER_FAULT_POINT("record.open");
    Word(&record->what)
        .store_release(constants.what | shm::pack_what({0, 0, 0, static_cast<std::uint16_t>(peer)}));
    Word(&record->epoch).store_release(epoch);
    Word(&record->number).store_release(number);
    Word(&record->source_bytes).store_release(constants.source_bytes);
    Word(&record->target_bytes).store_release(constants.target_bytes);
    Word(&record->begun_ns).store_release(static_cast<std::uint64_t>(now.count()));
    Word(&record->end).store_release(0);
    Word(&record->index).store_release(index);
    Word(&header_->recorded).store_release(index);
  }
  // Index of the next operation's record.
  std::uint64_t next() const { return index_ + 1; }
  // Publishes that the rank waits until all have read the stage of that record's operation. 0: no longer.
  void awaits_readers_of(std::uint64_t index);
  // When the latest operation began; 0: none has.
  Instant latest() const { return latest_; }
  // Whether ended() needs the time: a record is open, and a trace is taken.
  bool wants_end() const { return open_ != nullptr && shm::Untrusted<std::uint32_t>(recording_).load() != 0; }
  // Closes the open record, if there is one. `now` 0: the time was not taken.
  void ended(shm::DirectRecord::State state, Instant now) {
    if (open_ == nullptr) return;
    const auto nanos = static_cast<std::uint64_t>(now.count());
    shm::Published<std::uint64_t>(&open_->end)
        .store_release(nanos << shm::kRecordStateBits | static_cast<std::uint64_t>(state));
    open_ = nullptr;
  }

 private:
  shm::DirectHeader* header_;
  shm::DirectRecord* records_;
  const std::uint32_t* recording_;
  Instant latest_{0};
  std::uint64_t index_ = 0;
  shm::DirectRecord* open_ = nullptr;
};

}  // namespace muster::client
