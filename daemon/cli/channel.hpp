// Channel: a lasting connection to the daemon on an event loop. Questions do not block.
#pragma once

#include "daemon/cli/question.hpp"
#include "daemon/control/loop.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>

namespace muster::cli {

// Owns    its socket and the questions not answered yet.
// Thread  the loop's.
// Bound   the questions asked.
// Fails   open: as connect_to(). A question without an answer in time ends with kTimedOut, one whose daemon
//         goes away with kUnreachable; `on_lost` is called then, once.
class Channel {
 public:
  using Answered = std::function<void(Outcome<Answer>)>;

  static Result<std::unique_ptr<Channel>> open(control::Loop& loop, const Door& door,
                                               std::function<void()> on_lost);
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  void ask(const Json& command, Answered answered);

 private:
  struct Open {
    Answered answered;
    control::Loop::Watch timer = 0;
  };

  Channel(control::Loop& loop, const Door& door, shm::Descriptor socket, std::function<void()> on_lost);
  void on_readable();
  void settle(std::uint32_t serial, Outcome<Answer> outcome);

  control::Loop& loop_;
  Door door_;
  shm::Descriptor socket_;
  std::function<void()> on_lost_;
  control::Loop::Watch watch_ = 0;
  std::map<std::uint32_t, Open> open_;
  std::uint32_t serial_ = 0;
};

}  // namespace muster::cli
