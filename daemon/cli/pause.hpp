// Waiting for a while, or for the user to end it.
#pragma once

namespace muster::cli {

// Until the time is up or the user has had enough (SIGINT, SIGTERM, which stay blocked); true for the latter.
bool pause(double seconds);

}  // namespace muster::cli
