#include "daemon/cli/channel.hpp"

namespace muster::cli {

Result<std::unique_ptr<Channel>> Channel::open(control::Loop& loop, const Door& door,
                                               std::function<void()> on_lost) {
  const SteadyClock clock;
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor socket,
                          shm::connect_to(door.endpoint, clock.now() + door.timeout, clock));
  return std::unique_ptr<Channel>(new Channel(loop, door, std::move(socket), std::move(on_lost)));
}

Channel::Channel(control::Loop& loop, const Door& door, shm::Descriptor socket, std::function<void()> on_lost)
    : loop_(loop), door_(door), socket_(std::move(socket)), on_lost_(std::move(on_lost)) {
  watch_ = loop_.watch(socket_.get(), [this] { on_readable(); });
}

Channel::~Channel() {
  loop_.unwatch(watch_);
  for (const auto& [serial, open] : open_) loop_.unwatch(open.timer);
}

void Channel::ask(const Json& command, Answered answered) {
  const std::uint32_t serial = ++serial_;
  const auto timer = loop_.after(door_.timeout, [this, serial] {
    settle(serial, tl::unexpected(Trouble{
                       kTimedOut, "the daemon did not answer in time; --timeout sets how long to wait"}));
  });
  open_.emplace(serial, Open{std::move(answered), timer});
  const Status sent = control::send_packet(socket_, shm::MessageKind::kCommand, serial, command);
  // Of a daemon that has turned us away already the reason is there to be read: on_readable() tells it.
  if (!sent.ok() && sent.code() != Code::kDaemonLost) settle(serial, troubled(sent));
}

void Channel::on_readable() {
  auto packet = control::receive_packet(socket_);
  if (packet) {
    const std::uint32_t serial = packet->serial;
    return settle(serial, answer_of(std::move(packet)));
  }
  if (packet.error().code() == Code::kPending) return;
  loop_.unwatch(watch_);
  const auto on_lost = std::move(on_lost_);
  std::vector<std::uint32_t> serials;
  for (const auto& [serial, open] : open_) serials.push_back(serial);
  // An answer may destroy this channel; what comes after must not look at it.
  std::vector<Answered> waiting;
  for (const std::uint32_t serial : serials) {
    loop_.unwatch(open_.at(serial).timer);
    waiting.push_back(std::move(open_.at(serial).answered));
  }
  open_.clear();
  // A refusal in place of an answer says more than that the connection is over.
  const Trouble trouble = packet.error().code() == Code::kDaemonLost
                              ? Trouble{kUnreachable, "the daemon has gone away"}
                              : trouble_of(packet.error());
  for (const Answered& answered : waiting) answered(tl::unexpected(trouble));
  on_lost();
}

void Channel::settle(std::uint32_t serial, Outcome<Answer> outcome) {
  const auto it = open_.find(serial);
  if (it == open_.end()) return;  // it came too late
  loop_.unwatch(it->second.timer);
  const Answered answered = std::move(it->second.answered);
  open_.erase(it);
  answered(std::move(outcome));
}

}  // namespace muster::cli
