// Connection: the session's side of the control socket, and whether the engine still lives.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "api/shm/completion.hpp"
#include "api/shm/control.hpp"
#include "api/shm/message.hpp"
#include "api/shm/socket.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::client {

// Owns    the socket, the latest answer, the session's clock, and the loss of the engine.
// Thread  the session's.
// Bound   one request in flight, of at most shm::kMessageBytesMax bytes; waits timeout() for its answer.
// Fails   with the Status that the engine answers. DAEMON_LOST, PROTOCOL and VERSION end the connection for
//         good: loss() says why, and no later call succeeds.
class Connection {
 public:
  static constexpr Nanos kLongSilence = std::chrono::seconds(1);

  // `completion` outlives it.
  Connection(shm::Descriptor socket, const shm::Welcome& welcome, std::string endpoint, Nanos timeout,
             const shm::CompletionReader& completion);

  const shm::Welcome& welcome() const { return welcome_; }
  const std::string& endpoint() const { return endpoint_; }  // of the daemon
  Nanos timeout() const { return timeout_; }
  const Clock& clock() const { return clock_; }

  // Sends one request and waits for its answer. `extra` follows the request; the descriptor `sent` goes with
  // it unless it is -1. The list behind the answer goes to *list, its descriptor to *descriptor.
  template<class Answer, class Request>
  Result<Answer> ask(Request request, shm::MessageKind kind, shm::MessageKind answer_kind,
                     std::span<const std::byte> extra = {}, std::vector<std::byte>* list = nullptr,
                     shm::Descriptor* descriptor = nullptr, int sent = -1);
  // The same for a request whose answer says only that it is done.
  template<class Request>
  Status tell(const Request& request, shm::MessageKind kind) {
    const auto answer = ask<shm::Plain>(request, kind, shm::MessageKind::kDone);
    return answer ? Status() : answer.error();
  }
  // The latest answer again. Use it when ask() failed with NO_RESOURCE: an answer has come, but this process
  // had no free descriptor for the one that came with it.
  template<class Answer>
  Result<Answer> latest_answer(shm::MessageKind answer_kind) const;
  // Tells the engine that the rank leaves on purpose. Waits at most 1 s for an engine that hangs.
  void say_goodbye();

  // Why no call can succeed any more: the loss, or the status with which the engine closed the session.
  Status usable() const;
  // Whether usable() is ok, without a text.
  bool is_usable() const { return loss_.ok() && completion_.closed() == Code::kOk; }
  const Status& loss() const { return loss_; }
  bool engine_lives() { return !engine_loss(); }
  // Looks at the socket, with one system call, whether the engine is gone. Remembers the loss.
  std::optional<Status> engine_loss();
  // As engine_loss(), but looks only if the engine has not moved for kLongSilence: for callers that poll.
  std::optional<Status> loss_of_silent_engine();
  // Time since the engine last moved.
  Nanos silence() const { return completion_.silence(clock_.now()); }

  // A status for a code without a text of its own.
  Status in_words(Code code) const;

 private:
  Result<std::span<const std::byte>> exchange(std::span<std::byte> message, std::span<const std::byte> extra,
                                              shm::Descriptor* descriptor, int sent);
  Status closed() const;
  Status lose(const Status& status);
  Status lose_engine(const std::string& how);

  shm::Descriptor socket_;
  shm::Welcome welcome_;
  std::string endpoint_;
  Nanos timeout_;
  SteadyClock clock_;
  const shm::CompletionReader& completion_;
  shm::MessageBuffer answer_;
  std::uint32_t serial_ = 0;
  Status loss_;
};

template<class Answer, class Request>
Result<Answer> Connection::ask(Request request, shm::MessageKind kind, shm::MessageKind answer_kind,
                               std::span<const std::byte> extra, std::vector<std::byte>* list,
                               shm::Descriptor* descriptor, int sent) {
  request.header = shm::make_message<shm::Plain>(kind, ++serial_).header;
  request.header.bytes = static_cast<std::uint32_t>(sizeof request + extra.size());
  MUSTER_ASSIGN_OR_RETURN(const auto bytes,
                          exchange(std::as_writable_bytes(std::span(&request, 1)), extra, descriptor, sent));
  auto answer = shm::checked_answer<Answer>(bytes, answer_kind, serial_,
                                            list != nullptr ? shm::Tail::kAllowed : shm::Tail::kNone);
  if (!answer) {
    const Code code = answer.error().code();
    const bool broken = code == Code::kProtocol || code == Code::kVersion;
    return fail(broken ? lose(answer.error()) : answer.error());
  }
  if (list != nullptr) {
    const auto tail = shm::tail_of<Answer>(bytes);
    list->assign(tail.begin(), tail.end());
  }
  return answer;
}

template<class Answer>
Result<Answer> Connection::latest_answer(shm::MessageKind answer_kind) const {
  return shm::checked_answer<Answer>(answer_.all().first(sizeof(Answer)), answer_kind, serial_);
}

}  // namespace muster::client
