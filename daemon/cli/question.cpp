#include "daemon/cli/question.hpp"

namespace muster::cli {

Trouble unreachable(const Status& status) {
  if (status.code() == Code::kDaemonLost || status.code() == Code::kDenied)
    return {kUnreachable, status.message()};
  return trouble_of(status);
}

Outcome<Answer> answer_of(Result<control::Packet> packet) {
  if (!packet) return troubled(packet.error());
  auto result = control::result_of(*packet);
  if (!result) return troubled(result.error());
  return Answer{*std::move(result), std::move(packet->descriptors)};
}

Outcome<Answer> ask(const Door& door, const Json& command) {
  const SteadyClock clock;
  const Instant deadline = clock.now() + door.timeout;
  const auto socket = shm::connect_to(door.endpoint, deadline, clock);
  if (!socket) return tl::unexpected(unreachable(socket.error()));
  const Status sent = control::send_packet(*socket, shm::MessageKind::kCommand, 1, command);
  if (!sent.ok()) return troubled(sent);
  auto packet = control::receive_packet(*socket, deadline, clock);
  if (!packet && packet.error().code() == Code::kWaitTimeout)
    return tl::unexpected(
        Trouble{kTimedOut, fmt::format("the daemon at {} did not answer within {:.1f} s; --timeout sets "
                                       "how long to wait",
                                       door.endpoint, std::chrono::duration<double>(door.timeout).count())});
  return answer_of(std::move(packet));
}

}  // namespace muster::cli
