// Refusals: logs refused clients, as often as RefusalLog allows.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/supervisor/listener/identities.hpp"
#include "daemon/supervisor/listener/refusal_log.hpp"

#include <cstdint>
#include <string_view>

namespace muster::supervisor {

// Answers a client, or a command line that could not be read, with a Failure. Ignores a client that has left.
void send_refusal(const shm::Descriptor& socket, std::uint32_t serial, const Status& why);

// Owns    the lines that are still to be written, and their timer.
// Thread  the supervisor's loop.
// Bound   RefusalLog's, twice: wrong claims have lines of their own. Tokens are tried there, and a crowd of
//         other refusals must not hide it.
// Fails   never.
class Refusals {
 public:
  Refusals(control::Loop& loop, const Clock& clock);

  // `what` was refused: a connection, a command.
  void tell(const PendingClient& client, std::string_view what, const Status& why);
  // A rank was refused. No Status holds a token's text.
  void tell_rank(const PendingClient& client, const Status& why);

 private:
  void tell_in(RefusalLog& log, const PendingClient& client, std::string_view what, const Status& why);
  void tell_more();

  control::Loop& loop_;
  const Clock& clock_;
  RefusalLog all_;
  RefusalLog wrong_claims_;
};

}  // namespace muster::supervisor
