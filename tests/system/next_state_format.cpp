// The state of the next release, for a musterd that stands in for it: one version later, with one more field.
// The variables say who may read what it writes, and that it speaks another version of messages.
#include "daemon/supervisor/jobs/state.hpp"

#include <cstdlib>

namespace muster::supervisor {

State::Format state_format() {
  const char* oldest = std::getenv("MUSTER_TEST_OLDEST_READER");
  const auto reader = oldest == nullptr ? 1u : static_cast<std::uint32_t>(std::strtoul(oldest, nullptr, 10));
  const char* other = std::getenv("MUSTER_TEST_PROTOCOL");
  const auto protocol =
      other == nullptr ? shm::kAbiVersion : static_cast<std::uint32_t>(std::strtoul(other, nullptr, 10));
  return {2, reader, {{"of_the_next_release", 4711u}}, protocol};
}

}  // namespace muster::supervisor
