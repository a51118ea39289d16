#include "daemon/supervisor/takeover/orphaned_engines.hpp"

#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr Nanos kAskOrphansAgain = std::chrono::milliseconds(20);

}  // namespace

std::size_t OrphanedEngines::take(shm::Descriptor channel, shm::Descriptor pidfd,
                                  std::uint32_t first_serial) {
  const std::size_t index = engines_.size();
  EngineProcess::Options options;
  options.first_serial = first_serial;
  options.on_event = [](const Json&) {};
  // Posted, because the engine's own callback is still on the stack.
  options.on_end = [this, index](const std::string&) {
    loop_.post([this, index] { engines_[index].reset(); });
  };
  engines_.push_back(
      EngineProcess::adopt(loop_, std::move(options), 0, std::move(channel), std::move(pidfd)));
  return index;
}

void OrphanedEngines::kill(shm::Descriptor channel, shm::Descriptor pidfd) {
  engines_[take(std::move(channel), std::move(pidfd), 0)]->kill();
}

void OrphanedEngines::end(shm::Descriptor channel, shm::Descriptor pidfd, std::uint32_t first_serial,
                          const std::string& why) {
  const std::size_t index = take(std::move(channel), std::move(pidfd), first_serial);
  ask_to_stop(index, why);
  loop_.after(kEndTime, [this, index] {
    if (engines_[index]) engines_[index]->kill();
  });
}

// Repeated while the channel is full: an engine that was not asked is killed, and its memory is lost.
void OrphanedEngines::ask_to_stop(std::size_t index, const std::string& why) {
  if (!engines_[index]) return;
  const Json stop{
      {"command", "stop"}, {"text", why}, {"status", static_cast<muster_status_t>(Code::kDaemonLost)}};
  engines_[index]->ask(stop, {}, [this, index, why](const Result<Packet>& answer) {
    if (answer || answer.error().code() == Code::kDaemonLost) return;
    loop_.after(kAskOrphansAgain, [this, index, why] { ask_to_stop(index, why); });
  });
}

}  // namespace muster::supervisor
