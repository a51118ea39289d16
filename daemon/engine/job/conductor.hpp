// Conductor: the engine's slow thread, for control messages, births, deaths and timers. It moves no payload.
#pragma once

#include "api/shm/control.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/control/packet.hpp"
#include "daemon/engine/job/engine.hpp"
#include "daemon/engine/job/engine_commands.hpp"
#include "daemon/engine/job/engine_cores.hpp"
#include "daemon/engine/job/supervisor_channel.hpp"
#include "daemon/engine/job/watchdog.hpp"
#include "daemon/engine/memory/memory_waits.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace muster::engine {

// Owns    the loop, the supervisor's channel, a socket and a pidfd per client, and the engine.
// Thread  run()'s, alone.
// Bound   one client per rank; one message of each client per turn of the loop.
// Fails   a client that breaks the protocol loses its session, nothing else. If the supervisor is gone, the
//         engine goes on until its last client has left.
class Conductor {
 public:
  // `channel` is the socket to the supervisor.
  Conductor(shm::Descriptor channel, const Clock& clock);
  ~Conductor();
  // Runs until the supervisor says stop, the job fails, or neither supervisor nor client is left. Returns the
  // process's exit code.
  int run();

 private:
  struct Client {
    shm::Descriptor socket;
    shm::Descriptor pidfd;
    std::int32_t pid = 0;
    Nanos patience{0};  // of each of its calls
    Session* session = nullptr;
    control::Loop::Watch socket_watch = 0;
    control::Loop::Watch death_watch = 0;
    bool said_goodbye = false;
  };

  void on_supervisor();
  void answer(control::Packet packet);
  control::Json answer_to(control::Packet& packet);
  control::Json execute(control::Packet& packet);
  control::Json create(control::Packet& packet);
  bool wait_for_memory(control::Packet& packet);
  control::Json attach(control::Packet& packet);
  control::Json stop(const control::Json& body);

  void on_client(Rank rank);
  struct Request;
  void serve_client(Request request, MemoryWaits::Try which);
  void await_death(Rank rank);
  void on_death(Rank rank);
  void depart(Rank rank, bool lost, const std::string& text);
  void on_timer();
  void agree();
  void attach_waiting(bool all);
  void end_if_alone();

  control::Loop loop_;
  const Clock& clock_;
  SupervisorChannel channel_;
  std::shared_ptr<MemoryAccount> account_;  // of the job's owner; nullptr: memory is not counted
  MemoryWaits memory_waits_;
  std::shared_ptr<control::Packet> creating_;  // the command that makes the job, while it waits for memory
  Instant create_until_{0};                    // so long
  std::unique_ptr<Engine> engine_;
  std::optional<EngineCommands> commands_;
  std::optional<EngineCores> cores_;
  std::optional<Watchdog> watchdog_;  // watches the engine's lock, so it ends before the engine
  std::map<Rank, Client> clients_;
  shm::MessageBuffer buffer_;
  // `attach` commands that are answered once their question to other nodes is over.
  std::deque<std::pair<std::uint64_t, control::Packet>> attaching_;
  control::Loop::Watch agrees_ = 0;
  Instant alive_at_{0};       // when this node last sent a sign of life to the others
  bool lost_before_ = false;  // a rank was lost, and none has attached since
  bool ending_ = false;
  int exit_code_ = 0;
};

// The answer to one request of a client. It is separate from the conductor, so that a test or a fuzzer can
// drive serve() with bytes. `goodbye`: the client takes its leave.
struct Answer {
  std::vector<std::byte> bytes;
  int descriptor = -1;  // borrowed, or
  shm::Descriptor own;  // owned by the answer
  bool goodbye = false;
};
// kProtocol: the message is malformed; the session ends. Any other failure is an Answer to the client.
Result<Answer> serve(Engine& engine, Session& session, std::span<const std::byte> message,
                     int descriptor = -1);
// serve() for requests of the direct path.
Result<Answer> serve_direct(Engine& engine, Session& session, shm::MessageKind kind,
                            std::span<const std::byte> message);

}  // namespace muster::engine
