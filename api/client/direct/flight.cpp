#include "api/client/direct/flight.hpp"

namespace muster::client {

using shm::Published;

FlightRing::FlightRing(std::byte* segment, const std::uint32_t* recording)
    : header_(reinterpret_cast<shm::DirectHeader*>(segment)),
      records_(reinterpret_cast<shm::DirectRecord*>(segment + shm::kDirectRecordsOffset)),
      recording_(recording) {}

void FlightRing::awaits_readers_of(std::uint64_t index) {
  Published<std::uint64_t>(&header_->awaiting).store_release(index);
}

}  // namespace muster::client
