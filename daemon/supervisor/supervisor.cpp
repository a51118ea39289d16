#include "daemon/supervisor/supervisor.hpp"

#include "api/base/log.hpp"

#include <csignal>

namespace muster::supervisor {
namespace {

constexpr Nanos kWatchdogPeriod = std::chrono::seconds(1);

}  // namespace

Supervisor::~Supervisor() = default;

void Supervisor::run() {
  hold_signals();
  loop_.watch(signals_.descriptor(), [this] { on_signal(signals_.take()); });
  const std::function<void()> beat = [this, &beat] {
    tell("WATCHDOG=1");
    loop_.after(kWatchdogPeriod, beat);
  };
  beat();
  tell("READY=1");
  publish_status();
  MUSTER_LOG(kInfo, "supervisor", "listening at {}", entrance_.socket().path());
  loop_.run();
  store_.forget_all();
  running_.clear();
}

void Supervisor::on_signal(int number) {
  if (number == SIGTERM || number == SIGINT) drain(!draining_);
  // A terminal that closes ends no jobs, and whoever means "read the settings again" hears how.
  if (number == SIGHUP)
    MUSTER_LOG(kInfo, "supervisor", "SIGHUP changes nothing; `muster upgrade` takes over with new settings");
  if (number == SIGUSR2)
    begin_upgrade("", [](const Status& refused) {
      MUSTER_LOG(kError, "supervisor", "no upgrade: {}", refused.message());
    });
}

bool Supervisor::turn() {
  return loop_.turn();
}

void Supervisor::tell(const std::string& text) const {
  // A manager that does not listen is no reason to stop: its own timeouts decide.
  if (options_.notify) options_.notify(text, {});
}

void Supervisor::request_shutdown() {
  post([this] { drain(!draining_); });
}

void Supervisor::post(std::function<void()> callback) {
  loop_.post(std::move(callback));
}

void Supervisor::publish_status() {
  tell(fmt::format("STATUS={} sessions, {} jobs{}", sessions(), table_.jobs().size(),
                   draining_ ? ", draining" : ""));
}

std::uint32_t Supervisor::sessions() const {
  std::uint32_t count = 0;
  for (const auto& [name, job] : table_.jobs()) count += job.held();
  return count;
}

// Whoever is attached, has claimed a seat, or waits for its job without one.
Shares Supervisor::sessions_by_user() const {
  Shares sessions(Shares::limits_of(options_.sessions_max, options_.sessions_per_user_max), geteuid());
  table_.count_sessions(sessions);
  for (const auto& [name, running] : running_)
    for (const WaitingClient& client : running.waiting)
      if (client.epoch == 0) sessions.enter(client.peer.uid);
  return sessions;
}

}  // namespace muster::supervisor
