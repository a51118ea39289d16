// EngineProcess: one muster-engine as its supervisor sees it: a process, a channel, and unanswered questions.
// The process is a child of this process, or of a predecessor.
#pragma once

#include "api/shm/descriptor.hpp"
#include "daemon/control/loop.hpp"
#include "daemon/control/packet.hpp"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>

namespace muster::supervisor {

// Owns    the process, its channel and pidfd. Destruction ends the process (SIGKILL) if it still runs.
// Thread  the supervisor's loop.
// Bound   the channel's queue, and kQuestionsMax unanswered questions; a question that finds either full
//         fails at once (kBusy). Packets of the engine: kOfEngines.
// Fails   spawn: kNoResource, kNotFound (no such program). A question: the engine's own failure, or
//         kDaemonLost if the engine ends first.
class EngineProcess {
 public:
  static constexpr std::size_t kQuestionsMax = 4096;

  using Answered = std::function<void(Result<control::Packet>)>;
  using Event = std::function<void(const control::Json&)>;
  using Ended = std::function<void(const std::string& how)>;

  // As whom an engine runs; matters only if this process is root. Any user but root has no capability.
  struct User {
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
  };
  struct Options {
    std::string program;
    User user;
    // The first serial of questions. It differs from a predecessor's, whose answers may still come.
    std::uint32_t first_serial = 0;
    Event on_event;
    Ended on_end;
  };
  static Result<std::unique_ptr<EngineProcess>> spawn(control::Loop& loop, Options options);
  // Takes over a running engine. `pid` is for messages only; signals go to its pidfd. An engine without a
  // channel can only be ended.
  static std::unique_ptr<EngineProcess> adopt(control::Loop& loop, Options options, std::int32_t pid,
                                              shm::Descriptor channel, shm::Descriptor pidfd);
  ~EngineProcess();
  EngineProcess(const EngineProcess&) = delete;
  EngineProcess& operator=(const EngineProcess&) = delete;

  void ask(const control::Json& command, std::span<const int> descriptors, Answered answered);
  // Asks the engine to end its sessions with that reason, and itself.
  void stop(const std::string& why, Code code = Code::kJobEnded);
  // SIGKILL, for an engine that does not end by itself. Without a valid pidfd, on_end is called soon.
  void kill();
  std::int32_t pid() const { return pid_; }
  const shm::Descriptor& channel() const { return channel_; }
  const shm::Descriptor& pidfd() const { return pidfd_; }

 private:
  EngineProcess(control::Loop& loop, Options options, std::int32_t pid, shm::Descriptor channel,
                shm::Descriptor pidfd);
  // Reads one packet and passes it on. Returns the channel's status if there is no packet.
  Status receive_one();
  void hear(control::Packet packet);
  void on_readable();
  void on_death();
  int send_signal(int number) const;  // 0 or errno
  void end_if_no_process(int error);
  void abandon(const Status& status);

  control::Loop& loop_;
  Options options_;
  std::int32_t pid_;
  shm::Descriptor channel_;
  shm::Descriptor pidfd_;
  control::Loop::Watch channel_watch_ = 0;
  control::Loop::Watch death_watch_ = 0;
  control::Loop::Watch stop_again_ = 0;
  control::Loop::Watch no_process_ = 0;  // calls on_end soon, because there is no pidfd to wait for
  std::map<std::uint32_t, Answered> pending_;
  std::uint32_t serial_;
  bool ended_ = false;
};

}  // namespace muster::supervisor
