// Supervisor: the daemon of a node. It decides who may do what, starts and ends engines, and hands clients
// over to them. It is off the data path: engines and their clients go on without it, and its successor takes
// them over.
//
// This class makes the objects below, connects them, and runs the loop. Each object knows only those that it
// was given, and reports to the others through callbacks:
//
//   JobTable       jobs, and the holders of their ranks   SavedState         the facts for a successor
//   RunningJobs    engines                                JobMemory          pages of their users' memory
//   Retries        claims and jobs that ask again         Refusals           log lines on refusals
//   Claims         ranks that come                        Connections        command lines, silent clients
//   Acceptor       the listeners                          Takeover           a predecessor's jobs
//   Drain          the end                                Handover           a successor
//   Peers          supervisors of other nodes             SpanningJobs       jobs of several nodes
//   PeerQuestions  questions between nodes                RendezvousService  ranks that wait for all others
//   NodeTexts      this node's reports on a job, as text  GatheredTexts      the reports of all its nodes
//   JobCommands, StatusReport, CommandService             answers to command lines
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/base/options.hpp"
#include "daemon/supervisor/jobs/job_memory.hpp"
#include "daemon/supervisor/jobs/job_table.hpp"
#include "daemon/supervisor/jobs/retries.hpp"
#include "daemon/supervisor/jobs/running_jobs.hpp"
#include "daemon/supervisor/listener/acceptor.hpp"
#include "daemon/supervisor/listener/connections.hpp"
#include "daemon/supervisor/listener/refusals.hpp"
#include "daemon/supervisor/peers/peers.hpp"
#include "daemon/supervisor/program/command_service.hpp"
#include "daemon/supervisor/program/drain.hpp"
#include "daemon/supervisor/program/job_commands.hpp"
#include "daemon/supervisor/program/status_report.hpp"
#include "daemon/supervisor/questions/gathered_texts.hpp"
#include "daemon/supervisor/questions/node_texts.hpp"
#include "daemon/supervisor/questions/peer_questions.hpp"
#include "daemon/supervisor/ranks/claims.hpp"
#include "daemon/supervisor/spanning/rendezvous_service.hpp"
#include "daemon/supervisor/spanning/spanning_jobs.hpp"
#include "daemon/supervisor/takeover/handover.hpp"
#include "daemon/supervisor/takeover/replacement.hpp"
#include "daemon/supervisor/takeover/restored_descriptors.hpp"
#include "daemon/supervisor/takeover/saved_state.hpp"
#include "daemon/supervisor/takeover/takeover.hpp"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace muster::supervisor {

// The options of the listeners for a supervisor with these options.
Listeners::Options listeners_of(const Options& options);

// Owns    the loop and the objects above.
// Thread  run()'s, alone.
// Bound   those of its objects.
// Fails   open: as Listeners::open, SavedState::create and SignalQueue::open; as Peers::open, or if a
//         configured job does not start, while no other job runs. If a predecessor's state cannot be read,
//         its engines are ended, and this supervisor begins anew.
class Supervisor {
 public:
  // `inherited`: what a predecessor left.
  static Result<std::unique_ptr<Supervisor>> open(Options options, const Clock& clock,
                                                  std::vector<DescriptorStore::Inherited> inherited = {});
  // Runs until shutdown: SIGTERM drains, then it returns.
  void run();
  // In place of run(), on its thread: does one thing that is due, without waiting. False if none was.
  bool turn() { return loop_.turn(); }
  // Calls `callback` on run()'s thread, between two events. Any thread.
  void post(std::function<void()> callback) { loop_.post(std::move(callback)); }

 private:
  Supervisor(Options options, const Clock& clock, Listeners listeners, SavedState saved, SignalQueue signals);
  Peers::Events events_of_peers();
  PeerQuestions::Ways ways_of_questions();
  RunningJobs::Events events_of_jobs();
  RendezvousService::Events events_of_rendezvous();
  void on_heard(const std::string& peer, const control::Json& message);
  Connections::Events events_of_connections();
  Drain::Events events_of_drain();
  Status start_configured_jobs();
  void on_signal(int number);
  void reload();
  void on_gone(const std::string& job, const Status& why, bool reaped);
  Status for_ranks(const std::string& job, const Status& why) const;
  void on_changed();
  void drain();
  void save();
  void tell(const std::string& text) const;
  void publish_status() const;

  Options options_;
  const Clock& clock_;
  control::Loop loop_;
  SignalQueue signals_;
  Identities identities_;
  DescriptorStore store_;
  SavedState saved_;
  JobTable table_;
  control::NodeCostBook costs_;
  JobMemory memory_;
  Refusals refusals_;
  Peers peers_;
  RunningJobs jobs_;
  SpanningJobs spanning_;
  NodeTexts texts_;
  PeerQuestions questions_;
  GatheredTexts gathered_;
  Evictions evictions_;
  Retries retries_;
  RendezvousService rendezvous_service_;
  Claims claims_;
  Connections connections_;
  Acceptor acceptor_;
  Takeover takeover_;
  Drain drain_;
  Handover handover_;
  JobCommands job_commands_;
  StatusReport report_;
  CommandService commands_;
};

}  // namespace muster::supervisor
