#include "daemon/supervisor/spanning/making_world.hpp"

#include "api/base/log.hpp"
#include "api/base/network/network_devices.hpp"

#include <utility>

namespace muster::supervisor {

using control::Json;

void MakingWorld::send(const std::string& node, const Json& message) {
  peers_.send(node, message);
}

void MakingWorld::connect(std::span<const control::EngineCall> calls,
                          std::function<void(const Status&)> answered) {
  Json command{{"command", "connect"}};
  control::write_calls(calls, command);
  jobs_.ask(spec_.id(), command, {}, [answered = std::move(answered)](const Result<control::Packet>& answer) {
    answered(answer ? control::status_of(answer->body) : answer.error());
  });
}

std::string MakingWorld::interfaces_text() const {
  const InterfaceRule rule = peers_.interfaces_for(spec_);
  const auto choice = interfaces_of_network(spec_.network, rule);
  if (!choice) return choice.error().message();
  return fmt::format(
      "node {} exchanges data by {}, because {}; {} can name another, and `muster doctor` tries "
      "the way",
      peers_.here(), choice->text(), choice->why, rule.setting);
}

control::Loop::Watch MakingWorld::after(Nanos delay, std::function<void()> callback) {
  return loop_.after(delay, std::move(callback));
}

void MakingWorld::refused(const Status& why) {
  MUSTER_LOG(kError, "supervisor", "the making of job {}: {}", spec_.id(), why.message());
}

}  // namespace muster::supervisor
