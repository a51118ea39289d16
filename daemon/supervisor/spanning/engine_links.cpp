#include "daemon/supervisor/spanning/engine_links.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/base/retry.hpp"
#include "daemon/supervisor/base/said.hpp"
#include "daemon/supervisor/spanning/job_request.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;

}  // namespace

EngineLinks::EngineLinks(control::Loop& loop, const Clock& clock, RunningJobs& jobs, Peers& peers,
                         const control::JobSpec& spec, std::function<void()> changed)
    : loop_(loop), clock_(clock), jobs_(jobs), peers_(peers), spec_(spec), changed_(std::move(changed)) {
  const auto nodes = spec_.world.nodes();
  for (std::uint32_t i = 0; i < nodes.size(); ++i)
    if (nodes[i] != peers_.here())
      others_.push_back({.node = nodes[i], .index = NodeIndex(i), .why = {}, .asked = {}});
}

EngineLinks::~EngineLinks() {
  for (const Other& other : others_) loop_.unwatch(other.timer);
}

EngineLinks::Other* EngineLinks::find(std::string_view node) {
  const auto found =
      std::find_if(others_.begin(), others_.end(), [&](const Other& other) { return other.node == node; });
  return found == others_.end() ? nullptr : &*found;
}

bool EngineLinks::has(std::string_view node) const {
  return std::any_of(others_.begin(), others_.end(), [&](const Other& other) { return other.node == node; });
}

// A node that does not know a temporary job can begin its part by this message.
Json EngineLinks::about(const char* step) const {
  Json message{{"job", spec_.id()}, {"epoch", epoch_}, {"step", step}};
  if (spec_.temporary()) message["wish"] = request_of(spec_);
  return message;
}

void EngineLinks::turn(Other& other, State state) {
  other.state = state;
  ++other.round;
  loop_.unwatch(std::exchange(other.timer, 0));
}

// ---- this node's part --------------------------------------------------------------------------

void EngineLinks::begin(std::uint64_t epoch) {
  epoch_ = epoch;
  for (Other& other : others_) {
    turn(other, State::kDisconnected);
    other.failures = 0;
    other.why = failure(Code::kPeerLost, "it was not connected yet");
  }
}

void EngineLinks::begin_connected(std::uint64_t epoch) {
  begin(epoch);
  for (Other& other : others_) {
    turn(other, State::kConnected);
    other.epoch = epoch;
    other.generation = 0;
    other.asked.reset();
  }
}

void EngineLinks::begin_disconnected(std::uint64_t epoch) {
  begin(epoch);
  for (Other& other : others_) {
    if (other.asked) {
      answer(other);
    } else {
      reconcile(other);
    }
  }
  changed_();
}

// Until the engine has answered, a node counts as connected: no operation ends by an upgrade. A node that
// falls silent before this supervisor was connected with it is lost as any other.
void EngineLinks::begin_adopted(std::uint64_t epoch) {
  begin(epoch);
  for (Other& other : others_) {
    turn(other, State::kConnected);
    peers_.expect(other.node);
    ask_engine(other, [this, &other](const Links& links) {
      const Json& link = links.links[other.index.value];
      other.generation = static_cast<std::uint32_t>(said_number(link, "generation"));
      if (link.value("connected", false)) return;
      apart(other, failure(Code::kPeerLost, "{}", said_text(link, "why")));
      reconcile(other);
    });
  }
}

void EngineLinks::end(const Status* why) {
  if (why != nullptr && stands()) {
    Json message = about("gone");
    message["why"] = why->message().substr(0, kWhyBytesMax);
    for (const Other& other : others_) peers_.send(other.node, message);
  }
  epoch_ = 0;
  for (Other& other : others_) turn(other, State::kDisconnected);
}

bool EngineLinks::is_complete() const {
  return std::all_of(others_.begin(), others_.end(), [&](const Other& other) {
    if (other.epoch != epoch_ || !peers_.is_up(other.node)) return true;
    return other.state == State::kConnected || (other.state == State::kDisconnected && other.failures > 0);
  });
}

std::string EngineLinks::lacks() const {
  std::string text;
  for (const Other& other : others_) {
    if (!stands() || other.state == State::kConnected) continue;
    if (!text.empty()) text += "; ";
    if (!peers_.is_up(other.node)) {
      text += peers_.why_not(other.node);
    } else if (other.epoch != epoch_) {
      text += fmt::format("node {} has no part of it", other.node);
    } else {
      text += fmt::format("node {} is apart: {}", other.node, other.why.message());
    }
  }
  return text;
}

std::uint64_t EngineLinks::elsewhere() const {
  for (const Other& other : others_)
    if (other.epoch != 0 && peers_.is_up(other.node)) return other.epoch;
  return 0;
}

bool EngineLinks::yields_to(std::string_view node) const {
  for (const Other& other : others_)
    if (other.node == node)
      return stands() && other.epoch != 0 && other.epoch != epoch_ && other.index < spec_.world.here();
  return false;
}

// ---- peers -------------------------------------------------------------------------------------

void EngineLinks::on_up(const std::string& node, std::uint64_t its_epoch) {
  Other* const other = find(node);
  if (other == nullptr) return;
  other->epoch = its_epoch;
  other->failures = 0;
  other->asked.reset();
  if (!stands()) return;
  if (its_epoch != epoch_) {
    const Status why = failure(Code::kPeerLost, "node {} came back without its part", node);
    if (other->state != State::kDisconnected) {
      give_up(*other, why, Fate::kDead);
    } else {
      tell_lost(*other, why, Fate::kDead);
    }
  }
  if (other->state == State::kAsking)
    turn(*other, State::kDisconnected);  // its answer was lost with the connection
  reconcile(*other);
}

void EngineLinks::on_down(const std::string& node) {
  Other* const other = find(node);
  if (other == nullptr) return;
  other->asked.reset();
  if (other->state == State::kAsking) turn(*other, State::kDisconnected);
  changed_();
}

void EngineLinks::on_lost(const std::string& node, const Status& why) {
  Other* const other = find(node);
  if (other == nullptr || !stands()) return;
  // The reason goes to ranks of other nodes too.
  const Status said(why.code(), fmt::format("{}; so says node {}", why.message(), peers_.here()));
  if (other->state == State::kDisconnected) return tell_lost(*other, said, Fate::kSilent);
  give_up(*other, said, Fate::kSilent);
}

void EngineLinks::on_suspected(const std::string& node) {
  Other* const other = find(node);
  if (other == nullptr || !stands() || other->state != State::kConnected) return;
  ask_network(*other, [this, other](const Result<Links>& links) {
    if (!links) return;  // nothing is known of the connection
    const Json& link = links->links[other->index.value];
    if (!link.value("connected", false)) return;
    const auto age = said_number(link, "heard_ns");
    peers_.vouch(other->node, clock_.now() - Nanos(static_cast<std::int64_t>(age & INT64_MAX)));
  });
}

// The engine ends the operations that need the node.
void EngineLinks::give_up(Other& other, const Status& why, Fate fate) {
  tell_lost(other, why, fate);
  apart(other, why);
}

void EngineLinks::tell_lost(const Other& other, const Status& why, Fate fate) {
  Json command{{"command", "lose"}, {"node", other.index.value}, {"why", why.message()}};
  if (fate != Fate::kDisconnected) command["fate"] = fate == Fate::kDead ? "dead" : "silent";
  jobs_.ask(spec_.id(), command, {}, [](const Result<control::Packet>&) {});
}

void EngineLinks::apart(Other& other, const Status& why) {
  if (other.state != State::kDisconnected || other.why.text() != why.text())
    MUSTER_LOG(kWarning, "supervisor", "job {}: its engine is not connected with that of node {}: {}",
               spec_.id(), other.node, why.message());
  turn(other, State::kDisconnected);
  other.why = why;
  other.timer = loop_.after(doubled_wait(kFirstRetry, other.failures++, kLastRetry), [this, &other] {
    other.timer = 0;
    reconcile(other);
  });
  changed_();
}

// ---- attempts ----------------------------------------------------------------------------------

// Asks the engine for its address, and for its connections with other nodes. `answered` is not called if the
// link has changed meanwhile.
void EngineLinks::ask_network(Other& other, std::function<void(const Result<Links>&)> answered) {
  jobs_.ask(spec_.id(), Json{{"command", "network"}}, {},
            [this, &other, round = other.round,
             answered = std::move(answered)](const Result<control::Packet>& packet) {
              if (stands() && other.round == round) answered(links_in(packet));
            });
}

Result<EngineLinks::Links> EngineLinks::links_in(const Result<control::Packet>& packet) const {
  if (!packet) return fail(packet.error());
  MUSTER_ASSIGN_OR_RETURN(const Json result, control::result_of(*packet));
  auto address = control::address_in(result);
  const auto links = result.find("links");
  const bool whole =
      links != result.end() && links->is_array() && links->size() == spec_.world.nodes().size() &&
      std::all_of(links->begin(), links->end(), [](const Json& link) { return link.is_object(); });
  if (!address || !whole) return fail(Code::kProtocol, "its engine's answer is malformed");
  return Links{*std::move(address), {links->begin(), links->end()}};
}

// For an attempt to connect, which fails if there is no answer.
void EngineLinks::ask_engine(Other& other, std::function<void(const Links&)> answered) {
  ask_network(other, [this, &other, answered = std::move(answered)](const Result<Links>& links) {
    if (!links) return apart(other, links.error());
    answered(*links);
  });
}

// Begins an attempt if there is none and the node can be asked.
void EngineLinks::reconcile(Other& other) {
  if (!stands() || other.state != State::kDisconnected || !peers_.is_up(other.node)) return;
  const auto too_late = [this, &other] {
    other.timer = 0;
    apart(other,
          failure(Code::kTimeout, "it has not answered for {} s", kAnswerTime / std::chrono::seconds(1)));
  };
  // The timer first: the engine's answer may come at once, and end it.
  if (spec_.world.here() < other.index) {
    turn(other, State::kAsking);
    other.timer = loop_.after(kAnswerTime, too_late);
    ask_engine(other, [this, &other](const Links& links) {
      Json message = about("join");
      control::write_address(links.address, message);
      message["generation"] = said_number(links.links[other.index.value], "generation");
      peers_.send(other.node, message);
    });
  } else if (other.epoch != 0 || spec_.temporary()) {
    turn(other, State::kDisconnected);
    other.timer = loop_.after(kAnswerTime, too_late);
    peers_.send(other.node, about("apart"));
  }
  // Else the node begins its part when it has received the news of this one.
}

void EngineLinks::heard(const std::string& node, const std::string& step, const Json& message) {
  Other* const other = find(node);
  if (other == nullptr) return;
  if (step == "gone") {
    other->epoch = 0;
    other->asked.reset();
    const Status why = failure(Code::kPeerLost, "{}", said_text(message, "why"));
    if (stands() && other->state == State::kDisconnected) tell_lost(*other, why, Fate::kDead);
    if (stands() && other->state != State::kDisconnected) give_up(*other, why, Fate::kDead);
    return changed_();
  }
  other->epoch = said_number(message, "epoch");
  Call call;
  if (step != "apart") {
    auto address = control::address_in(message);
    if (!address) return;
    call = {*std::move(address), static_cast<std::uint32_t>(said_number(message, "generation"))};
  }
  const bool first = other->index < spec_.world.here();  // of the two
  if (step == "join" && first) {
    other->asked = std::move(call);
    if (stands() && other->epoch == epoch_) answer(*other);
  } else if (step == "here" && other->state == State::kAsking && other->epoch == epoch_) {
    connect(*other, call);
  } else if (step == "apart" && !first && stands()) {
    if (other->state == State::kConnected)
      give_up(*other, failure(Code::kPeerLost, "its engine has lost that of this node"), Fate::kDisconnected);
    reconcile(*other);
  }
}

void EngineLinks::answer(Other& other) {
  turn(other, State::kAsking);
  ask_engine(other, [this, &other](const Links& links) {
    if (!other.asked) return;
    Call call = *std::exchange(other.asked, std::nullopt);
    const auto own = said_number(links.links[other.index.value], "generation");
    call.generation = std::max(call.generation, static_cast<std::uint32_t>(own)) + 1;
    Json message = about("here");
    control::write_address(links.address, message);
    message["generation"] = call.generation;
    peers_.send(other.node, message);
    connect(other, call);
  });
}

void EngineLinks::connect(Other& other, const Call& call) {
  turn(other, State::kConnecting);
  other.generation = call.generation;
  Json command{{"command", "connect"}};
  control::write_calls(std::vector{control::EngineCall{other.index, call.address, call.generation}}, command);
  jobs_.ask(spec_.id(), command, {},
            [this, &other, round = other.round](const Result<control::Packet>& answer) {
              const Status begun = answer ? control::status_of(answer->body) : answer.error();
              if (!begun.ok() && stands() && other.round == round) apart(other, begun);
            });
}

void EngineLinks::on_word(const EngineEvent& word) {
  const auto other = std::find_if(others_.begin(), others_.end(),
                                  [&](const Other& each) { return each.index == word.node; });
  if (other == others_.end() || !stands() || other->generation != word.generation) return;
  if (!word.status.ok()) {
    if (other->state == State::kConnecting || other->state == State::kConnected) apart(*other, word.status);
    return;
  }
  if (other->state != State::kConnecting) return;
  turn(*other, State::kConnected);
  other->failures = 0;
  other->why = {};
  MUSTER_LOG(kInfo, "supervisor", "job {}: its engine is connected with that of node {} again", spec_.id(),
             other->node);
  changed_();
}

}  // namespace muster::supervisor
