// Connections, handshakes, and the hand-over of clients to engines.
#include "daemon/supervisor/supervisor.hpp"

#include "api/base/assert.hpp"
#include "api/base/log.hpp"
#include "api/shm/message.hpp"

#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <poll.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;
using shm::MessageKind;

// For a rank that comes back: its engine mostly says within a millisecond that its former client has gone,
// and within a second if the machine is busy.
constexpr int kQuickAttempts = 40;
constexpr int kClaimAttempts = kQuickAttempts + 50;
constexpr Nanos kQuickRetry = std::chrono::microseconds(250);
constexpr Nanos kClaimRetry = std::chrono::milliseconds(20);

constexpr Shares::Words kSessions{"sessions that are attached or wait for their job", "limits.sessions_max",
                                  "limits.sessions_per_user_max", "let some of the ranks end"};

bool is_readable(const shm::Descriptor& socket) {
  pollfd entry{socket.get(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

// Whether the other side has closed it.
bool is_left(const shm::Descriptor& socket) {
  pollfd entry{socket.get(), 0, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLHUP) != 0;
}

Rank rank_of(const shm::Hello& hello) {
  return Rank(static_cast<std::uint32_t>(hello.rank));
}

void send_refusal(const shm::Descriptor& socket, std::uint32_t serial, const Status& status) {
  const shm::Failure failure = shm::make_failure(status, serial);
  // A client that has left does not care.
  static_cast<void>(shm::send_message(socket, shm::bytes_of(failure)));
}

Status check_sizes(const shm::Hello& hello) {
  const bool same = hello.abi_version == shm::kAbiVersion &&
                    hello.submission_bytes == shm::kSubmissionBytes &&
                    hello.completion_bytes == shm::kCompletionBytes;
  if (same) return {};
  return failure(Code::kVersion,
                 "the library speaks version {} with segments of {} and {} bytes, the daemon version {} with "
                 "{} and {}; install "
                 "the same release of both",
                 hello.abi_version, hello.submission_bytes, hello.completion_bytes, shm::kAbiVersion,
                 shm::kSubmissionBytes, shm::kCompletionBytes);
}

}  // namespace

// The path may lead elsewhere by now: somebody cleans up there, or means harm. Refusals that no line has told
// of are told on the way.
void Supervisor::look_at_entrance() {
  const bool healed = entrance_.look(clock_.now());
  std::set<std::string> none;
  entrance_.keep_in(store_, none);
  if (healed || socket_watch_ == 0) {
    const auto watch = [this](control::Loop::Watch& watched, const ListenSocket& socket) {
      loop_.unwatch(watched);
      watched = loop_.watch(socket.descriptor().get(), [this] { on_accept(); });
    };
    watch(socket_watch_, entrance_.socket());
    if (const ListenSocket* managers = entrance_.managers()) watch(managers_watch_, *managers);
  }
  // Nobody can come to the former socket any more, so there are no more than its queue holds.
  for (int i = 0; i < shm::Listener::Options().backlog && entrance_.has_former_guest(); ++i) on_accept();
  log_more_refusals();
  loop_.after(Entrance::kLookPeriod, [this] { look_at_entrance(); });
}

void Supervisor::on_accept() {
  auto socket = entrance_.accept();
  if (!socket) {
    if (socket.error().code() == Code::kNoResource) refuse_for_descriptors();
    return;
  }
  auto peer = shm::peer_identity(*socket);
  if (!peer) return send_refusal(*socket, 0, peer.error());  // gone already, or no descriptor free for it
  make_room(peer->uid);
  const ConnectionId id = next_connection_++;
  Connection& connection = connections_[id];
  connection.socket = *std::move(socket);
  connection.peer = *std::move(peer);
  connection.watch = loop_.watch(connection.socket.get(), [this, id] { on_readable(id); });
  connection.timeout = loop_.after(kHandshakeTime, [this, id] { drop(id); });
  silent_.enter(connection.peer.uid);
  on_readable(id);  // most say at once what they want: a crowd of ranks is never silent
}

// Of those who have said nothing yet, the oldest of whoever has most makes room: nobody waits behind them.
void Supervisor::make_room(std::uint32_t uid) {
  while (!silent_.has_room(uid)) {
    const std::uint32_t who = silent_.in_the_way(uid);
    const auto oldest = std::find_if(connections_.begin(), connections_.end(), [who](const auto& entry) {
      return !entry.second.commands && entry.second.peer.uid == who;
    });
    refuse(oldest->second, 0,
           failure(Code::kBusy, "user {} has too many connections that say nothing; connect again", who));
    drop(oldest->first);
  }
}

// From a handshake to a connection that may stay. kBusy if there are enough of them.
Status Supervisor::take_commands(Connection& connection) {
  if (connection.commands) return {};
  const std::uint32_t uid = connection.peer.uid;
  if (!commanding_.has_room(uid)) {
    if (commanding_.share_used(uid))
      return failure(
          Code::kBusy,
          "{} connections of user {} send commands, a user's share; end a `muster run` or try again",
          kCommands.of_one, uid);
    return failure(Code::kBusy, "{} connections send commands, the limit; end a `muster run` or try again",
                   kCommands.all);
  }
  loop_.unwatch(std::exchange(connection.timeout, 0));
  connection.commands = true;
  silent_.leave(uid);
  commanding_.enter(uid);
  return {};
}

// A connection that neither owns a job nor waits for an answer may come again when it has a question.
void Supervisor::time_out_if_idle(ConnectionId id) {
  Connection& connection = connections_.at(id);
  loop_.unwatch(std::exchange(connection.timeout, 0));
  if (connection.questions == 0 && connection.jobs.empty())
    connection.timeout = loop_.after(options_.idle_timeout, [this, id] { on_idle(id); });
}

void Supervisor::on_idle(ConnectionId id) {
  Connection& connection = connections_.at(id);
  connection.timeout = 0;
  if (!is_readable(connection.socket)) drop(id);  // else a question came just now, and is about to be read
}

// Out of descriptors, accept() fails and the listener stays readable: without this the loop would spin.
void Supervisor::refuse_for_descriptors() {
  reserve_.reset();
  if (auto socket = entrance_.accept()) {
    send_refusal(*socket, 0,
                 failure(Code::kNoResource,
                         "the daemon is out of file descriptors; raise its limit (LimitNOFILE, ulimit -n)"));
    socket->reset();
  }
  reserve_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  MUSTER_LOG(kError, "supervisor", "out of file descriptors; raise the limit (LimitNOFILE, ulimit -n)");
}

void Supervisor::on_readable(ConnectionId id) {
  Connection& connection = connections_.at(id);
  const auto message = shm::receive_message(connection.socket, buffer_, shm::Passing::kNone);
  if (!message) {
    if (message.error().code() == Code::kPending) return;
    refuse(connection, 0, message.error());
    return drop(id);
  }
  if (message->bytes == 0) return drop(id);
  const auto bytes = std::span<const std::byte>(buffer_).first(message->bytes);
  const auto header = shm::checked_header(bytes);
  if (!header) {
    refuse(connection, 0, header.error());
    return drop(id);
  }
  if (header->kind == MessageKind::kHello && !connection.commands) return on_hello(id, bytes);
  if (const Status taken = take_commands(connection); !taken.ok()) {
    refuse(connection, header->serial, taken);
    return drop(id);
  }
  auto packet = control::parse_packet(bytes, {});
  if (!packet || packet->kind != MessageKind::kCommand) {
    const Status status =
        packet ? failure(Code::kProtocol, "an answer came where a command was expected") : packet.error();
    refuse(connection, header->serial, status);
    return drop(id);
  }
  execute(id, *std::move(packet));
}

void Supervisor::drop(ConnectionId id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  loop_.unwatch(it->second.watch);
  loop_.unwatch(it->second.timeout);
  const std::vector<std::string> jobs = std::move(it->second.jobs);
  (it->second.commands ? commanding_ : silent_).leave(it->second.peer.uid);
  store_.forget(owner_name(id));
  connections_.erase(it);
  for (const std::string& name : jobs) end_job(name, "whoever started the job has left");
}

void Supervisor::refuse(const Connection& connection, std::uint32_t serial, const Status& status) {
  log_refusal(refusals_, connection.peer, "a connection", status);
  send_refusal(connection.socket, serial, status);
}

void Supervisor::refuse(const WaitingClient& client, const Status& status) {
  log_refusal(status.code() == Code::kDenied ? wrong_claims_ : refusals_, client.peer, "a rank", status);
  send_refusal(client.socket, client.hello.header.serial, status);
}

// Never a token's text: no status has one.
void Supervisor::log_refusal(RefusalLog& log, const shm::PeerIdentity& peer, std::string_view what,
                             const Status& status) {
  if (const auto line = log.line(peer.uid, peer.pid, what, status, clock_.now()))
    MUSTER_LOG(kWarning, "supervisor", "{}", *line);
}

void Supervisor::log_more_refusals() {
  for (RefusalLog* log : {&refusals_, &wrong_claims_})
    for (const std::string& line : log->due(clock_.now())) MUSTER_LOG(kWarning, "supervisor", "{}", line);
}

void Supervisor::on_hello(ConnectionId id, std::span<const std::byte> bytes) {
  auto hello = shm::checked<shm::Hello>(bytes, MessageKind::kHello);
  Connection& connection = connections_.at(id);
  WaitingClient client{std::move(connection.socket), std::move(connection.peer), {}};
  loop_.unwatch(connection.watch);
  loop_.unwatch(connection.timeout);
  silent_.leave(client.peer.uid);
  connections_.erase(id);
  if (!hello) return refuse(client, hello.error());
  client.hello = *hello;
  admit(std::move(client));
}

void Supervisor::admit(WaitingClient client) {
  if (is_left(client.socket)) return;  // it gave up waiting, and may have come again
  const Status sizes = check_sizes(client.hello);
  if (!sizes.ok()) return refuse(client, sizes);
  const auto name = shm::checked_text(client.hello.job, "job");
  const auto token = shm::checked_text(client.hello.token, "token");
  const auto mesh = shm::checked_text(client.hello.mesh, "mesh");
  for (const auto* text : {&name, &token, &mesh})
    if (!*text) return refuse(client, text->error());
  if (draining_) return refuse(client, failure(Code::kJobEnded, kShuttingDown));
  const std::string job_name(*name);
  // Who waits for a seat to come free needs no other: it is counted once it has it.
  const std::uint32_t uid = client.peer.uid;
  if (!is_held(job_name, client.hello.rank) && !sessions_by_user().has_room(uid)) {
    forget_leavers();
    if (const Shares sessions = sessions_by_user(); !sessions.has_room(uid))
      return refuse(client, sessions.refusal(uid, kSessions));
  }
  if (table_.find(job_name) == nullptr) {
    auto spec = spec_for(client.hello, *mesh, uid);
    if (!spec) return refuse(client, spec.error());
    if (!client.applied && may_wait_for_place(uid)) {
      client.applied = true;
      auto kept = std::make_shared<WaitingClient>(std::move(client));
      return wait_for_place({uid, job_name, [kept] { return is_left(kept->socket); },
                             [this, kept] { admit(std::move(*kept)); }});
    }
    const Status created =
        start_job(*std::move(spec), {.gid = client.peer.gid, .made = true}, [job_name](const Status& status) {
          if (!status.ok()) MUSTER_LOG(kWarning, "supervisor", "job {}: {}", job_name, status.text());
        });
    if (!created.ok()) return refuse(client, created);
  }
  if (table_.find(job_name)->state == JobState::kAdopting || running_.at(job_name).deserted) {
    running_.at(job_name).waiting.push_back(std::move(client));
    return;
  }
  const Claimant claimant{uid,
                          client.peer.pid,
                          client.hello.rank,
                          client.hello.world_size,
                          std::string(*token),
                          std::string(*mesh)};
  const Status claimed = table_.claim(job_name, claimant);
  // A rank that has just died may come back before its engine has said so.
  if (claimed.code() == Code::kDuplicate && admit_later(client)) return;
  if (!claimed.ok()) return refuse(client, claimed);
  client.epoch = table_.find(job_name)->spec.epoch;
  end_if_deserted(job_name);  // it is not, now
  if (table_.find(job_name)->state == JobState::kStarting) {
    running_.at(job_name).waiting.push_back(std::move(client));
    return;
  }
  hand_over(std::move(client));
}

// Takes the client if it may wait: as often as kClaimAttempts, beside so many others of its user.
bool Supervisor::admit_later(WaitingClient& client) {
  const std::uint32_t uid = client.peer.uid;
  forget_leavers();
  if (!retrying_.has_room(uid) || ++client.attempts >= kClaimAttempts) return false;
  auto kept = std::make_shared<WaitingClient>(std::move(client));
  retrying_.enter(uid);
  loop_.after(kept->attempts < kQuickAttempts ? kQuickRetry : kClaimRetry, [this, kept, uid] {
    retrying_.leave(uid);
    admit(std::move(*kept));
  });
  return true;
}

// torchrun, srun and mpirun start ranks of a job that nobody has created: the first one does.
Result<control::JobSpec> Supervisor::spec_for(const shm::Hello& hello, std::string_view mesh,
                                              std::uint32_t uid) const {
  const std::string name(hello.job);
  if (!options_.auto_create_jobs || hello.world_size < 1)
    return fail(Code::kNotFound,
                "no job is named {}; create it in the cluster file or start it with `muster run`", name);
  const auto world = static_cast<std::uint32_t>(hello.world_size);
  if (world > control::kWorldMax)
    return fail(
        Code::kBadArgument,
        "job {} is of {} ranks, and {} are possible (limits.ranks_per_job_max goes no higher); start fewer",
        name, world, control::kWorldMax);
  control::JobSpec spec = options_.job_defaults;
  spec.name = name;
  spec.world = world;
  // As `muster run` writes it, which joins a job only if its mesh is the same.
  MUSTER_ASSIGN_OR_RETURN(spec.mesh, canonical_mesh(mesh, world));
  spec.owner_uid = uid;
  spec.claim = control::ClaimRule::kOwner;
  return spec;
}

// Clients that gave up waiting give their places and claims to those that wait still.
void Supervisor::forget_leavers() {
  std::erase_if(applicants_, [this](const Applicant& applicant) {
    const bool left = applicant.has_left();
    if (left) retrying_.leave(applicant.uid);
    return left;
  });
  for (auto& [name, running] : running_)
    std::erase_if(running.waiting, [this, job = name](const WaitingClient& client) {
      const bool left = is_left(client.socket);
      if (left && client.epoch != 0) table_.withdraw(job, rank_of(client.hello));
      return left;
    });
}

// Whoever waits for a job that is ending now.
void Supervisor::turn_away(const std::string& name) {
  RunningJob& running = running_.at(name);
  loop_.unwatch(std::exchange(running.attach_again, 0));
  for (WaitingClient& client : std::exchange(running.waiting, {})) {
    if (client.epoch != 0) table_.withdraw(name, rank_of(client.hello));
    refuse(client, unless_ended(name, {}));
  }
}

bool Supervisor::is_held(const std::string& name, std::int32_t rank) {
  const Job* job = table_.find(name);
  const auto seat = static_cast<std::size_t>(rank);
  return job != nullptr && rank >= 0 && seat < job->claims.size() && job->claims[seat].held;
}

void Supervisor::hand_over(WaitingClient client) {
  const std::string name(client.hello.job);
  const Rank rank = rank_of(client.hello);
  MUSTER_ASSERT(client.epoch != 0);  // it has claimed its seat
  if (is_left(client.socket)) {
    table_.withdraw(name, rank);
    end_if_deserted(name);
    return check_drained();
  }
  const Json command{{"command", "attach"},
                     {"rank", rank.value},
                     {"pid", client.peer.pid},
                     {"serial", client.hello.header.serial}};
  const int descriptors[] = {client.socket.get(), client.peer.pidfd.get()};
  // The socket stays open here until the engine has answered, to refuse in its place.
  auto kept = std::make_shared<WaitingClient>(std::move(client));
  running_.at(name).engine->ask(command, descriptors, [this, name, rank, kept](const Result<Packet>& answer) {
    on_attached(name, rank, std::move(*kept), answer);
  });
}

void Supervisor::hand_over_all(const std::string& name) {
  RunningJob& running = running_.at(name);
  running.attach_again = 0;
  for (WaitingClient& client : std::exchange(running.waiting, {})) hand_over(std::move(client));
  end_if_deserted(name);  // forget_leavers() may have struck out the last one
}

void Supervisor::on_attached(const std::string& name, Rank rank, WaitingClient client,
                             const Result<Packet>& answer) {
  if (!answer && answer.error().code() == Code::kBusy) {  // the engine is stopped, or a crowd came at once
    RunningJob& running = running_.at(name);
    running.waiting.push_back(std::move(client));
    if (running.attach_again == 0)
      running.attach_again = loop_.after(kClaimRetry, [this, name] { hand_over_all(name); });
    return;
  }
  Status status = answer ? Status() : unless_ended(name, answer.error());
  if (answer) {
    const auto result = control::result_of(*answer);
    if (!result) status = result.error();
    // Also with a refusal, if the rank left while it was let in.
    const auto attachments = answer->body.find("attachments");
    // A token that was issued meanwhile counts from this attachment, for a successor too.
    if (attachments != answer->body.end() && table_.attached(name, rank, attachments->get<std::uint32_t>()))
      save();
  }
  if (!status.ok()) {
    table_.release(name, rank);
    end_if_deserted(name);
    refuse(client, status);
    check_drained();
  }
  publish_status();
}

}  // namespace muster::supervisor
