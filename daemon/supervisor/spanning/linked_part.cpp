#include "daemon/supervisor/spanning/linked_part.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/base/said.hpp"
#include "daemon/supervisor/spanning/job_request.hpp"

#include <algorithm>
#include <utility>
#include <vector>

namespace muster::supervisor {

using control::Json;

LinkedPart::LinkedPart(control::Loop& loop, RunningJobs& jobs, Peers& peers, const control::JobSpec& spec,
                       std::function<void()> changed)
    : loop_(loop), jobs_(jobs), peers_(peers), spec_(spec), changed_(std::move(changed)) {}

// A node that does not know a temporary job can begin its part by this message.
Json LinkedPart::about(const char* step) const {
  Json message{{"job", spec_.id()}, {"epoch", epoch_}, {"step", step}};
  if (spec_.temporary()) message["wish"] = request_of(spec_);
  return message;
}

// A node without a part of a job of the cluster file begins one when it has received the news of this one.
// So the second of two does not ask it.
bool LinkedPart::may_try(const EngineLink& link) const {
  return peers_.is_up(link.ends().node) && (link.ends().asks || link.epoch() != 0 || spec_.temporary());
}

void LinkedPart::send(const EngineLink& link, const char* step, const control::EngineAddress* address,
                      std::uint32_t generation) {
  Json message = about(step);
  if (address != nullptr) {
    control::write_address(*address, message);
    message["generation"] = generation;
  }
  peers_.send(link.ends().node, message);
}

void LinkedPart::ask_engine(const EngineLink& link, Answered answered) {
  jobs_.ask(spec_.id(), Json{{"command", "network"}}, {},
            [this, &link, answered = std::move(answered)](const Result<control::Packet>& packet) {
              answered(network_in(packet, link.ends().index));
            });
}

Result<EngineLink::Network> LinkedPart::network_in(const Result<control::Packet>& packet,
                                                   NodeIndex other) const {
  if (!packet) return fail(packet.error());
  MUSTER_ASSIGN_OR_RETURN(const Json result, control::result_of(*packet));
  auto address = control::address_in(result);
  const auto links = result.find("links");
  const bool whole =
      links != result.end() && links->is_array() && links->size() == spec_.world.nodes().size() &&
      std::all_of(links->begin(), links->end(), [](const Json& link) { return link.is_object(); });
  if (!address || !whole) return fail(Code::kProtocol, "its engine's answer is malformed");
  const Json& link = (*links)[other.value];
  const auto heard = static_cast<std::int64_t>(said_number(link, "heard_ns") & INT64_MAX);
  return EngineLink::Network{*std::move(address), static_cast<std::uint32_t>(said_number(link, "generation")),
                             said_flag(link, "connected"), said_text(link, "why"), Nanos(heard)};
}

void LinkedPart::connect(const EngineLink&, const control::EngineCall& call,
                         std::function<void(const Status&)> answered) {
  Json command{{"command", "connect"}};
  control::write_calls(std::vector{call}, command);
  jobs_.ask(spec_.id(), command, {}, [answered = std::move(answered)](const Result<control::Packet>& answer) {
    answered(answer ? control::status_of(answer->body) : answer.error());
  });
}

// The engine ends the operations that need the node.
void LinkedPart::tell_lost(const EngineLink& link, const Status& why, EngineLink::Fate fate) {
  Json command{{"command", "lose"}, {"node", link.ends().index.value}, {"why", why.message()}};
  if (fate != EngineLink::Fate::kDisconnected)
    command["fate"] = fate == EngineLink::Fate::kDead ? "dead" : "silent";
  jobs_.ask(spec_.id(), command, {}, [](const Result<control::Packet>&) {});
}

control::Loop::Watch LinkedPart::after(Nanos delay, std::function<void()> callback) {
  return loop_.after(delay, std::move(callback));
}

void LinkedPart::refused(const EngineLink& link, const Status& why) {
  MUSTER_LOG(kError, "supervisor", "job {}, the link with node {}: {}", link.ends().job, link.ends().node,
             why.message());
}

}  // namespace muster::supervisor
