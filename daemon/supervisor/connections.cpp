// The supervisor's door: connections, handshakes, and the hand-over of clients to engines.
#include "daemon/supervisor/supervisor.hpp"

#include "api/base/log.hpp"
#include "api/shm/message.hpp"

#include <algorithm>
#include <cstring>

#include <fcntl.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;
using shm::MessageKind;

constexpr int kClaimAttempts = 50;
constexpr Nanos kClaimRetry = std::chrono::milliseconds(20);

// How many handshakes are under way: connections that have said nothing yet.
template<class Map>
std::size_t silent(const Map& connections) {
  return static_cast<std::size_t>(std::count_if(connections.begin(), connections.end(),
                                                [](const auto& entry) { return !entry.second.commands; }));
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

void Supervisor::on_accept() {
  auto socket = listener_.accept();
  if (!socket) {
    if (socket.error().code() == Code::kNoResource) refuse_for_descriptors();
    return;
  }
  auto peer = shm::peer_identity(*socket);
  if (!peer) return;  // gone already
  if (silent(connections_) >= kHandshakesMax)
    return refuse(*socket, 0,
                  failure(Code::kBusy, "{} clients are connecting at once; try again", kHandshakesMax));
  const ConnectionId id = next_connection_++;
  Connection& connection = connections_[id];
  connection.socket = *std::move(socket);
  connection.peer = *std::move(peer);
  connection.watch = loop_.watch(connection.socket.get(), [this, id] { on_readable(id); });
  connection.timeout = loop_.after(kHandshakeTime, [this, id] { drop(id); });
}

// Out of descriptors, accept() fails and the listener stays readable: without this the loop would spin.
void Supervisor::refuse_for_descriptors() {
  reserve_.reset();
  if (auto socket = listener_.accept()) {
    refuse(*socket, 0,
           failure(Code::kNoResource,
                   "the daemon is out of file descriptors; raise its limit (LimitNOFILE, ulimit -n)"));
    socket->reset();
  }
  reserve_.reset(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  MUSTER_LOG(kError, "supervisor", "out of file descriptors; raise the limit (LimitNOFILE, ulimit -n)");
}

void Supervisor::on_readable(ConnectionId id) {
  Connection& connection = connections_.at(id);
  auto message = shm::receive_message(connection.socket, buffer_);
  if (!message) {
    if (message.error().code() != Code::kPending) drop(id);
    return;
  }
  if (message->bytes == 0) return drop(id);
  const auto bytes = std::span<const std::byte>(buffer_).first(message->bytes);
  const auto header = shm::checked_header(bytes);
  if (!header) {
    refuse(connection.socket, 0, header.error());
    return drop(id);
  }
  if (header->kind == MessageKind::kHello && !connection.commands) return on_hello(id, bytes);
  std::vector<shm::Descriptor> descriptors;
  for (auto& descriptor : message->descriptors) descriptors.push_back(std::move(descriptor));
  auto packet = control::parse_packet(bytes, std::move(descriptors));
  if (!packet || packet->kind != MessageKind::kCommand) {
    const Status status =
        packet ? failure(Code::kProtocol, "an answer came where a command was expected") : packet.error();
    refuse(connection.socket, header->serial, status);
    return drop(id);
  }
  loop_.unwatch(std::exchange(connection.timeout, 0));
  connection.commands = true;
  execute(id, *std::move(packet));
}

void Supervisor::drop(ConnectionId id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  loop_.unwatch(it->second.watch);
  loop_.unwatch(it->second.timeout);
  const std::vector<std::string> jobs = std::move(it->second.jobs);
  connections_.erase(it);
  for (const std::string& name : jobs) end_job(name, "whoever started the job has left");
}

void Supervisor::refuse(const shm::Descriptor& socket, std::uint32_t serial, const Status& status) {
  shm::Failure failure;
  failure.header.kind = MessageKind::kFailure;
  failure.header.serial = serial;
  failure.header.bytes = sizeof failure;
  failure.status = static_cast<muster_status_t>(status.code());
  failure.length = static_cast<std::uint32_t>(std::min(status.message().size(), sizeof failure.text - 1));
  status.message().copy(failure.text, failure.length);
  // A client that has left does not care.
  static_cast<void>(shm::send_message(socket, std::as_bytes(std::span(&failure, 1))));
}

void Supervisor::on_hello(ConnectionId id, std::span<const std::byte> bytes) {
  auto hello = shm::checked<shm::Hello>(bytes, MessageKind::kHello);
  Connection& connection = connections_.at(id);
  WaitingClient client{std::move(connection.socket), std::move(connection.peer), {}};
  loop_.unwatch(connection.watch);
  loop_.unwatch(connection.timeout);
  connections_.erase(id);
  if (!hello) return refuse(client.socket, 0, hello.error());
  client.hello = *hello;
  admit(std::move(client));
}

void Supervisor::admit(WaitingClient client) {
  const std::uint32_t serial = client.hello.header.serial;
  const Status sizes = check_sizes(client.hello);
  if (!sizes.ok()) return refuse(client.socket, serial, sizes);
  const auto name = shm::checked_text(client.hello.job, "job");
  const auto token = shm::checked_text(client.hello.token, "token");
  if (!name || !token) return refuse(client.socket, serial, name ? token.error() : name.error());
  if (draining_) return refuse(client.socket, serial, failure(Code::kAborted, "the daemon is shutting down"));
  if (sessions() >= options_.sessions_max)
    return refuse(
        client.socket, serial,
        failure(Code::kNoResource, "{} sessions are attached, the limit (limits.sessions_max)", sessions()));
  const std::string job_name(*name);
  if (book_.find(job_name) == nullptr) {
    const Status created = create_for(client.hello, client.peer.uid, client.peer.gid);
    if (!created.ok()) return refuse(client.socket, serial, created);
  }
  const Claimant claimant{client.peer.uid, client.peer.pid, client.hello.rank, client.hello.world_size,
                          std::string(*token)};
  const Status claimed = book_.claim(job_name, claimant);
  if (claimed.code() == Code::kDuplicate && ++client.attempts < kClaimAttempts) {
    // A rank that has just died may come back before its engine has said so.
    auto again = std::make_shared<WaitingClient>(std::move(client));
    loop_.after(kClaimRetry, [this, again] { admit(std::move(*again)); });
    return;
  }
  if (!claimed.ok()) return refuse(client.socket, serial, claimed);
  if (book_.find(job_name)->state == JobState::kStarting) {
    running_.at(job_name).waiting.push_back(std::move(client));
    return;
  }
  hand_over(std::move(client));
}

// torchrun, srun and mpirun start ranks of a job that nobody has created: the first one does.
Status Supervisor::create_for(const shm::Hello& hello, std::uint32_t uid, std::uint32_t gid) {
  const std::string name(hello.job);
  if (!options_.auto_create_jobs || hello.world_size < 1)
    return failure(Code::kNotFound,
                   "no job is named {}; create it in the cluster file or start it with `muster run`", name);
  MUSTER_ASSIGN_OR_RETURN(const auto mesh, shm::checked_text(hello.mesh, "mesh"));
  control::JobSpec spec = options_.job_defaults;
  spec.name = name;
  spec.world = static_cast<std::uint32_t>(hello.world_size);
  spec.mesh = mesh.empty() ? "dp_shard=-1" : std::string(mesh);
  spec.owner_uid = uid;
  spec.claim = control::Claim::kOwner;
  return start_job(std::move(spec), gid, [name](const Status& status) {
    if (!status.ok()) MUSTER_LOG(kWarning, "supervisor", "job {}: {}", name, status.text());
  });
}

void Supervisor::hand_over(WaitingClient client) {
  const std::string name(client.hello.job);
  const Rank rank(static_cast<std::uint32_t>(client.hello.rank));
  const auto it = running_.find(name);
  if (it == running_.end())
    return refuse(client.socket, client.hello.header.serial,
                  failure(Code::kDaemonLost, "job {} is gone", name));
  const Json command{{"command", "attach"},
                     {"rank", rank.value},
                     {"pid", client.peer.pid},
                     {"serial", client.hello.header.serial}};
  const int descriptors[] = {client.socket.get(), client.peer.pidfd.get()};
  // The socket stays open here until the engine has answered, to refuse in its place.
  auto kept = std::make_shared<WaitingClient>(std::move(client));
  it->second.engine->ask(command, descriptors, [this, name, rank, kept](Result<Packet> answer) {
    Status status = answer ? Status() : answer.error();
    if (answer) {
      const auto result = control::result_of(*answer);
      if (!result) status = result.error();
    }
    if (!status.ok()) {
      book_.release(name, rank);
      refuse(kept->socket, kept->hello.header.serial, status);
    }
    publish_status();
  });
}

}  // namespace muster::supervisor
