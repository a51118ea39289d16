#include "daemon/engine/job/supervisor_channel.hpp"

#include "api/base/log.hpp"

#include <span>
#include <utility>

namespace muster::engine {

void SupervisorChannel::listen(std::function<void()> on_readable) {
  on_readable_ = std::move(on_readable);
  watch();
}

void SupervisorChannel::watch() {
  watch_ = loop_.watch(socket_.get(), [this] { on_readable_(); });
}

void SupervisorChannel::close() {
  loop_.unwatch(std::exchange(watch_, 0));
  socket_.reset();
}

void SupervisorChannel::tell(control::Packet packet) {
  if (!is_open() || (untold_.empty() && tell_at_once(packet).code() != Code::kBusy)) return;
  untold_.push_back(std::move(packet));
  loop_.unwatch(std::exchange(watch_, 0));
}

Status SupervisorChannel::tell_at_once(const control::Packet& packet) {
  const int descriptor = packet.descriptors.empty() ? -1 : packet.descriptors.front().get();
  const Status sent = control::send_packet(socket_, packet.kind, packet.serial, packet.body,
                                           std::span(&descriptor, descriptor >= 0 ? 1 : 0));
  if (!sent.ok() && sent.code() != Code::kBusy)
    MUSTER_LOG(kWarning, "engine", "word to the supervisor: {}", sent.text());
  return sent;
}

void SupervisorChannel::tell_rest() {
  if (untold_.empty()) return;
  while (!untold_.empty() && tell_at_once(untold_.front()).code() != Code::kBusy) untold_.pop_front();
  if (untold_.empty()) watch();
}

}  // namespace muster::engine
