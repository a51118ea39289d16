#include "daemon/supervisor/takeover/takeover.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/base/kept_names.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr Nanos kAskAgain = std::chrono::milliseconds(20);

Result<std::vector<JobTable::RankReport>> attachments_of(const Packet& answer) {
  MUSTER_ASSIGN_OR_RETURN(const Json result, control::result_of(answer));
  std::vector<JobTable::RankReport> reports;
  for (const Json& rank : result.at("ranks"))
    reports.push_back({rank.at("attached").get<bool>(), rank.at("pid").get<std::int32_t>(),
                       rank.at("attachments").get<std::uint32_t>(),
                       origin_of(rank.at("pid").get<std::int32_t>())});
  return reports;
}

}  // namespace

Takeover::Takeover(control::Loop& loop, const Clock& clock, Receivers receivers,
                   std::function<std::uint64_t()> random_word, std::function<void()> save)
    : loop_(loop),
      clock_(clock),
      receivers_(receivers),
      random_word_(std::move(random_word)),
      save_(std::move(save)),
      orphaned_engines_(loop) {}

void Takeover::begin(RestoredDescriptors restored) {
  receivers_.acceptor.keep(restored.names);
  const auto predecessor = receivers_.saved.adopt(std::move(restored.state));
  const State& state = receivers_.saved.state();
  if (state.managers_socket_stood) receivers_.acceptor.believe_managers_stood();
  began_ = state.upgrade_ns != 0 ? Instant(state.upgrade_ns) : clock_.now();
  receivers_.saved.begin_instance();
  for (const SavedJob& job : predecessor.jobs) adopt_job(job, restored);
  receivers_.memory.refresh();
  adopt_owners(predecessor.jobs, restored);
  end_orphans(restored, predecessor);
  const bool kept = predecessor.understood && restored.names.erase(kStateName) != 0;
  for (const std::string& name : restored.names) receivers_.store.discard(name);
  if (kept) {
    receivers_.store.know(kStateName, receivers_.saved.file());
  } else {
    receivers_.store.keep(kStateName, receivers_.saved.file());
  }
  save_();
  for (const SavedJob& job : predecessor.jobs) conclude_job(job);
  open_ = !receivers_.table.jobs().empty();
}

void Takeover::adopt_job(const SavedJob& job, RestoredDescriptors& restored) {
  const std::uint64_t epoch = job.spec.epoch;
  const auto engine = restored.engines.find(epoch);
  const bool kept =
      engine != restored.engines.end() && engine->second.channel.valid() && engine->second.pidfd.valid();
  if (!kept) {
    MUSTER_LOG(kError, "supervisor", "job {} is lost: its engine's descriptors were not kept", job.spec.name);
    return;
  }
  receivers_.jobs.adopt(job, std::move(engine->second));
  restored.engines.erase(engine);
  for (const std::string& name : {channel_name(epoch), pidfd_name(epoch), counters_name(epoch),
                                  pid_namespace_name(epoch), user_namespace_name(epoch)})
    restored.names.erase(name);
  adopt_memory(job.spec, restored);
}

// The first job of an account brings its page.
void Takeover::adopt_memory(const control::JobSpec& spec, RestoredDescriptors& restored) {
  const control::Account& account = spec.owner.account;
  const auto page = restored.memories.find(account);
  if (page != restored.memories.end() && receivers_.memory.adopt(account, std::move(page->second)))
    restored.names.erase(memory_name(account));
  if (!receivers_.memory.adopt_job(account, spec.epoch))
    MUSTER_LOG(kWarning, "supervisor",
               "job {}: what it holds of memory is not counted: its page was not kept", spec.name);
}

void Takeover::adopt_owners(const std::vector<SavedJob>& jobs, RestoredDescriptors& restored) {
  for (const SavedJob& job : jobs) {
    const auto socket = restored.owners.find(job.owner);
    if (job.owner == 0 || socket == restored.owners.end()) continue;
    const auto owned = std::count_if(jobs.begin(), jobs.end(), [&](const SavedJob& other) {
      return receivers_.jobs.facts(other.spec.id()).owner == job.owner;
    });
    if (auto peer = shm::peer_identity(socket->second)) {
      PendingClient client{*std::move(peer), {}, Door::kRanks};
      client.who = receivers_.identities.of(client.process);
      receivers_.connections.adopt(job.owner, std::move(socket->second), std::move(client),
                                   static_cast<std::size_t>(owned));
    } else {
      receivers_.store.discard(owner_name(job.owner));  // it has left
    }
    restored.names.erase(owner_name(job.owner));
    restored.owners.erase(socket);
  }
}

void Takeover::end_orphans(RestoredDescriptors& restored, const SavedState::Predecessor& predecessor) {
  for (auto& [epoch, engine] : restored.engines) {
    if (!engine.pidfd.valid()) continue;  // its channel is closed, and it ends with its last client
    if (engine.channel.valid() && predecessor.speaks_alike) {
      orphaned_engines_.end(std::move(engine.channel), std::move(engine.pidfd),
                            static_cast<std::uint32_t>(random_word_()), predecessor.why_lost);
    } else {
      orphaned_engines_.kill(std::move(engine.channel), std::move(engine.pidfd));
    }
  }
}

void Takeover::conclude_job(const SavedJob& job) {
  const std::string name = job.spec.id();
  if (receivers_.table.find(name) == nullptr) return;  // the job is lost
  ask_report(name, job.spec.epoch);
  if (!job.ending.empty()) receivers_.jobs.end(name, job.ending);
  if (job.held) receivers_.jobs.end(name, "the daemon was started anew while the job was being made");
  if (job.owner != 0 && !receivers_.connections.contains(job.owner))
    receivers_.jobs.end(name, RunningJobs::kOwnerLeft);
}

void Takeover::ask_report(const std::string& job, std::uint64_t epoch) {
  if (receivers_.table.find(job, epoch) == nullptr) return;
  receivers_.jobs.ask(job, Json{{"command", "report"}, {"takes_over", true}}, {},
                      [this, job, epoch](const Result<Packet>& answer) { on_report(job, epoch, answer); });
}

// The engine's messages to the predecessor came before this answer, so it reports the present.
void Takeover::on_report(const std::string& job, std::uint64_t epoch, const Result<Packet>& answer) {
  const Job* entry = receivers_.table.find(job, epoch);
  if (entry == nullptr) return;
  if (!answer && answer.error().code() == Code::kDaemonLost) return;  // the job's end follows
  if (!answer) {  // the channel is full: the engine is stopped, or busy
    loop_.after(kAskAgain, [this, job, epoch] { ask_report(job, epoch); });
    return;
  }
  const auto attachments = attachments_of(*answer);
  if (!attachments && attachments.error().code() == Code::kState && entry->state == Job::State::kAdopting) {
    receivers_.jobs.begin_anew(job);
    return conclude();
  }
  const Status status = attachments ? receivers_.table.reconcile(job, *attachments) : attachments.error();
  if (!status.ok()) {
    receivers_.jobs.end(
        job, fmt::format("the daemon was restarted and could not take the job over: {}", status.message()));
    return conclude();
  }
  conclude();
  receivers_.jobs.taken_over(job);
}

void Takeover::conclude() {
  if (receivers_.table.adopting() != 0 || !std::exchange(open_, false)) return;
  time_ = clock_.now() - began_;
  MUSTER_LOG(kInfo, "supervisor", "took over {} jobs with {} sessions in {:.1f} ms",
             receivers_.table.jobs().size(), receivers_.table.sessions(),
             std::chrono::duration<double, std::milli>(time_).count());
}

}  // namespace muster::supervisor
