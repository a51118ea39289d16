// Conductor: the engine's slow thread. Control messages, births, deaths, timers; never a byte of payload.
#pragma once

#include "api/shm/control.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/control/packet.hpp"
#include "daemon/engine/engine.hpp"
#include "daemon/engine/watchdog.hpp"

#include <cstddef>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

namespace muster::engine {

// Owns    the loop, the supervisor's channel, a socket and a pidfd per client, and the engine.
// Thread  run()'s, alone.
// Bound   one client per rank; one message of each per turn of the loop.
// Fails   a client that breaks the protocol loses its session, nothing else. Without supervisor the engine
//         goes on, and ends with its last client.
class Conductor {
 public:
  // `channel` is the socket to the supervisor.
  Conductor(shm::Descriptor channel, const Clock& clock);
  ~Conductor();
  // Until the supervisor says stop, the job fails, or neither supervisor nor client is left. The process's
  // exit code.
  int run();

 private:
  struct Client {
    shm::Descriptor socket;
    shm::Descriptor pidfd;
    std::int32_t pid = 0;
    Session* session = nullptr;
    control::Loop::Watch socket_watch = 0;
    control::Loop::Watch death_watch = 0;
    bool said_goodbye = false;
  };

  void on_supervisor();
  void tell(control::Packet packet);
  bool tell_now(const control::Packet& packet);
  void tell_rest();
  control::Json answer_to(control::Packet& packet);
  control::Json execute(control::Packet& packet);
  control::Json create(const control::Packet& packet);
  control::Json attach(control::Packet& packet);
  control::Json report();
  control::Json counters();
  control::Json groups() const;
  control::Json trace_begin(const control::Json& body);
  control::Json trace_end(const control::Json& body);
  control::Json flight();
  control::Json with_text(const std::string& json);
  control::Json absent(const control::Json& body);
  control::Json stop(const control::Json& body);

  void on_client(Rank rank);
  void await_death(Rank rank);
  void on_death(Rank rank);
  void depart(Rank rank, bool lost, const std::string& text);
  void on_timer();
  void end_if_alone();

  control::Loop loop_;
  const Clock& clock_;
  shm::Descriptor channel_;
  control::Loop::Watch channel_watch_ = 0;
  std::unique_ptr<Engine> engine_;
  std::optional<Watchdog> watchdog_;  // of its lock: ends before it
  std::map<Rank, Client> clients_;
  std::vector<std::byte> buffer_;
  shm::Descriptor reply_descriptor_;    // of the answer being made
  std::deque<control::Packet> untold_;  // to a supervisor that does not read: while some are, it is not read
  bool ending_ = false;
  int exit_code_ = 0;
};

// One request of a client: reads the message, does it, builds the answer. Apart from the conductor, so that a
// test or a fuzzer can drive it with bytes. `goodbye` is set when the client takes its leave.
struct Answer {
  std::vector<std::byte> bytes;
  int descriptor = -1;  // borrowed, or
  shm::Descriptor own;  // owned by the answer
  bool goodbye = false;
};
// kProtocol: the message is not one; the session ends. Any other failure is an Answer to the client.
Result<Answer> serve(Engine& engine, Session& session, std::span<const std::byte> message,
                     int descriptor = -1);
// The same for requests of the direct path.
Result<Answer> serve_direct(Engine& engine, Session& session, shm::MessageKind kind,
                            std::span<const std::byte> message);

}  // namespace muster::engine
