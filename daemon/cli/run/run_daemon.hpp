// RunDaemon: the daemon of a run. It is one that runs already, or a private one, which ends with the run.
#pragma once

#include "daemon/cli/daemon_link.hpp"
#include "daemon/cli/run/private_daemon.hpp"
#include "daemon/cli/run/run_plan.hpp"

#include <chrono>
#include <functional>
#include <memory>
#include <string>

namespace muster::cli {

// Owns    the connection, and the private daemon if there is one.
// Thread  the loop's. It stays until the loop has stopped.
// Bound   one daemon. A private one has the run's timeout to start, and kEndTime to end: then it is killed.
// Fails   find: on_trouble. A daemon that goes away for good after it was found: on_lost, once.
class RunDaemon {
 public:
  static constexpr Nanos kEndTime = std::chrono::seconds(20);
  struct Events {
    std::function<void()> on_found;
    std::function<void(const Trouble&)> on_trouble;
    std::function<void()> on_lost;
    std::function<void()> on_end;  // all is over after leave(), or a private daemon is after expect_end()
  };

  RunDaemon(control::Loop& loop, const RunPlan& plan, Events events);

  // Says on standard error which daemon it has found.
  void find();
  // Between on_found and leave().
  DaemonLink& link() const { return *link_; }
  const std::string& endpoint() const { return address_.endpoint; }
  bool is_private() const { return daemon_ != nullptr; }
  // The run ends: it is not told any more that the daemon is gone.
  void expect_end() { ending_ = true; }
  // Ends the connection, and with it the run's own job; then the private daemon.
  void leave();
  void leave_at_once();

 private:
  void on_absence(const Status& status);
  void start();
  void connect();
  void on_lost() const;
  void on_death();

  control::Loop& loop_;
  const RunPlan& plan_;
  Events events_;
  DaemonAddress address_;
  std::unique_ptr<PrivateDaemon> daemon_;
  control::Loop::Watch death_ = 0;
  control::Loop::Watch give_up_ = 0;
  std::unique_ptr<DaemonLink> link_;
  bool ending_ = false;
};

}  // namespace muster::cli
