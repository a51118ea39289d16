#include "daemon/supervisor/spanning/engine_links.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/base/said.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {

using control::Json;
using Event = EngineLink::Event;
using Fate = EngineLink::Fate;

EngineLinks::EngineLinks(control::Loop& loop, const Clock& clock, RunningJobs& jobs, Peers& peers,
                         const control::JobSpec& spec, std::function<void()> changed)
    : clock_(clock), peers_(peers), spec_(spec), part_(loop, jobs, peers, spec, std::move(changed)) {
  const auto nodes = spec_.world.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i) {
    const NodeIndex index(i), here = spec_.world.here();
    if (index == here) continue;
    const bool asks = here < index;
    links_.emplace_back(part_, EngineLink::Ends{spec_.id(), nodes[i], index, asks},
                        asks ? kLinkOfFirst : kLinkOfSecond);
  }
}

EngineLink* EngineLinks::find(std::string_view node) {
  const auto found = std::find_if(links_.begin(), links_.end(),
                                  [&](const EngineLink& link) { return link.ends().node == node; });
  return found == links_.end() ? nullptr : &*found;
}

bool EngineLinks::has(std::string_view node) const {
  return std::any_of(links_.begin(), links_.end(),
                     [&](const EngineLink& link) { return link.ends().node == node; });
}

// ---- this node's part --------------------------------------------------------------------------

void EngineLinks::begin(std::uint64_t epoch) {
  if (stands()) end(nullptr);
  part_.set_epoch(epoch);
}

void EngineLinks::begin_connected(std::uint64_t epoch) {
  begin(epoch);
  for (EngineLink& link : links_) link.take(Event::kBeginsConnected, {.epoch = epoch});
}

void EngineLinks::begin_disconnected(std::uint64_t epoch) {
  begin(epoch);
  for (EngineLink& link : links_) link.take(Event::kBeginsApart);
  part_.changed();
}

// Until the engine has answered, a node counts as connected: no operation ends by an upgrade. A node that
// falls silent before this supervisor was connected with it is lost as any other.
void EngineLinks::begin_adopted(std::uint64_t epoch) {
  begin(epoch);
  for (EngineLink& link : links_) {
    peers_.expect(link.ends().node);
    link.take(Event::kBeginsAdopted);
  }
}

void EngineLinks::end(const Status* why) {
  if (why != nullptr && stands()) {
    Json message = part_.about("gone");
    message["why"] = why->message().substr(0, kWhyBytesMax);
    for (const EngineLink& link : links_) peers_.send(link.ends().node, message);
  }
  part_.set_epoch(0);
  for (EngineLink& link : links_) link.take(Event::kEnds);
}

bool EngineLinks::is_complete() const {
  return std::all_of(links_.begin(), links_.end(), [&](const EngineLink& link) {
    if (link.epoch() != part_.epoch() || !peers_.is_up(link.ends().node)) return true;
    return link.is_connected() || link.has_failed();
  });
}

std::string EngineLinks::lacks() const {
  std::string text;
  for (const EngineLink& link : links_) {
    if (!stands() || link.is_connected()) continue;
    const std::string& node = link.ends().node;
    if (!text.empty()) text += "; ";
    if (!peers_.is_up(node)) {
      text += peers_.why_not(node);
    } else if (link.epoch() != part_.epoch()) {
      text += fmt::format("node {} has no part of it", node);
    } else {
      text += fmt::format("node {} is apart: {}", node, link.why().message());
    }
  }
  return text;
}

std::uint64_t EngineLinks::elsewhere() const {
  for (const EngineLink& link : links_)
    if (link.epoch() != 0 && peers_.is_up(link.ends().node)) return link.epoch();
  return 0;
}

bool EngineLinks::yields_to(std::string_view node) const {
  return std::any_of(links_.begin(), links_.end(), [&](const EngineLink& link) {
    return link.ends().node == node && stands() && link.epoch() != 0 && link.epoch() != part_.epoch() &&
           !link.ends().asks;
  });
}

// ---- events ------------------------------------------------------------------------------------

void EngineLinks::on_up(const std::string& node, std::uint64_t its_epoch) {
  EngineLink* const link = find(node);
  if (link == nullptr) return;
  const bool has_it = !stands() || its_epoch == part_.epoch();
  if (has_it) return link->take(Event::kUp, {.epoch = its_epoch});
  link->take(Event::kUpElsewhere,
             {.epoch = its_epoch,
              .why = failure(Code::kPeerLost, "node {} came back without its part", node),
              .fate = Fate::kDead});
}

void EngineLinks::on_down(const std::string& node) {
  EngineLink* const link = find(node);
  if (link == nullptr) return;
  link->take(Event::kDown);
  part_.changed();
}

void EngineLinks::on_lost(const std::string& node, const Status& why) {
  EngineLink* const link = find(node);
  if (link == nullptr) return;
  // The reason goes to ranks of other nodes too.
  link->take(Event::kLost,
             {.why = Status(why.code(), fmt::format("{}; so says node {}", why.message(), peers_.here())),
              .fate = Fate::kSilent});
}

void EngineLinks::on_suspected(const std::string& node) {
  EngineLink* const link = find(node);
  if (link == nullptr || !link->is_connected()) return;
  part_.ask_engine(*link, [this, link](const Result<EngineLink::Network>& network) {
    // Else nothing is known of the connection.
    if (network && network->connected && link->is_connected())
      peers_.vouch(link->ends().node, clock_.now() - network->heard);
  });
}

void EngineLinks::heard(const std::string& node, const std::string& step, const Json& message) {
  EngineLink* const link = find(node);
  if (link == nullptr) return;
  if (step == "gone") {
    const Status why = failure(Code::kPeerLost, "{}", said_text(message, "why"));
    link->take(Event::kGone, {.epoch = 0, .why = why, .fate = Fate::kDead});
    return part_.changed();
  }
  const std::uint64_t epoch = said_number(message, "epoch");
  if (step == "apart")
    return link->take(
        Event::kApart,
        {.epoch = epoch, .why = failure(Code::kPeerLost, "its engine has lost that of this node")});
  auto address = control::address_in(message);
  const std::uint64_t generation = said_number(message, "generation");
  if (!address || epoch == 0 || generation >= UINT32_MAX) {
    MUSTER_LOG(kWarning, "supervisor", "job {}: node {} has sent a malformed `{}`", spec_.id(), node, step);
    return;
  }
  const control::EngineCall call{link->ends().index, *std::move(address),
                                 static_cast<std::uint32_t>(generation)};
  const bool same = epoch == part_.epoch();
  Event event = same ? Event::kHere : Event::kHereElsewhere;
  if (step == "join") event = same || !stands() ? Event::kJoin : Event::kJoinElsewhere;
  link->take(event, {.epoch = epoch, .call = &call});
}

void EngineLinks::on_word(const RunningJobs::EngineEvent& word) {
  const auto link = std::find_if(links_.begin(), links_.end(),
                                 [&](const EngineLink& each) { return each.ends().index == word.node; });
  if (link == links_.end() || !stands() || link->generation() != word.generation) return;
  link->take(word.status.ok() ? Event::kReached : Event::kParted, {.why = word.status});
}

}  // namespace muster::supervisor
