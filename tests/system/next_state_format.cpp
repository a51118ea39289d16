// The state of the next release, for a musterd that stands in for it: one version later, with one more field.
// The variable says who may read what it writes.
#include "daemon/supervisor/state.hpp"

#include <cstdlib>

namespace muster::supervisor {

StateFormat state_format() {
  const char* oldest = std::getenv("MUSTER_TEST_OLDEST_READER");
  const auto reader = oldest == nullptr ? 1u : static_cast<std::uint32_t>(std::strtoul(oldest, nullptr, 10));
  return {2, reader, {{"of_the_next_release", 4711u}}};
}

}  // namespace muster::supervisor
