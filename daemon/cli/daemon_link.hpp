// DaemonLink: a lasting connection to the daemon on an event loop. Questions do not block. It survives a
// restart of the daemon: the new daemon takes over a connection that owns a job; any other is made anew.
#pragma once

#include "daemon/cli/question.hpp"
#include "daemon/control/loop.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>

namespace muster::cli {

// Owns    its socket and the questions not answered yet.
// Thread  the loop's.
// Bound   the questions asked.
// Fails   open: as connect_to(). A question without an answer in time ends with kTimedOut; if the daemon goes
//         away for good, with kUnreachable, and `on_lost` is called once. A question that must not be
//         repeated ends with kFailed if a restarted daemon may have carried it out.
class DaemonLink {
 public:
  using Answered = std::function<void(OrTrouble<DaemonAnswer>)>;

  static Result<std::unique_ptr<DaemonLink>> open(control::Loop& loop, const DaemonAddress& address,
                                                  std::function<void()> on_lost);
  ~DaemonLink();
  DaemonLink(const DaemonLink&) = delete;
  DaemonLink& operator=(const DaemonLink&) = delete;

  void ask(const Json& command, Answered answered);
  const std::string& endpoint() const { return address_.endpoint; }

 private:
  struct Open {
    Json command;
    Answered answered;
    control::Loop::Watch timer = 0;
    bool sent = false;
  };

  DaemonLink(control::Loop& loop, const DaemonAddress& address, shm::Descriptor socket,
             std::function<void()> on_lost);
  void listen();
  void on_readable();
  void on_adopted(const Json& event);
  void reconnect(const Status& why);
  void lose(const Status& why);
  Status send(std::uint32_t serial);
  template<class May>
  void repeat(std::uint32_t end, May&& may);
  void conclude(std::uint32_t serial, OrTrouble<DaemonAnswer> outcome);

  control::Loop& loop_;
  DaemonAddress address_;
  shm::Descriptor socket_;
  std::function<void()> on_lost_;
  control::Loop::Watch watch_ = 0;
  std::map<std::uint32_t, Open> open_;
  int connects_ = 0;  // since the last answer
  std::uint32_t serial_ = 0;
};

}  // namespace muster::cli
