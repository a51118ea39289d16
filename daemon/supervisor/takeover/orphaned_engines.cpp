#include "daemon/supervisor/takeover/orphaned_engines.hpp"

#include <utility>

namespace muster::supervisor {

std::size_t OrphanedEngines::take(shm::Descriptor channel, shm::Descriptor pidfd,
                                  std::uint32_t first_serial) {
  const std::size_t index = engines_.size();
  EngineProcess::Options options;
  options.first_serial = first_serial;
  options.on_event = [](const control::Json&) {};
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
  engines_[index]->stop(why, Code::kDaemonLost);
  loop_.after(kEndTime, [this, index] {
    if (engines_[index]) engines_[index]->kill();
  });
}

}  // namespace muster::supervisor
