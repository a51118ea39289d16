// A link to a scripted daemon, and a loop that turns until a test has what it waits for.
#pragma once

#include "daemon/cli/daemon_link.hpp"
#include "tests/daemon/cli/scripted_daemon.hpp"

#include <chrono>
#include <cstdlib>
#include <functional>
#include <memory>
#include <utility>

#include <unistd.h>

namespace muster::test {

inline bool turn_until(control::Loop& loop, const std::function<bool()>& done) {
  const SteadyClock clock;
  const Instant end = clock.now() + std::chrono::milliseconds(kPatienceMs);
  while (!done() && clock.now() < end)
    if (!loop.turn()) usleep(500);
  return done();
}

class ScriptedLink {
 public:
  explicit ScriptedLink(ScriptedDaemon::Script script, Nanos timeout = std::chrono::seconds(60))
      : daemon_(std::move(script)) {
    auto link = cli::DaemonLink::open(loop_, {daemon_.socket(), timeout}, [] {});
    if (!link) std::abort();
    link_ = *std::move(link);
  }
  const ScriptedDaemon& daemon() const { return daemon_; }
  control::Loop& loop() { return loop_; }
  cli::DaemonLink& link() { return *link_; }
  bool turn_until(const std::function<bool()>& done) { return test::turn_until(loop_, done); }

 private:
  ScriptedDaemon daemon_;
  control::Loop loop_;
  std::unique_ptr<cli::DaemonLink> link_;
};

}  // namespace muster::test
