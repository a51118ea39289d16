#include "daemon/supervisor/base/options.hpp"

#include "api/base/ids.hpp"

#include <algorithm>

#include <unistd.h>

namespace muster::supervisor {

std::uint64_t draw_epoch(const Options& options) {
  return std::max<std::uint64_t>(1, options.random_word() & Handle::kGenerationMask);
}

Shares session_shares(const Options& options) {
  return {Shares::limits_of(options.sessions_max, options.sessions_per_user_max), geteuid()};
}

}  // namespace muster::supervisor
