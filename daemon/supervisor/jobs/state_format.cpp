#include "daemon/supervisor/jobs/state.hpp"

namespace muster::supervisor {

StateFormat state_format() {
  return {};
}

}  // namespace muster::supervisor
