#include "daemon/supervisor/takeover/adoption.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/base/kept_names.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr Nanos kAskAgain = std::chrono::milliseconds(20);

Result<std::vector<RankReport>> attachments_of(const Packet& answer) {
  MUSTER_ASSIGN_OR_RETURN(const Json result, control::result_of(answer));
  std::vector<RankReport> reports;
  for (const Json& rank : result.at("ranks"))
    reports.push_back({rank.at("attached").get<bool>(), rank.at("pid").get<std::int32_t>(),
                       rank.at("attachments").get<std::uint32_t>(),
                       origin_of(rank.at("pid").get<std::int32_t>())});
  return reports;
}

}  // namespace

Adoption::Adoption(control::Loop& loop, const Clock& clock, Heirs heirs,
                   std::function<std::uint64_t()> random_word, std::function<void()> save)
    : loop_(loop),
      clock_(clock),
      heirs_(heirs),
      random_word_(std::move(random_word)),
      save_(std::move(save)),
      strangers_(loop) {}

void Adoption::begin(Inheritance inheritance) {
  heirs_.acceptor.keep(inheritance.names);
  const auto predecessor = heirs_.saved.adopt(std::move(inheritance.state));
  const State& state = heirs_.saved.state();
  if (state.managers_socket_stood) heirs_.acceptor.believe_managers_stood();
  began_ = state.upgrade_ns != 0 ? Instant(state.upgrade_ns) : clock_.now();
  heirs_.saved.begin_instance();
  for (const SavedJob& job : predecessor.jobs) adopt_job(job, inheritance);
  heirs_.memory.refresh();
  adopt_owners(predecessor.jobs, inheritance);
  end_strangers(inheritance, predecessor);
  const bool kept = predecessor.understood && inheritance.names.erase(kStateName) != 0;
  for (const std::string& name : inheritance.names) heirs_.store.discard(name);
  if (kept) {
    heirs_.store.know(kStateName, heirs_.saved.file());
  } else {
    heirs_.store.keep(kStateName, heirs_.saved.file());
  }
  save_();
  for (const SavedJob& job : predecessor.jobs) settle_job(job);
  open_ = !heirs_.jobs.empty();
}

void Adoption::adopt_job(const SavedJob& job, Inheritance& inheritance) {
  const std::uint64_t epoch = job.spec.epoch;
  const auto engine = inheritance.engines.find(epoch);
  const bool kept =
      engine != inheritance.engines.end() && engine->second.channel.valid() && engine->second.pidfd.valid();
  if (!kept) {
    MUSTER_LOG(kError, "supervisor", "job {} is lost: its engine's descriptors were not kept", job.spec.name);
    return;
  }
  heirs_.jobs.adopt(job, std::move(engine->second));
  inheritance.engines.erase(engine);
  for (const std::string& name : {channel_name(epoch), pidfd_name(epoch), counters_name(epoch),
                                  pid_namespace_name(epoch), user_namespace_name(epoch)})
    inheritance.names.erase(name);
  adopt_memory(job.spec, inheritance);
}

// The first job of an account brings its page.
void Adoption::adopt_memory(const control::JobSpec& spec, Inheritance& inheritance) {
  const control::Account& account = spec.owner.account;
  const auto page = inheritance.memories.find(account);
  if (page != inheritance.memories.end() && heirs_.memory.adopt(account, std::move(page->second)))
    inheritance.names.erase(memory_name(account));
  if (!heirs_.memory.adopt_job(account, spec.epoch))
    MUSTER_LOG(kWarning, "supervisor",
               "job {}: what it holds of memory is not counted: its page was not kept", spec.name);
}

void Adoption::adopt_owners(const std::vector<SavedJob>& jobs, Inheritance& inheritance) {
  for (const SavedJob& job : jobs) {
    const auto socket = inheritance.owners.find(job.owner);
    if (job.owner == 0 || socket == inheritance.owners.end()) continue;
    const auto owned = std::count_if(jobs.begin(), jobs.end(), [&](const SavedJob& other) {
      return heirs_.jobs.facts(other.spec.id()).owner == job.owner;
    });
    if (auto peer = shm::peer_identity(socket->second)) {
      PendingClient client{*std::move(peer), {}, Door::kRanks};
      client.who = heirs_.identities.of(client.process);
      heirs_.connections.adopt(job.owner, std::move(socket->second), std::move(client),
                               static_cast<std::size_t>(owned));
    } else {
      heirs_.store.discard(owner_name(job.owner));  // it has left
    }
    inheritance.names.erase(owner_name(job.owner));
    inheritance.owners.erase(socket);
  }
}

void Adoption::end_strangers(Inheritance& inheritance, const SavedState::Predecessor& predecessor) {
  for (auto& [epoch, engine] : inheritance.engines) {
    if (!engine.pidfd.valid()) continue;  // its channel is closed, and it ends with its last client
    if (engine.channel.valid() && predecessor.speaks_alike) {
      strangers_.end(std::move(engine.channel), std::move(engine.pidfd),
                     static_cast<std::uint32_t>(random_word_()), predecessor.why_lost);
    } else {
      strangers_.kill(std::move(engine.channel), std::move(engine.pidfd));
    }
  }
}

void Adoption::settle_job(const SavedJob& job) {
  const std::string name = job.spec.id();
  if (heirs_.table.find(name) == nullptr) return;  // the job is lost
  ask_report(name, job.spec.epoch);
  if (!job.ending.empty()) heirs_.jobs.end(name, job.ending);
  if (job.held) heirs_.jobs.end(name, "the daemon was started anew while the job was being made");
  if (job.owner != 0 && !heirs_.connections.contains(job.owner))
    heirs_.jobs.end(name, RunningJobs::kOwnerLeft);
}

void Adoption::ask_report(const std::string& job, std::uint64_t epoch) {
  if (heirs_.table.find(job, epoch) == nullptr) return;
  heirs_.jobs.ask(job, Json{{"command", "report"}, {"takes_over", true}}, {},
                  [this, job, epoch](const Result<Packet>& answer) { on_report(job, epoch, answer); });
}

// The engine's messages to the predecessor came before this answer, so it reports the present.
void Adoption::on_report(const std::string& job, std::uint64_t epoch, const Result<Packet>& answer) {
  const Job* entry = heirs_.table.find(job, epoch);
  if (entry == nullptr) return;
  if (!answer && answer.error().code() == Code::kDaemonLost) return;  // the job's end follows
  if (!answer) {  // the channel is full: the engine is stopped, or busy
    loop_.after(kAskAgain, [this, job, epoch] { ask_report(job, epoch); });
    return;
  }
  const auto attachments = attachments_of(*answer);
  if (!attachments && attachments.error().code() == Code::kState && entry->state == JobState::kAdopting) {
    heirs_.jobs.begin_anew(job);
    return conclude();
  }
  const Status status = attachments ? heirs_.table.reconcile(job, *attachments) : attachments.error();
  if (!status.ok()) {
    heirs_.jobs.end(
        job, fmt::format("the daemon was restarted and could not take the job over: {}", status.message()));
    return conclude();
  }
  conclude();
  heirs_.jobs.taken_over(job);
}

void Adoption::conclude() {
  if (heirs_.table.adopting() != 0 || !std::exchange(open_, false)) return;
  time_ = clock_.now() - began_;
  MUSTER_LOG(kInfo, "supervisor", "took over {} jobs with {} sessions in {:.1f} ms",
             heirs_.table.jobs().size(), heirs_.table.sessions(),
             std::chrono::duration<double, std::milli>(time_).count());
}

}  // namespace muster::supervisor
