// Connection: the session's end of the control socket, and whether the engine at the other end still lives.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "api/shm/completion.hpp"
#include "api/shm/control.hpp"
#include "api/shm/message.hpp"
#include "api/shm/socket.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace muster::client {

// Owns    the socket, the latest answer, the session's clock, and the loss of the engine.
// Thread  the session's.
// Bound   one request in flight, of shm::kMessageBytesMax bytes; an answer is awaited for timeout().
// Fails   with the Status that the engine answers. DAEMON_LOST, PROTOCOL and VERSION end the connection for
//         good: loss() says why, and no later call succeeds.
class Connection {
 public:
  static constexpr Nanos kLongSilence = std::chrono::seconds(1);

  // `completion` outlives it.
  Connection(shm::Descriptor socket, const shm::Welcome& welcome, Nanos timeout,
             const shm::CompletionReader& completion);

  const shm::Welcome& welcome() const { return welcome_; }
  Nanos timeout() const { return timeout_; }
  const Clock& clock() const { return clock_; }

  // One request and its answer. `extra` follows the message. The list behind the answer goes to *list, its
  // descriptor to *descriptor; `sent` goes with the request unless it is -1.
  template<class Answer, class Request>
  Result<Answer> ask(Request request, shm::MessageKind kind, shm::MessageKind answer_kind,
                     std::span<const std::byte> extra = {}, std::vector<std::byte>* list = nullptr,
                     shm::Descriptor* descriptor = nullptr, int sent = -1);
  // The answer to the latest request, once more: ask() fails with NO_RESOURCE when an answer has come but
  // this process had no room for its descriptor.
  template<class Answer>
  Result<Answer> latest_answer(shm::MessageKind answer_kind) const;
  // Tells the engine that the rank leaves on purpose. An engine that hangs delays it by 1 s at most.
  void say_goodbye();

  // Why no call can succeed any more: the loss, or the status with which the engine closed the session.
  Status usable() const;
  // The same for who only asks whether.
  bool is_usable() const { return loss_.ok() && completion_.closed() == Code::kOk; }
  const Status& loss() const { return loss_; }
  bool engine_lives() { return !engine_loss(); }
  // Looks at the socket, with one system call. The loss is kept.
  std::optional<Status> engine_loss();
  // The same, but only if the engine has not moved for kLongSilence: for callers that poll.
  std::optional<Status> loss_of_silent_engine();
  // For how long the engine has not moved.
  Nanos silence() const { return completion_.silence(clock_.now()); }

  // A code of this session, for which the engine has sent no text.
  Status in_words(Code code) const;

 private:
  Result<std::span<const std::byte>> exchange(std::span<std::byte> message, std::span<const std::byte> extra,
                                              shm::Descriptor* descriptor, int sent);
  Status closed() const;
  Status lose(const Status& status);
  Status lose_engine(const std::string& how);

  shm::Descriptor socket_;
  shm::Welcome welcome_;
  Nanos timeout_;
  SteadyClock clock_;
  const shm::CompletionReader& completion_;
  std::vector<std::byte> answer_;
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
  return shm::checked_answer<Answer>(std::span(answer_).first(sizeof(Answer)), answer_kind, serial_);
}

}  // namespace muster::client
