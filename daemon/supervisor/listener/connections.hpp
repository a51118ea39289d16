// Connections: clients that have connected and were not handed over to an engine.
//
// A fresh connection is silent until its first message. A Hello comes from a rank: Connections passes on its
// socket and forgets it. A command comes from a command line, which may stay. A connection that owns jobs is
// kept for a successor, and its jobs end with it.
#pragma once

#include "daemon/control/loop.hpp"
#include "daemon/control/packet.hpp"
#include "daemon/supervisor/base/descriptor_store.hpp"
#include "daemon/supervisor/base/shares.hpp"
#include "daemon/supervisor/listener/identities.hpp"
#include "daemon/supervisor/listener/refusals.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>

namespace muster::supervisor {

// The time that engines and other nodes may take for the command: its `wait_ns`, but `most` at most.
Nanos timeout_in(const control::Json& command, Nanos most);

// Owns    the sockets.
// Thread  the supervisor's loop.
// Bound   kSilent silent connections, each for kHandshakeTime: a new one replaces the oldest of the account
//         that has most. kCommands connections that have sent a command; one more is refused. Each of these
//         may have kQuestionsMax unanswered commands; idle_timeout ends one that neither asks nor owns a job.
// Fails   never. A bad message ends its connection.
class Connections {
 public:
  using Id = std::uint64_t;  // 0: none
  // A command line that has sent a command.
  struct Caller {
    Id id = 0;
    control::Actor actor;
    std::uint32_t gid = 0;
    // Answers the command, with descriptors that stay the caller's. A client that has left gets nothing.
    std::function<void(control::Json, std::span<const int>)> reply;
  };
  static constexpr Shares::Limits kSilent = Shares::limits_of(64, 32);
  static constexpr Shares::Limits kCommands = Shares::limits_of(128, 32);
  static constexpr std::size_t kQuestionsMax = 64;
  static constexpr Nanos kHandshakeTime = std::chrono::seconds(5);

  struct Events {
    std::function<void(shm::Descriptor, PendingClient, std::span<const std::byte>)> hello;
    std::function<void(const Caller&, const control::Json& body)> command;
    std::function<void(Id)> left;  // one that owns jobs, or did
  };
  Connections(control::Loop& loop, DescriptorStore& store, Refusals& refusals, Nanos idle_timeout,
              Events events);

  // A fresh connection.
  void take(shm::Descriptor socket, PendingClient client);
  // Takes over a predecessor's connection that owns `jobs` jobs. It is told which of its commands it must ask
  // again. It governs no more, whatever door it came by.
  void adopt(Id id, shm::Descriptor socket, PendingClient client, std::size_t jobs);
  bool contains(Id id) const { return connections_.contains(id); }
  // The connection owns one job more, or less. Nothing happens if it has left.
  void own(Id id);
  void disown(Id id);

 private:
  struct Connection {
    shm::Descriptor socket;
    PendingClient client;
    control::Loop::Watch watch = 0;
    control::Loop::Watch timeout = 0;
    bool commands = false;      // it has sent a command
    std::size_t questions = 0;  // not answered yet
    std::size_t jobs = 0;       // that end with it
  };
  void make_room(const Account& account);
  Status take_commands(Connection& connection);
  void on_readable(Id id);
  void on_hello(Id id, std::span<const std::byte> bytes);
  void on_command(Id id, const control::Packet& packet);
  void answer(Id id, std::uint32_t serial, const std::string& command, const control::Json& body,
              std::span<const int> descriptors);
  void time_out_if_idle(Id id);
  void on_idle(Id id);
  void refuse(Id id, std::uint32_t serial, const Status& why);
  void drop(Id id);

  control::Loop& loop_;
  DescriptorStore& store_;
  Refusals& refusals_;
  Nanos idle_timeout_;
  Events events_;
  std::map<Id, Connection> connections_;
  Id next_ = 1;
  Shares silent_;
  Shares commanding_;
  shm::MessageBuffer buffer_;
};

}  // namespace muster::supervisor
