#include "api/client/connection.hpp"

#include "api/base/fault_point.hpp"

#include <algorithm>
#include <utility>

namespace muster::client {

Connection::Connection(shm::Descriptor socket, const shm::Welcome& welcome, std::string endpoint,
                       Nanos timeout, const shm::CompletionReader& completion)
    : socket_(std::move(socket)),
      welcome_(welcome),
      endpoint_(std::move(endpoint)),
      timeout_(timeout),
      completion_(completion) {}

Status Connection::usable() const {
  return loss_.ok() ? closed() : loss_;
}

Status Connection::closed() const {
  const Code closed = completion_.closed();
  return closed == Code::kOk ? Status() : in_words(closed);
}

Status Connection::in_words(Code code) const {
  if (code != Code::kJobEnded) return Status(code, code_sentence(code));
  if (const std::string why = completion_.closed_text(); !why.empty()) return Status(code, why);
  return failure(code,
                 "job {} was ended: by `muster end`, with its daemon, as whoever started it left, or because "
                 "a restarted daemon could not take it over",
                 welcome_.job);
}

// A socket that hangs up between messages means that the engine is gone. An engine that ends its job first
// writes its reason on the completion page, where lose_engine() finds it.
std::optional<Status> Connection::engine_loss() {
  std::byte probe;
  const auto message = shm::receive_message(socket_, std::span(&probe, 1));
  const Code code = message ? Code::kOk : message.error().code();
  const bool alive = code == Code::kPending || code == Code::kNoResource;
  if (alive) return std::nullopt;
  return lose_engine("is gone");
}

std::optional<Status> Connection::loss_of_silent_engine() {
  return silence() < kLongSilence ? std::nullopt : engine_loss();
}

Status Connection::lose(const Status& status) {
  const bool gone = status.code() == Code::kDaemonLost || status.code() == Code::kWaitTimeout;
  return gone ? lose_engine("does not answer: " + status.message()) : loss_ = status;
}

Status Connection::lose_engine(const std::string& how) {
  loss_ = closed();
  if (loss_.ok()) loss_ = failure(Code::kDaemonLost, "the engine of job {} {}", welcome_.job, how);
  return loss_;
}

Result<std::span<const std::byte>> Connection::exchange(std::span<std::byte> message,
                                                        std::span<const std::byte> extra,
                                                        shm::Descriptor* descriptor, int descriptor_sent) {
  std::vector<std::byte> bytes(message.begin(), message.end());
  bytes.insert(bytes.end(), extra.begin(), extra.end());
  const auto descriptors = std::span(&descriptor_sent, descriptor_sent >= 0 ? 1 : 0);
  MUSTER_FAULT_POINT("ask.sending");
  const Status sent = shm::send_message(socket_, bytes, descriptors);
  // A message that was not sent has changed nothing.
  if (!sent.ok()) return fail(sent.code() == Code::kDaemonLost ? lose(sent) : sent);
  MUSTER_FAULT_POINT("ask.sent");
  auto answer = shm::receive_message(socket_, answer_.all(), later(clock_.now(), timeout_), clock_);
  // The answer came, but this process had no free descriptor for it. The connection still works.
  if (!answer && answer.error().code() == Code::kNoResource) return fail(answer.error());
  if (!answer) return fail(lose(answer.error()));
  if (answer->bytes == 0) return fail(lose(Status(Code::kDaemonLost, "it closed the connection")));
  MUSTER_FAULT_POINT("ask.answered");
  if (descriptor != nullptr && !answer->descriptors.empty()) *descriptor = std::move(answer->descriptors[0]);
  return std::span<const std::byte>(answer_.all()).first(answer->bytes);
}

void Connection::say_goodbye() {
  constexpr Nanos kGoodbyeTime = std::chrono::seconds(1);
  timeout_ = std::min(timeout_, kGoodbyeTime);
  MUSTER_FAULT_POINT("goodbye.saying");
  static_cast<void>(ask<shm::Plain>(shm::Plain{}, shm::MessageKind::kGoodbye, shm::MessageKind::kDone));
  MUSTER_FAULT_POINT("goodbye.said");
}

}  // namespace muster::client
