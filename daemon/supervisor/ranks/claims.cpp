#include "daemon/supervisor/ranks/claims.hpp"

#include "api/base/assert.hpp"
#include "api/base/log.hpp"
#include "api/shm/message.hpp"
#include "daemon/supervisor/jobs/job_key.hpp"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>

#include <poll.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr Nanos kAttachAgain = std::chrono::milliseconds(20);
static_assert(Retries::kPlaceTime > RunningJobs::kEngineEndTime);  // so the place comes within that time

constexpr Shares::Words kSessions{"sessions that are attached or wait for their job", "limits.sessions_max",
                                  "limits.sessions_per_user_max", "let some of the ranks end"};

Status check_sizes(const shm::Hello& hello) {
  const bool same = hello.abi_version == shm::kAbiVersion &&
                    hello.submission_bytes == shm::kSubmissionBytes &&
                    hello.completion_bytes == shm::kCompletionBytes;
  if (same) return {};
  return failure(Code::kVersion,
                 "the library speaks version {} with segments of {} and {} bytes, the daemon version {} with "
                 "{} and {}; install the same release of both",
                 hello.abi_version, hello.submission_bytes, hello.completion_bytes, shm::kAbiVersion,
                 shm::kSubmissionBytes, shm::kCompletionBytes);
}

}  // namespace

Claims::Claims(control::Loop& loop, JobTable& table, RunningJobs& jobs, Evictions& evictions,
               Retries& retries, Refusals& refusals, RendezvousService& rendezvous_service,
               const Options& options, Events events)
    : loop_(loop),
      table_(table),
      jobs_(jobs),
      evictions_(evictions),
      retries_(retries),
      refusals_(refusals),
      rendezvous_service_(rendezvous_service),
      options_(options),
      events_(std::move(events)) {}

// ---- a client -------------------------------------------------------------------------------------

// A governor may attach to any job, also at the ranks' door.
control::Actor Claims::Client::actor() const {
  return {peer.who, control::is_governor(peer.who, geteuid()), key};
}

bool Claims::Client::has_left() const {
  pollfd entry{socket.get(), 0, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0;
}

// A launcher that says that all ranks are here need not wait for them.
bool Claims::Client::must_gather(const Options& options) const {
  return !options.roster.alone() && options.auto_create_jobs && !gathered && hello.world_size > 1 &&
         hello.local_size != hello.world_size;
}

// torchrun, srun and mpirun start ranks of a job that nobody has created: the first rank creates it.
Result<control::JobSpec> Claims::Client::spec(std::string_view mesh, const Options& options) const {
  const std::string name(hello.job);
  const bool anothers = name.find('@') != std::string::npos;
  if (!options.auto_create_jobs || hello.world_size < 1 || anothers)
    return fail(Code::kNotFound,
                "no job is named {}; create it in the cluster file or start it with `muster run`", name);
  const auto world = static_cast<std::uint32_t>(hello.world_size);
  if (world > kRanksOnNodeMax)
    return fail(
        Code::kBadArgument,
        "job {} is of {} ranks, and {} are possible (limits.ranks_per_job_max goes no higher); start fewer",
        name, world, kRanksOnNodeMax);
  control::JobSpec made = options.job_defaults;
  made.name = name;
  made.world = world;
  // In the form of `muster run`, which joins a job only if its mesh is the same.
  MUSTER_ASSIGN_OR_RETURN(made.mesh, canonical_mesh(mesh, world));
  made.scope = control::scope_of(actor(), made.owner.uid);
  made.owner = peer.who;
  made.claim = control::ClaimRule::kOwner;
  return made;
}

// As the rendezvous knows it.
Result<Rendezvous::Rank> Claims::Client::rendezvous_rank(std::string_view mesh) const {
  Rendezvous::Rank waits;
  waits.job = gathers();
  waits.who = peer.who;
  MUSTER_RETURN_IF_ERROR(control::check_job_name(waits.job.name));
  if (!peer.who.is_home() && key.empty())
    return fail(
        Code::kDenied,
        "other nodes do not know {}; give all {} ranks one job key (MUSTER_JOB_KEY), or say that all of "
        "them are on this node (local world size)",
        control::text_of(peer.who), hello.world_size);
  if (hello.rank < 0 || hello.rank >= hello.world_size)
    return fail(Code::kBadArgument, "rank {} is not in 0..{} of job {}", hello.rank, hello.world_size - 1,
                waits.job.name);
  waits.gid = peer.process.gid;
  waits.pid = peer.process.pid;
  waits.rank = static_cast<std::uint32_t>(hello.rank);
  waits.world = static_cast<std::uint32_t>(hello.world_size);
  if (!mesh.empty()) {
    MUSTER_ASSIGN_OR_RETURN(waits.mesh, canonical_mesh(mesh, waits.world));
  }
  return waits;
}

Rendezvous::Job Claims::Client::gathers() const {
  return {control::scope_of(actor(), control::kNoUid), std::string(hello.job)};
}

// To be called once the rank is welcome: the look takes longer than all else.
RankOrigin Claims::Client::origin() const {
  RankOrigin found =
      origin_of_rank(peer.process.pid, peer.who, shm::checked_text(hello.slurm, "slurm").value_or(""),
                     shm::checked_text(hello.host, "host").value_or(""));
  if (shm::has_ended(peer.process.pidfd)) found.seen = {};  // its number may be another's by now
  return found;
}

// ---- claims ------------------------------------------------------------------------------------

void Claims::hear(shm::Descriptor socket, PendingClient peer, std::span<const std::byte> hello) {
  auto checked = shm::checked<shm::Hello>(hello, shm::MessageKind::kHello);
  Client client{std::move(socket), std::move(peer), {}, {}, {}};
  if (!checked) return refuse(client, checked.error());
  client.hello = *checked;
  if (const Status sizes = check_sizes(client.hello); !sizes.ok()) return refuse(client, sizes);
  const auto key = shm::checked_text(client.hello.key, "job_key");
  const auto digest = key ? digest_of_key(*key) : Result<std::string>(fail(key.error()));
  if (!digest) return refuse(client, digest.error());
  client.key = *digest;
  std::fill(std::begin(client.hello.key), std::end(client.hello.key), '\0');
  admit(std::move(client));
}

void Claims::admit(Client client) {
  if (client.has_left()) return;  // it gave up waiting, and may have come again
  const auto name = shm::checked_text(client.hello.job, "job");
  const auto token = shm::checked_text(client.hello.token, "token");
  const auto mesh = shm::checked_text(client.hello.mesh, "mesh");
  for (const auto* text : {&name, &token, &mesh})
    if (!*text) return refuse(client, text->error());
  if (jobs_.closed()) return refuse(client, failure(Code::kJobEnded, RunningJobs::kShuttingDown));
  const control::Actor actor = client.actor();
  const std::string job = client.job = table_.own_id(std::string(*name), actor);
  if (const Status room = check_room(client, job); !room.ok()) return refuse(client, room);
  if (table_.find(job) == nullptr) {
    if (events_.waits_for_place(job)) return waiting_[job].clients.push_back(std::move(client));
    if (client.key.empty())
      if (const Status known = control::check_known(client.peer.who); !known.ok())
        return refuse(client, known);
    for (const Status& possible : {events_.awaited(job), check_possible(client, *mesh)})
      if (!possible.ok()) return refuse(client, possible);
    if (wait_for_place(client, job)) return;
    if (client.must_gather(options_)) return gather(std::move(client), *mesh);
    const Status made = make_job(client, *mesh);
    // The last ranks of a job that could make room may just be leaving.
    const bool full = !table_.places().has_room(client.peer.who.account);
    if (!made.ok() && full && claim_later(client)) return;
    if (!made.ok()) return refuse(client, made);
  }
  if (table_.find(job)->state == Job::State::kAdopting || jobs_.facts(job).reaped) {
    waiting_[job].clients.push_back(std::move(client));
    return;
  }
  const JobTable::Claimant claimant{actor,
                                    client.peer.process.pid,
                                    client.hello.rank,
                                    client.hello.world_size,
                                    std::string(*token),
                                    std::string(*mesh)};
  const Status claimed = table_.claim(job, claimant);
  if (claimed.code() == Code::kDuplicate && claim_later(client)) return;
  if (means_another(client, job, claimed)) {
    const std::string wanted = fmt::format("one of its name with {} ranks", client.hello.world_size);
    if (evictions_.replace(job, actor, wanted)) return waiting_[job].clients.push_back(std::move(client));
    if (claim_later(client)) return;  // its last ranks may just be leaving
  }
  if (!claimed.ok()) return refuse(client, claimed);
  client.claimed = true;
  jobs_.watch_idle(job);
  if (table_.find(job)->state != Job::State::kStarting) return hand_over(std::move(client));
  waiting_[job].clients.push_back(std::move(client));
}

// A rank that waits until its claim is free needs no session of its own yet.
Status Claims::check_room(const Client& client, const std::string& job) {
  const Account& account = client.peer.who.account;
  const Job* entry = table_.find(job);
  const bool held = entry != nullptr && entry->is_held(client.hello.rank);
  if (held || sessions_by_user().has_room(account)) return {};
  forget_leavers();
  const Shares sessions = sessions_by_user();
  return sessions.has_room(account) ? Status() : sessions.refusal(account, kSessions);
}

// The client was started with another size or mesh than the job of that name that ranks of its own have made.
bool Claims::means_another(const Client& client, const std::string& job, const Status& claimed) const {
  const Job* entry = table_.find(job);
  const std::int32_t world = client.hello.world_size;
  const bool resized = world >= 1 && static_cast<std::uint32_t>(world) != entry->spec.world.size();
  const bool other = claimed.code() == Code::kConfig || (claimed.code() == Code::kBadArgument && resized);
  if (!other || !jobs_.facts(job).made) return false;
  return is_own(*entry, client.actor()) && check_possible(client, client.hello.mesh).ok();
}

// True: takes the client. A job that is ending still has the place of the client's job.
bool Claims::wait_for_place(Client& client, const std::string& job) {
  const Account account = client.peer.who.account;
  const bool full = !table_.places().has_room(account) && !table_.place_is_coming(account);
  if (full && evictions_.make_room(client.actor(), fmt::format("job {}", job))) client.applied = false;
  if (client.applied || !retries_.may_wait_for_place(account)) return false;
  client.applied = true;
  const auto kept = std::make_shared<Client>(std::move(client));
  retries_.wait_for_place(
      {account, job, [kept] { return kept->has_left(); }, [this, kept] { admit(std::move(*kept)); }});
  return true;
}

// Whether the client's job can be made once there is room for it: no other job ends for one that cannot.
Status Claims::check_possible(const Client& client, std::string_view mesh) const {
  if (client.must_gather(options_)) {
    const auto rank = client.rendezvous_rank(mesh);
    return rank ? Status() : rank.error();
  }
  MUSTER_ASSIGN_OR_RETURN(const control::JobSpec spec, client.spec(mesh, options_));
  MUSTER_RETURN_IF_ERROR(control::check_job_name(spec.name));
  return check_size(spec, options_);
}

Status Claims::make_job(const Client& client, std::string_view mesh) {
  MUSTER_ASSIGN_OR_RETURN(control::JobSpec spec, client.spec(mesh, options_));
  return jobs_.start(std::move(spec), {.gid = client.peer.process.gid, .made = true},
                     [job = client.job](const Status& status) {
                       if (!status.ok()) MUSTER_LOG(kWarning, "supervisor", "job {}: {}", job, status.text());
                     });
}

// ---- at the rendezvous -------------------------------------------------------------------------

void Claims::gather(Client client, std::string_view mesh) {
  forget_leavers();  // a former process of the rank may have waited
  const std::string job = client.job;
  auto rank = client.rendezvous_rank(mesh);
  if (!rank) return refuse(client, rank.error());
  const auto ticket =
      rendezvous_service_.come(*std::move(rank), Nanos(std::max<std::int64_t>(client.hello.timeout_ns, 0)));
  if (!ticket) return refuse(client, ticket.error());
  client.ticket = *ticket;
  client.watch = loop_.watch(client.socket.get(), [this, ticket = *ticket] {
    // A waiting rank has nothing to send: it has ended, or breaks the protocol.
    refuse_gathered(ticket, failure(Code::kProtocol, "a rank spoke before it was welcome"));
  });
  waiting_[job].clients.push_back(std::move(client));
}

void Claims::refuse_gathered(std::uint64_t ticket, const Status& why) {
  for (const Client& client :
       take_gathered([ticket](const Client& waiting) { return waiting.ticket == ticket; }))
    if (!client.has_left()) refuse(client, why);
}

void Claims::all_gathered(const Rendezvous::Job& job, const std::string& mesh) {
  for (Client& client : take_gathered([&job](const Client& waiting) { return waiting.gathers() == job; })) {
    client.gathered = true;
    // The first of them makes the job, and any of them may have named the mesh.
    const bool said = client.hello.mesh[0] != '\0';
    const Status set = said ? Status() : shm::set_text(client.hello.mesh, mesh, "the mesh");
    set.ok() ? admit(std::move(client)) : refuse(client, set);
  }
}

void Claims::disperse(const Status& why) {
  for (const Client& client : take_gathered([](const Client&) { return true; })) refuse(client, why);
}

// Takes clients away from the rendezvous, where they wait no longer.
std::vector<Claims::Client> Claims::take_gathered(const std::function<bool(const Client&)>& which) {
  std::vector<Client> taken;
  for (auto& [job, waiting] : waiting_) {
    std::vector<Client> left;
    for (Client& client : std::exchange(waiting.clients, {})) {
      const bool goes = client.ticket != 0 && which(client);
      if (goes) depart(client);
      (goes ? taken : left).push_back(std::move(client));
    }
    waiting.clients = std::move(left);
  }
  return taken;
}

// The client waits at the rendezvous no longer.
void Claims::depart(Client& client) {
  if (client.ticket == 0) return;
  loop_.unwatch(std::exchange(client.watch, 0));
  rendezvous_service_.leave(std::exchange(client.ticket, 0));
}

// True: takes the client. A rank may come back before its engine has reported the former process's death.
bool Claims::claim_later(Client& client) {
  const Account account = client.peer.who.account;
  forget_leavers();
  if (!retries_.may_try_again(++client.attempts, account)) return false;
  const auto kept = std::make_shared<Client>(std::move(client));
  retries_.try_again(kept->attempts, account, [this, kept] { admit(std::move(*kept)); });
  return true;
}

void Claims::hand_over(Client client) {
  const std::string job = client.job;
  const Rank rank = client.rank();
  MUSTER_ASSERT(client.claimed);
  if (client.has_left()) {
    table_.withdraw(job, rank);
    jobs_.watch_idle(job);
    return events_.changed();
  }
  const Json command{{"command", "attach"},
                     {"rank", rank.value},
                     {"pid", client.peer.process.pid},
                     {"serial", client.hello.header.serial},
                     {"timeout_ns", std::max<std::int64_t>(client.hello.timeout_ns, 0)}};
  const int descriptors[] = {client.socket.get(), client.peer.process.pidfd.get()};
  // The socket stays open here until the engine has answered, so that a refusal can be sent.
  const auto kept = std::make_shared<Client>(std::move(client));
  jobs_.ask(job, command, descriptors,
            [this, job, kept](const Result<Packet>& answer) { on_attached(job, std::move(*kept), answer); });
}

void Claims::hand_over_again(const std::string& job) {
  waiting_[job].attach_again = 0;
  for (Client& client : take_waiting(job)) hand_over(std::move(client));
  jobs_.watch_idle(job);  // the last waiting client may have left
}

void Claims::on_attached(const std::string& job, Client client, const Result<Packet>& answer) {
  if (!answer && answer.error().code() == Code::kBusy) {  // the engine is stopped, or many ranks came at once
    Waiting& waiting = waiting_[job];
    waiting.clients.push_back(std::move(client));
    if (waiting.attach_again == 0)
      waiting.attach_again = loop_.after(kAttachAgain, [this, job] { hand_over_again(job); });
    return;
  }
  const Rank rank = client.rank();
  Status status = answer ? Status() : jobs_.unless_ending(job, answer.error());
  if (answer) {
    const auto result = control::result_of(*answer);
    if (!result) status = result.error();
    // A refusal has the count too, if the rank left while it was attached. A token issued meanwhile counts
    // from this attachment, for a successor as well.
    const auto attachments = answer->body.find("attachments");
    const bool counts =
        attachments != answer->body.end() && table_.attached(job, rank, attachments->get<std::uint32_t>());
    const bool is_news = status.ok() && table_.came_from(job, rank, client.origin());
    if (counts || is_news) events_.save();
  }
  if (!status.ok()) {
    table_.release(job, rank);
    jobs_.watch_idle(job);
    refuse(client, status);
  }
  events_.changed();
}

void Claims::refuse(const Client& client, const Status& why) {
  refusals_.tell_rank(client.peer, why);
  send_refusal(client.socket, client.hello.header.serial, why);
}

void Claims::job_reported(const std::string& job, const Status& status) {
  for (Client& client : take_waiting(job)) {
    if (!status.ok()) {
      refuse(client, status);
    } else if (client.claimed) {
      hand_over(std::move(client));
    } else {
      admit(std::move(client));
    }
  }
}

void Claims::turn_away(const std::string& job, const Status& why) {
  for (Client& client : take_waiting(job)) {
    if (client.claimed) table_.withdraw(job, client.rank());
    refuse(client, why);
  }
}

void Claims::admit_waiting(const std::string& job) {
  for (Client& client : take_waiting(job)) {
    if (client.claimed) {  // claimed in a later job of that name: waits for its engine
      waiting_[job].clients.push_back(std::move(client));
    } else {
      admit(std::move(client));
    }
  }
}

// Takes the clients out first, since they may wait again: for this job or a later one of that name.
std::vector<Claims::Client> Claims::take_waiting(const std::string& job) {
  auto node = waiting_.extract(job);
  if (node.empty()) return {};
  loop_.unwatch(node.mapped().attach_again);
  for (Client& client : node.mapped().clients) depart(client);
  return std::move(node.mapped().clients);
}

// Clients that gave up waiting free their ranks for those that still wait.
void Claims::forget_leavers() {
  for (auto& [job, waiting] : waiting_)
    std::erase_if(waiting.clients, [this, name = job](Client& client) {
      const bool left = client.has_left();
      if (left) depart(client);
      if (left && client.claimed) table_.withdraw(name, client.rank());
      return left;
    });
}

Shares Claims::sessions_by_user() const {
  Shares sessions = session_shares(options_);
  count_sessions(table_, sessions);
  for (const auto& [job, waiting] : waiting_)
    for (const Client& client : waiting.clients)
      if (!client.claimed) sessions.enter(client.peer.who.account);
  return sessions;
}

}  // namespace muster::supervisor
