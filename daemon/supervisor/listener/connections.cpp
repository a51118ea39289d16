#include "daemon/supervisor/listener/connections.hpp"

#include "api/shm/message.hpp"
#include "daemon/supervisor/base/kept_names.hpp"

#include <algorithm>
#include <utility>

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using shm::MessageKind;

bool is_readable(const shm::Descriptor& socket) {
  pollfd entry{socket.get(), POLLIN, 0};
  return poll(&entry, 1, 0) == 1;
}

// The serial of the first unread message; 0: there is none.
std::uint32_t first_unread(const shm::Descriptor& socket) {
  shm::MessageHeader header;
  const ssize_t n = recv(socket.get(), &header, sizeof header, MSG_PEEK | MSG_DONTWAIT | MSG_TRUNC);
  return n >= static_cast<ssize_t>(sizeof header) ? header.serial : 0;
}

// The command's name for the log, whatever was received.
std::string command_in(const Json& body) {
  const auto field = body.find("command");
  return field != body.end() && field->is_string() ? "command " + field->get<std::string>() : "a command";
}

}  // namespace

Nanos timeout_in(const Json& command, Nanos most) {
  const auto field = command.find("wait_ns");
  if (field == command.end() || !field->is_number_unsigned()) return most;
  const auto bound = static_cast<std::uint64_t>(most.count());
  return Nanos(static_cast<std::int64_t>(std::min(field->get<std::uint64_t>(), bound)));
}

Connections::Connections(control::Loop& loop, DescriptorStore& store, Refusals& refusals, Nanos idle_timeout,
                         Events events)
    : loop_(loop),
      store_(store),
      refusals_(refusals),
      idle_timeout_(idle_timeout),
      events_(std::move(events)),
      silent_(kSilent, geteuid()),
      commanding_(kCommands, geteuid()) {}

void Connections::take(shm::Descriptor socket, PendingClient client) {
  make_room(client.who.account);
  const Id id = next_++;
  Connection& connection = connections_[id];
  connection.socket = std::move(socket);
  connection.client = std::move(client);
  connection.watch = loop_.watch(connection.socket.get(), [this, id] { on_readable(id); });
  connection.timeout = loop_.after(kHandshakeTime, [this, id] { drop(id); });
  silent_.enter(connection.client.who.account);
  on_readable(id);  // most clients have sent their first message already: a crowd of ranks is never silent
}

void Connections::adopt(Id id, shm::Descriptor socket, PendingClient client, std::size_t jobs) {
  if (jobs == 0) store_.discard(owner_name(id));
  next_ = std::max(next_, id + 1);
  Connection& connection = connections_[id];
  connection.socket = std::move(socket);
  connection.client = std::move(client);
  connection.commands = true;
  connection.jobs = jobs;
  commanding_.enter(connection.client.who.account);
  if (jobs != 0) store_.know(owner_name(id), connection.socket);
  const Json event{{"event", "adopted"}, {"next", first_unread(connection.socket)}};
  // A client that does not read, or has left, is found out when its socket is read.
  static_cast<void>(control::send_packet(connection.socket, MessageKind::kCommand, 0, event));
  connection.watch = loop_.watch(connection.socket.get(), [this, id] { on_readable(id); });
  time_out_if_idle(id);
}

void Connections::own(Id id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  if (it->second.jobs++ == 0) store_.keep(owner_name(id), it->second.socket);
}

void Connections::disown(Id id) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;
  if (--it->second.jobs == 0) store_.forget(owner_name(id));
  time_out_if_idle(id);
}

void Connections::make_room(const Account& account) {
  while (!silent_.has_room(account)) {
    const Account most = silent_.in_the_way(account);
    const auto oldest = std::find_if(connections_.begin(), connections_.end(), [&most](const auto& entry) {
      return !entry.second.commands && entry.second.client.who.account == most;
    });
    refuse(oldest->first, 0,
           failure(Code::kBusy, "{} has too many connections that say nothing; connect again",
                   control::text_of(most)));
  }
}

// The connection is no longer silent, and may stay. kBusy if there are enough of them.
Status Connections::take_commands(Connection& connection) {
  if (connection.commands) return {};
  const Account& account = connection.client.who.account;
  if (!commanding_.has_room(account)) {
    if (commanding_.share_used(account))
      return failure(Code::kBusy,
                     "{} connections of {} send commands, a user's share; end a `muster run` or try again",
                     kCommands.of_one, control::text_of(account));
    return failure(Code::kBusy, "{} connections send commands, the limit; end a `muster run` or try again",
                   kCommands.all);
  }
  loop_.unwatch(std::exchange(connection.timeout, 0));
  connection.commands = true;
  silent_.leave(account);
  commanding_.enter(account);
  return {};
}

void Connections::on_readable(Id id) {
  Connection& connection = connections_.at(id);
  const auto message = shm::receive_message(connection.socket, buffer_.all(), shm::Passing::kNone);
  if (!message) {
    if (message.error().code() == Code::kPending) return;
    return refuse(id, 0, message.error());
  }
  if (message->bytes == 0) return drop(id);
  const auto bytes = std::span<const std::byte>(buffer_.all()).first(message->bytes);
  const auto header = shm::checked_header(bytes);
  if (!header) return refuse(id, 0, header.error());
  // Such a process would have a share of its own wherever it was.
  if (!connection.client.who.is_known() && shm::has_ended(connection.client.process.pidfd))
    return refuse(id, header->serial,
                  failure(Code::kDenied, "the process ended before the daemon could see where it was"));
  if (header->kind == MessageKind::kHello && !connection.commands) return on_hello(id, bytes);
  if (const Status taken = take_commands(connection); !taken.ok()) return refuse(id, header->serial, taken);
  const auto packet = control::parse_packet(bytes, {});
  if (!packet) return refuse(id, header->serial, packet.error());
  if (packet->kind != MessageKind::kCommand)
    return refuse(id, header->serial,
                  failure(Code::kProtocol, "an answer came where a command was expected"));
  on_command(id, *packet);
}

void Connections::on_hello(Id id, std::span<const std::byte> bytes) {
  auto node = connections_.extract(id);
  Connection& connection = node.mapped();
  loop_.unwatch(connection.watch);
  loop_.unwatch(connection.timeout);
  silent_.leave(connection.client.who.account);
  events_.hello(std::move(connection.socket), std::move(connection.client), bytes);
}

void Connections::on_command(Id id, const control::Packet& packet) {
  Connection& connection = connections_.at(id);
  const std::uint32_t serial = packet.serial;
  const std::string command = command_in(packet.body);
  if (connection.questions >= kQuestionsMax) {
    const Status busy = failure(
        Code::kBusy, "{} questions of this connection wait for an answer, the limit; wait for one of them",
        kQuestionsMax);
    const Status sent =
        control::send_packet(connection.socket, MessageKind::kReply, serial, control::failed(busy));
    if (!sent.ok()) drop(id);
    return;
  }
  ++connection.questions;
  time_out_if_idle(id);
  const PendingClient& client = connection.client;
  const Caller caller{id,
                      {client.who, Identities::governs(client)},
                      client.process.gid,
                      [this, id, serial, command](const Json& body, std::span<const int> descriptors) {
                        answer(id, serial, command, body, descriptors);
                      }};
  events_.command(caller, packet.body);
}

void Connections::answer(Id id, std::uint32_t serial, const std::string& command, const Json& body,
                         std::span<const int> descriptors) {
  const auto it = connections_.find(id);
  if (it == connections_.end()) return;  // it has left
  if (const Status status = control::status_of(body); !status.ok())
    refusals_.tell(it->second.client, command, status);
  const Status sent = control::send_packet(it->second.socket, MessageKind::kReply, serial, body, descriptors);
  if (!sent.ok()) return drop(id);
  if (it->second.questions > 0) --it->second.questions;
  time_out_if_idle(id);
}

// A connection that neither owns a job nor waits for an answer may come again when it has a question.
void Connections::time_out_if_idle(Id id) {
  Connection& connection = connections_.at(id);
  loop_.unwatch(std::exchange(connection.timeout, 0));
  if (connection.questions == 0 && connection.jobs == 0)
    connection.timeout = loop_.after(idle_timeout_, [this, id] { on_idle(id); });
}

void Connections::on_idle(Id id) {
  Connection& connection = connections_.at(id);
  connection.timeout = 0;
  if (!is_readable(connection.socket)) drop(id);  // else a question has just come, and is about to be read
}

void Connections::refuse(Id id, std::uint32_t serial, const Status& why) {
  const Connection& connection = connections_.at(id);
  refusals_.tell(connection.client, "a connection", why);
  send_refusal(connection.socket, serial, why);
  drop(id);
}

void Connections::drop(Id id) {
  const auto node = connections_.extract(id);
  if (node.empty()) return;
  const Connection& connection = node.mapped();
  loop_.unwatch(connection.watch);
  loop_.unwatch(connection.timeout);
  (connection.commands ? commanding_ : silent_).leave(connection.client.who.account);
  store_.forget(owner_name(id));
  if (connection.commands) events_.left(id);
}

}  // namespace muster::supervisor
