#include "daemon/supervisor/options.hpp"

#include <unistd.h>

namespace muster::supervisor {

Shares session_shares(const Options& options) {
  return {Shares::limits_of(options.sessions_max, options.sessions_per_user_max), geteuid()};
}

}  // namespace muster::supervisor
