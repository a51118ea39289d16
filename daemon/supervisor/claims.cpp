#include "daemon/supervisor/claims.hpp"

#include "api/base/assert.hpp"
#include "api/base/log.hpp"
#include "api/shm/message.hpp"

#include <memory>
#include <utility>

#include <poll.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

// For a rank that comes back. Its engine usually reports within a millisecond that its former process is
// gone, and within a second if the machine is busy.
constexpr int kQuickAttempts = 40;
constexpr Nanos kQuickRetry = std::chrono::microseconds(250);
constexpr Nanos kRetry = std::chrono::milliseconds(20);
static_assert(Claims::kAttempts > kQuickAttempts);
static_assert(Retries::kPlaceTime > RunningJobs::kEngineEndTime);  // so the place comes within that time

constexpr Shares::Words kSessions{"sessions that are attached or wait for their job", "limits.sessions_max",
                                  "limits.sessions_per_user_max", "let some of the ranks end"};

// Whether the peer has closed the socket.
bool is_left(const shm::Descriptor& socket) {
  pollfd entry{socket.get(), 0, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0;
}

Rank rank_of(const shm::Hello& hello) {
  return Rank(static_cast<std::uint32_t>(hello.rank));
}

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

Claims::Claims(control::Loop& loop, JobTable& table, RunningJobs& jobs, Retries& retries, Refusals& refusals,
               Rendezvous& rendezvous, const Options& options, Events events)
    : loop_(loop),
      table_(table),
      jobs_(jobs),
      retries_(retries),
      refusals_(refusals),
      rendezvous_(rendezvous),
      options_(options),
      events_(std::move(events)) {}

void Claims::hear(shm::Descriptor socket, shm::PeerIdentity peer, std::span<const std::byte> hello) {
  auto checked = shm::checked<shm::Hello>(hello, shm::MessageKind::kHello);
  Client client{std::move(socket), std::move(peer), {}};
  if (!checked) return refuse(client, checked.error());
  client.hello = *checked;
  admit(std::move(client));
}

void Claims::admit(Client client) {
  if (is_left(client.socket)) return;  // it gave up waiting, and may have come again
  if (const Status sizes = check_sizes(client.hello); !sizes.ok()) return refuse(client, sizes);
  const auto name = shm::checked_text(client.hello.job, "job");
  const auto token = shm::checked_text(client.hello.token, "token");
  const auto mesh = shm::checked_text(client.hello.mesh, "mesh");
  for (const auto* text : {&name, &token, &mesh})
    if (!*text) return refuse(client, text->error());
  if (jobs_.closed()) return refuse(client, failure(Code::kJobEnded, RunningJobs::kShuttingDown));
  const std::string job(*name);
  if (const Status room = check_room(client, job); !room.ok()) return refuse(client, room);
  if (table_.find(job) == nullptr) {
    if (wait_for_place(client, job)) return;
    if (must_gather(client)) return gather(std::move(client), *mesh);
    if (const Status made = make_job(client, *mesh); !made.ok()) return refuse(client, made);
  }
  if (table_.find(job)->state == JobState::kAdopting || jobs_.facts(job).deserted) {
    waiting_[job].clients.push_back(std::move(client));
    return;
  }
  const Claimant claimant{client.peer.uid,         client.peer.pid,     client.hello.rank,
                          client.hello.world_size, std::string(*token), std::string(*mesh)};
  const Status claimed = table_.claim(job, claimant);
  if (claimed.code() == Code::kDuplicate && claim_later(client)) return;
  if (!claimed.ok()) return refuse(client, claimed);
  client.claimed = true;
  jobs_.watch_desertion(job);
  if (table_.find(job)->state != JobState::kStarting) return hand_over(std::move(client));
  waiting_[job].clients.push_back(std::move(client));
}

// A rank that waits until its claim is free needs no session of its own yet.
Status Claims::check_room(const Client& client, const std::string& job) {
  const std::uint32_t uid = client.peer.uid;
  if (table_.is_held(job, client.hello.rank) || sessions_by_user().has_room(uid)) return {};
  forget_leavers();
  const Shares sessions = sessions_by_user();
  return sessions.has_room(uid) ? Status() : sessions.refusal(uid, kSessions);
}

// True: takes the client. A job that is ending still has the place of the client's job.
bool Claims::wait_for_place(Client& client, const std::string& job) {
  const std::uint32_t uid = client.peer.uid;
  if (client.applied || !retries_.may_wait_for_place(uid)) return false;
  client.applied = true;
  const auto kept = std::make_shared<Client>(std::move(client));
  retries_.wait_for_place(
      {uid, job, [kept] { return is_left(kept->socket); }, [this, kept] { admit(std::move(*kept)); }});
  return true;
}

Status Claims::make_job(const Client& client, std::string_view mesh) {
  MUSTER_RETURN_IF_ERROR(jobs_.reserved(client.hello.job));
  MUSTER_ASSIGN_OR_RETURN(control::JobSpec spec, spec_for(client, mesh));
  const std::string name = spec.name;
  return jobs_.start(std::move(spec), {.gid = client.peer.gid, .made = true}, [name](const Status& status) {
    if (!status.ok()) MUSTER_LOG(kWarning, "supervisor", "job {}: {}", name, status.text());
  });
}

// torchrun, srun and mpirun start ranks of a job that nobody has created: the first rank creates it.
Result<control::JobSpec> Claims::spec_for(const Client& client, std::string_view mesh) const {
  const shm::Hello& hello = client.hello;
  const std::string name(hello.job);
  if (!options_.auto_create_jobs || hello.world_size < 1)
    return fail(Code::kNotFound,
                "no job is named {}; create it in the cluster file or start it with `muster run`", name);
  const auto world = static_cast<std::uint32_t>(hello.world_size);
  if (world > kRanksOnNodeMax)
    return fail(
        Code::kBadArgument,
        "job {} is of {} ranks, and {} are possible (limits.ranks_per_job_max goes no higher); start fewer",
        name, world, kRanksOnNodeMax);
  control::JobSpec spec = options_.job_defaults;
  spec.name = name;
  spec.world = world;
  // In the form of `muster run`, which joins a job only if its mesh is the same.
  MUSTER_ASSIGN_OR_RETURN(spec.mesh, canonical_mesh(mesh, world));
  spec.owner_uid = client.peer.uid;
  spec.claim = control::ClaimRule::kOwner;
  return spec;
}

// ---- at the rendezvous -------------------------------------------------------------------------

// A launcher that says that all ranks are here need not wait for them.
bool Claims::must_gather(const Client& client) const {
  const shm::Hello& hello = client.hello;
  return !options_.roster.alone() && options_.auto_create_jobs && !client.gathered && hello.world_size > 1 &&
         hello.local_size != hello.world_size;
}

void Claims::gather(Client client, std::string_view mesh) {
  forget_leavers();  // a former process of the rank may have waited
  const std::string job(client.hello.job);
  const auto ticket = come(client, mesh);
  if (!ticket) return refuse(client, ticket.error());
  client.ticket = *ticket;
  client.watch = loop_.watch(client.socket.get(), [this, ticket = *ticket] {
    // Whoever waits has nothing to say: it has ended, or breaks the rules.
    refuse_gathered(ticket, failure(Code::kProtocol, "a rank spoke before it was welcome"));
  });
  waiting_[job].clients.push_back(std::move(client));
}

Result<std::uint64_t> Claims::come(const Client& client, std::string_view mesh) {
  const shm::Hello& hello = client.hello;
  GatheringRank rank;
  rank.job = {client.peer.uid, std::string(hello.job)};
  MUSTER_RETURN_IF_ERROR(control::check_job_name(rank.job.name));
  MUSTER_RETURN_IF_ERROR(jobs_.reserved(rank.job.name));
  if (hello.rank < 0 || hello.rank >= hello.world_size)
    return fail(Code::kBadArgument, "rank {} is not in 0..{} of job {}", hello.rank, hello.world_size - 1,
                rank.job.name);
  rank.gid = client.peer.gid;
  rank.pid = client.peer.pid;
  rank.rank = static_cast<std::uint32_t>(hello.rank);
  rank.world = static_cast<std::uint32_t>(hello.world_size);
  if (!mesh.empty()) {
    MUSTER_ASSIGN_OR_RETURN(rank.mesh, canonical_mesh(mesh, rank.world));
  }
  return rendezvous_.come(std::move(rank), Nanos(std::max<std::int64_t>(hello.timeout_ns, 0)));
}

void Claims::refuse_gathered(std::uint64_t ticket, const Status& why) {
  for (const Client& client :
       take_gathered([ticket](const Client& waiting) { return waiting.ticket == ticket; }))
    if (!is_left(client.socket)) refuse(client, why);
}

void Claims::all_gathered(const GatheringRank::Job& job, const std::string& mesh) {
  for (Client& client : take_gathered([&job](const Client& waiting) {
         return waiting.peer.uid == job.uid && std::string_view(waiting.hello.job) == job.name;
       })) {
    client.gathered = true;
    // The first of them makes the job, and any may have said the mesh.
    const bool said = client.hello.mesh[0] != '\0';
    const Status set = said ? Status() : shm::set_text(client.hello.mesh, mesh, "the mesh");
    set.ok() ? admit(std::move(client)) : refuse(client, set);
  }
}

void Claims::disperse(const Status& why) {
  for (const Client& client : take_gathered([](const Client&) { return true; })) refuse(client, why);
}

// Of those that wait at the rendezvous. They wait there no longer.
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

// It waits at the rendezvous no longer.
void Claims::depart(Client& client) {
  if (client.ticket == 0) return;
  loop_.unwatch(std::exchange(client.watch, 0));
  rendezvous_.leave(std::exchange(client.ticket, 0));
}

// True: takes the client. A rank may come back before its engine has reported the former process's death.
bool Claims::claim_later(Client& client) {
  const std::uint32_t uid = client.peer.uid;
  forget_leavers();
  if (!retries_.has_room(uid) || ++client.attempts >= kAttempts) return false;
  const auto kept = std::make_shared<Client>(std::move(client));
  retries_.after(kept->attempts < kQuickAttempts ? kQuickRetry : kRetry, uid,
                 [this, kept] { admit(std::move(*kept)); });
  return true;
}

void Claims::hand_over(Client client) {
  const std::string job(client.hello.job);
  const Rank rank = rank_of(client.hello);
  MUSTER_ASSERT(client.claimed);
  if (is_left(client.socket)) {
    table_.withdraw(job, rank);
    jobs_.watch_desertion(job);
    return events_.changed();
  }
  const Json command{{"command", "attach"},
                     {"rank", rank.value},
                     {"pid", client.peer.pid},
                     {"serial", client.hello.header.serial}};
  const int descriptors[] = {client.socket.get(), client.peer.pidfd.get()};
  // The socket stays open here until the engine has answered, so that a refusal can be sent.
  const auto kept = std::make_shared<Client>(std::move(client));
  jobs_.ask(job, command, descriptors,
            [this, job, kept](const Result<Packet>& answer) { on_attached(job, std::move(*kept), answer); });
}

void Claims::hand_over_again(const std::string& job) {
  waiting_[job].attach_again = 0;
  for (Client& client : take_waiting(job)) hand_over(std::move(client));
  jobs_.watch_desertion(job);  // the last waiting client may have left
}

void Claims::on_attached(const std::string& job, Client client, const Result<Packet>& answer) {
  if (!answer && answer.error().code() == Code::kBusy) {  // the engine is stopped, or many ranks came at once
    Waiting& waiting = waiting_[job];
    waiting.clients.push_back(std::move(client));
    if (waiting.attach_again == 0)
      waiting.attach_again = loop_.after(kRetry, [this, job] { hand_over_again(job); });
    return;
  }
  const Rank rank = rank_of(client.hello);
  Status status = answer ? Status() : jobs_.unless_ending(job, answer.error());
  if (answer) {
    const auto result = control::result_of(*answer);
    if (!result) status = result.error();
    // A refusal has the count too, if the rank left while it was attached. A token issued meanwhile counts
    // from this attachment, for a successor as well.
    const auto attachments = answer->body.find("attachments");
    if (attachments != answer->body.end() && table_.attached(job, rank, attachments->get<std::uint32_t>()))
      events_.save();
  }
  if (!status.ok()) {
    table_.release(job, rank);
    jobs_.watch_desertion(job);
    refuse(client, status);
  }
  events_.changed();
}

void Claims::refuse(const Client& client, const Status& why) {
  refusals_.tell_rank(client.peer, why);
  send_refusal(client.socket, client.hello.header.serial, why);
}

void Claims::job_settled(const std::string& job, const Status& status) {
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
    if (client.claimed) table_.withdraw(job, rank_of(client.hello));
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
      const bool left = is_left(client.socket);
      if (left) depart(client);
      if (left && client.claimed) table_.withdraw(name, rank_of(client.hello));
      return left;
    });
}

Shares Claims::sessions_by_user() const {
  Shares sessions = session_shares(options_);
  table_.count_sessions(sessions);
  for (const auto& [job, waiting] : waiting_)
    for (const Client& client : waiting.clients)
      if (!client.claimed) sessions.enter(client.peer.uid);
  return sessions;
}

}  // namespace muster::supervisor
