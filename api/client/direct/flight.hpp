// FlightRing: what this rank runs on the direct path, for whoever asks why it does not come. One record of
// api/shm/direct.hpp an operation; the clock is read once, after the rank has arrived, when it mostly waits
// anyhow, and once more at the end only while a trace is taken.
#pragma once

#include "api/base/clock.hpp"
#include "api/shm/direct.hpp"

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

  struct Facts {
    shm::RecordedWhat what;
    std::uint64_t epoch = 0;
    std::uint64_t number = 0;
    std::uint64_t source_bytes = 0;
    std::uint64_t target_bytes = 0;
  };
  void began(const Facts& facts, Instant now);
  // Where the next operation that begins will stand.
  std::uint64_t next() const { return index_ + 1; }
  // The rank waits for the readers of that operation; 0: for none any more.
  void awaits_readers_of(std::uint64_t index);
  // When the latest operation began; 0: none has.
  Instant latest() const { return latest_; }
  // Whether ended() wants to know the time.
  bool wants_end() const;
  // Nothing if no operation began. `now` 0: not taken.
  void ended(shm::RecordState state, Instant now);

 private:
  shm::DirectHeader* header_;
  shm::DirectRecord* records_;
  const std::uint32_t* recording_;
  Instant latest_{0};
  std::uint64_t index_ = 0;
  shm::DirectRecord* open_ = nullptr;
};

}  // namespace muster::client
