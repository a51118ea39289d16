#include "daemon/supervisor/jobs/state.hpp"

namespace muster::supervisor {

State::Format state_format() {
  return {};
}

}  // namespace muster::supervisor
