// EngineLink: the link between this node's engine of a job and that of one other node, once the part runs:
// its state, its attempts to connect, and their timer.
//
// The first node of a pair, in the job's order, asks. It sends `join`, with its engine's address and the
// generation of the last connection between the two. The other answers `here`, with its address and a new
// generation, and both engines connect. If the second node finds itself disconnected, it sends `apart`, and
// the first one asks. link_machine.hpp has a table for each of the two.
#pragma once

#include "api/base/clock.hpp"
#include "daemon/control/engine_address.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/supervisor/spanning/link_machine.hpp"

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

namespace muster::supervisor {

// Owns    the state of the link, the last call of the other node, a timer.
// Thread  the supervisor's loop.
// Bound   one attempt at a time.
// Fails   never: an attempt that fails is made again, and why() says why. An event for which the state has no
//         cell is refused, and changes nothing.
class EngineLink {
 public:
  using State = LinkMachine::State;
  using Event = LinkMachine::Event;
  // Attempts that fail are made again after so long, and each time after twice as long.
  static constexpr Nanos kFirstRetry = std::chrono::milliseconds(250);
  static constexpr Nanos kLastRetry = std::chrono::seconds(2);
  // For the other node's answer: it may have to start its engine.
  static constexpr Nanos kAnswerTime = std::chrono::seconds(15);

  struct Ends {
    std::string job;
    std::string node;   // the other one
    NodeIndex index;    // its
    bool asks = false;  // this node is the first of the two
  };
  // The engine's report on its network, and on its connection with the other node.
  struct Network {
    control::EngineAddress address;
    std::uint32_t generation = 0;
    bool connected = false;
    std::string why;  // it is not connected
    Nanos heard{0};   // so long ago the other engine has been heard
  };
  // How the engine is to take the loss of the node.
  enum class Fate : std::uint8_t { kDisconnected, kSilent, kDead };

  // The surroundings of a link, which gives itself as an argument. Callbacks may be called at once.
  //
  // Owns    nothing.
  // Thread  that of the link.
  // Bound   -
  // Fails   never; the answers do.
  class World {
   public:
    virtual ~World() = default;
    // The other node can be asked now, or asked to ask.
    virtual bool may_try(const EngineLink& link) const = 0;
    // `address`: nullptr: the message has neither address nor generation.
    virtual void send(const EngineLink& link, const char* step, const control::EngineAddress* address,
                      std::uint32_t generation) = 0;
    using Answered = std::function<void(const Result<Network>&)>;
    virtual void ask_engine(const EngineLink& link, Answered answered) = 0;
    virtual void connect(const EngineLink& link, const control::EngineCall& call,
                         std::function<void(const Status&)> answered) = 0;
    virtual void tell_lost(const EngineLink& link, const Status& why, Fate fate) = 0;
    virtual control::Loop::Watch after(Nanos delay, std::function<void()> callback) = 0;
    virtual void unwatch(control::Loop::Watch watch) = 0;
    // The state of the link may have changed.
    virtual void changed() = 0;
    // The table has no cell for an event.
    virtual void refused(const EngineLink& link, const Status& why) = 0;
  };

  // The data of an event.
  struct Facts {
    std::optional<std::uint64_t> epoch{};  // of the other node's part, as it has reported; 0: it has none
    Status why{};
    Fate fate = Fate::kDisconnected;
    const control::EngineCall* call = nullptr;  // `join`, `here`
    const Network* network = nullptr;           // the engine's answer
  };

  // `world` and `table` outlive this object.
  EngineLink(World& world, Ends ends, const LinkMachine::Table& table);
  ~EngineLink() { world_.unwatch(timer_); }
  EngineLink(const EngineLink&) = delete;
  EngineLink& operator=(const EngineLink&) = delete;

  const Ends& ends() const { return ends_; }
  // The epoch of the other node's part, as it last reported; 0: it has none.
  std::uint64_t epoch() const { return epoch_; }
  // The number of the connection, or of the attempt.
  std::uint32_t generation() const { return generation_; }
  bool is_connected() const { return machine_.is({State::kConnected, State::kAdopted}); }
  // It is disconnected, and an attempt since the node was last up or connected has failed.
  bool has_failed() const { return is_apart(machine_.state()) && failures_ > 0; }
  const Status& why() const { return why_; }

  void take(Event event, const Facts& facts);
  void take(Event event) { take(event, {}); }

 private:
  static constexpr bool is_apart(State state) {
    return state == State::kResting || state == State::kPausing || state == State::kPrompting;
  }
  void enter(State state);
  void act(LinkMachine::Action action, const Facts& facts, State before);
  void attempt();
  void ask_engine();
  void inquire();
  void connect();
  void report();
  void note_failure(const Status& why, State before);

  World& world_;
  const Ends ends_;
  StateMachine<LinkMachine> machine_;
  std::uint64_t epoch_ = 0;
  std::uint32_t generation_ = 0;
  std::uint32_t failures_ = 0;  // attempts since it was last up or connected
  Status why_;                  // it is disconnected
  control::EngineCall call_;    // of the other node: called, yielding, answering, connecting
  std::uint64_t round_ = 0;     // counts states: an answer to an earlier question is out of date
  control::Loop::Watch timer_ = 0;
};

}  // namespace muster::supervisor
