#include "daemon/supervisor/program/supervisor.hpp"

#include "api/base/log.hpp"
#include "api/shm/endpoint.hpp"
#include "api/shm/headroom.hpp"

#include <csignal>
#include <utility>

#include <unistd.h>

namespace muster::supervisor {
namespace {

constexpr Nanos kStopMargin = std::chrono::seconds(10);           // for what the daemon does around a drain
constexpr Nanos kLastAnswerTime = std::chrono::milliseconds(20);  // for the last answer to a command line

Shares::Limits memory_limits(const Options& options) {
  // If the capacity is unknown: more than any machine has.
  const std::uint64_t capacity = shm::memory_capacity();
  const std::uint64_t usual = capacity != 0 ? capacity / 4 * 3 : control::kJobBytesMax;
  return Shares::limits_of(options.memory_max != 0 ? options.memory_max : usual, options.memory_per_user_max);
}

JobTable empty_table(const Options& options) {
  return JobTable(Shares(Shares::limits_of(options.jobs_max, options.jobs_per_user_max), geteuid()));
}

// The signals that are blocked, but neither end the daemon nor make it give way.
const char* name_of(int number) {
  switch (number) {
    case SIGHUP:
      return "SIGHUP";
    case SIGUSR1:
      return "SIGUSR1";
    case SIGALRM:
      return "SIGALRM";
    default:
      return "a signal";
  }
}

}  // namespace

Listeners::Options listeners_of(const Options& options) {
  const std::string& ranks = options.socket_path;
  return {options.runtime_directory,
          ranks.empty() ? shm::ranks_socket(options.runtime_directory) : ranks,
          {static_cast<mode_t>(options.directory_mode), options.directory_gid},
          options.transient};
}

Result<std::unique_ptr<Supervisor>> Supervisor::open(Options options, const Clock& clock,
                                                     std::vector<DescriptorStore::Inherited> inherited) {
  RestoredDescriptors restored(std::move(inherited), options.runtime_directory);
  MUSTER_ASSIGN_OR_RETURN(Listeners listeners,
                          Listeners::open(listeners_of(options), restored.listeners(listeners_of(options))));
  MUSTER_ASSIGN_OR_RETURN(SavedState saved, SavedState::create(options.random_word(), clock.now()));
  MUSTER_ASSIGN_OR_RETURN(SignalQueue signals, SignalQueue::open());
  std::unique_ptr<Supervisor> supervisor(
      new Supervisor(std::move(options), clock, std::move(listeners), std::move(saved), std::move(signals)));
  supervisor->takeover_.begin(std::move(restored));
  supervisor->acceptor_.start();
  if (const Status opened = supervisor->peers_.open(); !opened.ok()) {
    if (supervisor->table_.jobs().empty()) return fail(opened);
    MUSTER_LOG(kError, "supervisor", "no other node can be reached: {}; SIGHUP tries again", opened.text());
  }
  MUSTER_RETURN_IF_ERROR(supervisor->start_configured_jobs());
  supervisor->spanning_.start();
  return supervisor;
}

Supervisor::Supervisor(Options options, const Clock& clock, Listeners listeners, SavedState saved,
                       SignalQueue signals)
    : options_(std::move(options)),
      clock_(clock),
      signals_(std::move(signals)),
      identities_(options_.transient ? Identities::Rule::kUidAlone : Identities::Rule::kWhereHeIs),
      store_(options_.notify, options_.store_room),
      saved_(std::move(saved)),
      table_(empty_table(options_)),
      costs_(options_.costs, options_.transient ? std::string() : options_.own_folder()),
      memory_(loop_, store_, memory_limits(options_), geteuid()),
      refusals_(loop_, clock_),
      peers_(loop_, clock_, options_, events_of_peers()),
      jobs_(loop_, table_, memory_, store_, costs_, options_, events_of_jobs()),
      spanning_({loop_, clock_, table_, jobs_, peers_, options_, retries_,
                 [this](const control::JobSpec& wanted) { return evictions_.place_may_come(wanted); },
                 [this](const std::string& job, const Status& why) { claims_.turn_away(job, why); }},
                [this](const Rendezvous::Job& job) { return rendezvous_service_.owner_here(job); }),
      texts_(jobs_, clock_),
      questions_(loop_, clock_, table_, ways_of_questions()),
      gathered_(clock_, table_, questions_),
      evictions_(table_, jobs_, memory_.shares()),
      retries_(loop_, clock_, table_),
      rendezvous_service_(loop_, clock_, spanning_, peers_, options_, events_of_rendezvous()),
      claims_(loop_, table_, jobs_, evictions_, retries_, refusals_, rendezvous_service_, options_,
              {[this] { on_changed(); }, [this] { save(); },
               [this](const std::string& job) { return spanning_.awaited(job); },
               [this](const std::string& job) { return spanning_.waits_for_place(job); }}),
      connections_(loop_, store_, refusals_, options_.idle_timeout, events_of_connections()),
      acceptor_(loop_, clock_, store_, std::move(listeners),
                [this](shm::Descriptor socket, shm::PeerIdentity peer, Door door) {
                  PendingClient client{std::move(peer), {}, door};
                  client.who = identities_.of(client.process);
                  connections_.take(std::move(socket), std::move(client));
                }),
      takeover_(loop_, clock_, {acceptor_, saved_, table_, jobs_, memory_, connections_, store_, identities_},
                options_.random_word, [this] { save(); }),
      drain_(loop_, table_, jobs_, options_.drain_timeout, events_of_drain()),
      handover_(loop_, clock_, options_, acceptor_.listeners(), jobs_, store_, saved_, [this] { save(); }),
      job_commands_(table_, jobs_, spanning_, evictions_, questions_, gathered_, retries_, connections_,
                    options_, [this] { save(); }),
      report_(loop_, clock_,
              {options_, table_, jobs_, costs_, questions_, claims_, memory_, saved_, acceptor_.listeners(),
               takeover_, peers_, spanning_, rendezvous_service_}),
      commands_(job_commands_, report_, handover_, drain_, options_.runtime_directory) {}

Peers::Events Supervisor::events_of_peers() {
  return {.jobs = [this] { return spanning_.parts(); },
          .up =
              [this](const std::string& peer, const control::Json& jobs) {
                spanning_.on_up(peer, jobs);
                rendezvous_service_.on_up(peer);
                publish_status();
              },
          .down =
              [this](const std::string& peer, const Status& why) {
                questions_.on_down(peer, why);
                spanning_.on_down(peer, why);
                rendezvous_service_.on_down(peer);
                publish_status();
              },
          .heard = [this](const std::string& peer, const control::Json& message) { on_heard(peer, message); },
          .suspected = [this](const std::string& peer) { spanning_.on_suspected(peer); },
          .lost = [this](const std::string& peer, const Status& why) { spanning_.on_lost(peer, why); }};
}

void Supervisor::on_heard(const std::string& peer, const control::Json& message) {
  if (PeerQuestions::is_one(message)) return questions_.heard(peer, message);
  Rendezvous::is_one(message) ? rendezvous_service_.heard(peer, message) : spanning_.heard(peer, message);
}

RendezvousService::Events Supervisor::events_of_rendezvous() {
  return {.refuse = [this](std::uint64_t ticket, const Status& why) { claims_.refuse_gathered(ticket, why); },
          .all_here = [this](const Rendezvous::Job& job,
                             const std::string& mesh) { claims_.all_gathered(job, mesh); }};
}

PeerQuestions::Ways Supervisor::ways_of_questions() {
  return {.send = [this](const std::string& peer,
                         const control::Json& message) { return peers_.send(peer, message); },
          .why_not = [this](const std::string& peer) { return peers_.why_not(peer); },
          .ask_engine =
              [this](const std::string& job, const control::Json& command, EngineProcess::Answered answered) {
                jobs_.ask(job, command, {}, std::move(answered));
              },
          .text_of = [this](const std::string& job, const std::string& kind,
                            const NodeTexts::Said& said) { texts_.ask(job, kind, said); }};
}

RunningJobs::Events Supervisor::events_of_jobs() {
  return {
      .owned = [this](Connections::Id owner) { connections_.own(owner); },
      .disowned = [this](Connections::Id owner) { connections_.disown(owner); },
      .ready = [this](const std::string& job, const Status& status) { claims_.job_reported(job, status); },
      .heard = [this](const std::string& job,
                      const RunningJobs::EngineEvent& word) { spanning_.on_word(job, word); },
      .ending =
          [this](const std::string& job, const Status& why) {
            spanning_.on_ending(job, why);
            if (!jobs_.facts(job).reaped) claims_.turn_away(job, for_ranks(job, why));
          },
      .gone = [this](const std::string& job, const Status& why, bool reaped) { on_gone(job, why, reaped); },
      .idle = [this](const std::string& job, RunningJobs::Idle idle) { spanning_.on_idle(job, idle); },
      .short_of_memory = [this](const std::string& job,
                                std::uint64_t bytes) { evictions_.make_memory(job, bytes); },
      .stays =
          [this] {
            evictions_.on_change();
            retries_.fill_places();
          },
      .changed = [this] { on_changed(); },
      .save = [this] { save(); },
      .reserved = [this](const std::string& job) { return spanning_.awaited(job); }};
}

Connections::Events Supervisor::events_of_connections() {
  return {.hello =
              [this](shm::Descriptor socket, PendingClient client, std::span<const std::byte> bytes) {
                claims_.hear(std::move(socket), std::move(client), bytes);
              },
          .command = [this](const Connections::Caller& caller,
                            const control::Json& body) { commands_.run(caller, body); },
          .left =
              [this](Connections::Id owner) {
                jobs_.end_all(RunningJobs::kOwnerLeft, RunningJobs::kEngineEndTime, owner);
                spanning_.on_left(owner);
              }};
}

Drain::Events Supervisor::events_of_drain() {
  return {.begun =
              [this] {
                const Nanos time = drain_.times().latest() + RunningJobs::kEngineEndTime + kStopMargin;
                tell(fmt::format("STOPPING=1\nEXTEND_TIMEOUT_USEC={}",
                                 std::chrono::duration_cast<std::chrono::microseconds>(time).count()));
                claims_.disperse(failure(Code::kJobEnded, RunningJobs::kShuttingDown));
                publish_status();
              },
          .ended = [this] { loop_.after(kLastAnswerTime, [this] { loop_.stop(); }); }};
}

// Jobs that wait for a place come before ranks that create an idle job again.
void Supervisor::on_gone(const std::string& job, const Status& why, bool reaped) {
  spanning_.on_gone(job, why);
  if (!reaped) claims_.turn_away(job, for_ranks(job, why));
  takeover_.conclude();
  retries_.fill_places();
  claims_.admit_waiting(job);
  evictions_.on_change();
}

// The status for ranks that have waited for the job. If it is made again, they need not give up.
Status Supervisor::for_ranks(const std::string& job, const Status& why) const {
  const Status awaited = spanning_.awaited(job);
  return awaited.code() == Code::kBusy && !jobs_.closed() ? awaited : why;
}

void Supervisor::on_changed() {
  publish_status();
  drain_.check();
}

Status Supervisor::start_configured_jobs() {
  for (const control::JobSpec& job : options_.jobs) {
    if (table_.find(job.id()) != nullptr || spanning_.has(job.id())) continue;
    const auto tell = [name = job.name](const Status& status) {
      if (!status.ok()) MUSTER_LOG(kError, "supervisor", "job {}: {}", name, status.text());
    };
    const auto start = [this, &job, tell] { return jobs_.start(job, {.gid = getgid()}, tell); };
    if (table_.place_is_coming(job.owner.account)) {
      retries_.wait_for_place(
          {job.owner.account, job.id(), [] { return false; }, [start, tell] { tell(start()); }});
      continue;
    }
    const Status started = start();
    if (started.ok()) continue;
    if (table_.jobs().empty()) return started;
    tell(started);  // no reason to end the jobs that run
  }
  return {};
}

void Supervisor::run() {
  hold_signals();
  loop_.watch(signals_.descriptor(), [this] { on_signal(signals_.take()); });
  const std::function<void()> beat = [this, &beat] {
    tell("WATCHDOG=1");
    loop_.after(options_.watchdog_time / 2, beat);
  };
  if (options_.watchdog_time > Nanos(0)) beat();
  tell("READY=1");
  publish_status();
  MUSTER_LOG(kInfo, "supervisor", "listening at {}", acceptor_.listeners().socket().path());
  loop_.run();
  store_.forget_all();
}

void Supervisor::reload() {
  const Status read = peers_.reload();
  if (!read.ok())
    MUSTER_LOG(kError, "supervisor", "the credentials stay as they were: {}", read.message());
  else
    MUSTER_LOG(kInfo, "supervisor",
               "SIGHUP: the credentials for other nodes are read again; `muster upgrade{}` takes over with "
               "new settings",
               shm::endpoint_option(options_.job_defaults.endpoint));
}

// A closing terminal sends SIGHUP, which must end no jobs. The log says which signals change nothing.
void Supervisor::on_signal(int number) {
  if (number == SIGTERM || number == SIGINT) return drain();
  if (number == SIGHUP && !peers_.alone()) return reload();
  if (number == SIGUSR2)
    return handover_.begin("", [](const Status& refused) {
      MUSTER_LOG(kError, "supervisor", "no upgrade: {}", refused.message());
    });
  if (number != 0)
    MUSTER_LOG(kInfo, "supervisor", "{} changes nothing; `muster upgrade{}` takes over with new settings",
               name_of(number), shm::endpoint_option(options_.job_defaults.endpoint));
}

// First call: ranks may leave. Second call: they must.
void Supervisor::drain() {
  drain_.begin(jobs_.closed() ? Drain::Ranks::kMustLeave : Drain::Ranks::kMayLeave);
}

void Supervisor::save() {
  saved_.save(jobs_.saved(), acceptor_.listeners().managers_stood());
}

// If the manager does not listen, the daemon goes on: the manager's own timeouts decide.
void Supervisor::tell(const std::string& text) const {
  if (options_.notify) options_.notify(text, {});
}

void Supervisor::publish_status() const {
  const Peers::Counts peers = peers_.counts();
  tell(fmt::format("STATUS={} sessions, {} jobs{}{}", table_.sessions(), table_.jobs().size(),
                   peers_.alone() ? "" : fmt::format(", {} of {} peers", peers.up, peers.all),
                   jobs_.closed() ? ", draining" : ""));
}

}  // namespace muster::supervisor
