#include "daemon/supervisor/spanning/job_making.hpp"

#include "api/base/assert.hpp"
#include "api/base/log.hpp"
#include "daemon/control/link/frame.hpp"
#include "daemon/supervisor/base/said.hpp"
#include "daemon/supervisor/spanning/job_request.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {
namespace {

using control::Json;

constexpr std::size_t kHeadBytesMax = 16;  // of an item of a message
static_assert(control::kAddressesBytesMax + control::kNodesMax * kHeadBytesMax + kWhyBytesMax <
              control::kFrameBytesMax);

Status status_in(const Json& message) {
  const auto code = message.find("status");
  if (code == message.end() || !code->is_number_integer()) return {};
  return cut(control::status_of(message));
}

// The peer's engine, by its answer to `prepare`, or its failure.
Result<RunningJobs::HeldEngine> prepared_in(const Json& message) {
  MUSTER_RETURN_IF_ERROR(status_in(message));
  MUSTER_ASSIGN_OR_RETURN(auto address, control::address_in(message));
  return RunningJobs::HeldEngine{std::move(address), said_text(message, "groups")};
}

}  // namespace

JobMaking::JobMaking(World& world, const MakingMachine::Table& table, const control::JobSpec& spec,
                     std::string leader, Events events)
    : world_(world),
      spec_(spec),
      leader_(std::move(leader)),
      events_(std::move(events)),
      machine_(table, State::kIdle),
      addresses_(spec.world.nodes().size()),
      groups_(addresses_.size()) {}

void JobMaking::take(Event event, const Facts& facts) {
  const auto step = machine_.take(event);
  if (!step) return world_.refused(step.error());
  if (step->entered == State::kIdle) world_.unwatch(std::exchange(timer_, 0));
  act(step->action, facts);
}

void JobMaking::act(MakingMachine::Action action, const Facts& facts) {
  using enum MakingMachine::Action;
  switch (action) {
    case kNone:
      return;
    case kSendPrepare:
      return ask_all(facts.timeout);
    case kNote:
      return note(facts);
    case kSendConnect: {
      Json message = Json::object();
      const auto addresses = std::exchange(addresses_, std::vector<control::EngineAddress>(groups_.size()));
      MUSTER_ASSERT(control::write_addresses(addresses, message).ok());  // misfit() has tried it
      await_all();
      tell_all("connect", message);
      return connect(addresses);
    }
    case kSendCommit:
      tell_all("commit", Json::object());
      MUSTER_LOG(kInfo, "supervisor", "job {} is ready on {} nodes", spec_.id(), spec_.world.nodes().size());
      return events_.ended({});
    case kFail:
      return events_.ended(facts.node.empty()
                               ? facts.why
                               : failure(facts.why.code(), "node {}: {}", facts.node, facts.why.message()));
    case kSendPrepared: {
      Json answer{{"groups", facts.engine->groups}};
      control::write_address(facts.engine->address, answer);
      return say("prepared", std::move(answer));
    }
    case kConnect:
      return connect(facts.addresses);
    case kSendConnected:
      return say("connected", Json::object());
    case kReportPrepared:
      return report("prepared", facts.why);
    case kReportConnected:
      return report("connected", facts.why);
    case kFinish:
      return events_.ended({});
  }
}

void JobMaking::stop() {
  take(Event::kStops, {});
}

void JobMaking::say(const char* step, Json message) {
  message.update({{"job", spec_.id()}, {"epoch", epoch_}, {"step", step}});
  world_.send(leader_, message);
}

// The part has failed here: the leader ends it on all nodes.
void JobMaking::report(const char* step, const Status& why) {
  events_.failed_here(why);
  say(step, control::failed(why));
}

void JobMaking::tell_all(const char* step, const Json& message) {
  Json whole = message;
  whole.update({{"job", spec_.id()}, {"epoch", epoch_}, {"step", step}});
  for (const std::string& node : spec_.world.nodes())
    if (node != here()) world_.send(node, whole);
}

std::string JobMaking::lacks() const {
  const char* what = connects() ? "connected with the others" : "started";
  if (leads() && !unanswered_.empty())
    return fmt::format(
        "the engine of node {}{} has not {} yet", *unanswered_.begin(),
        unanswered_.size() == 1 ? std::string() : fmt::format(" (and of {} more)", unanswered_.size() - 1),
        what);
  const bool own = machine_.is({State::kPreparing, State::kConnecting});
  return own ? fmt::format("the engine of this node has not {} yet", what)
             : fmt::format("the engines of other nodes may not have {} yet", what);
}

void JobMaking::await_all() {
  const auto nodes = spec_.world.nodes();
  unanswered_ = {nodes.begin(), nodes.end()};
}

void JobMaking::begin(std::uint64_t epoch, Nanos timeout) {
  stop();
  epoch_ = epoch;
  take(Event::kBegins, {.timeout = timeout});
}

void JobMaking::ask_all(Nanos timeout) {
  await_all();
  addresses_.assign(unanswered_.size(), {});
  groups_.assign(unanswered_.size(), {});
  timer_ = world_.after(timeout, [this, timeout] {
    timer_ = 0;
    const double seconds = std::chrono::duration<double>(timeout).count();
    take(Event::kTime, {.why = failure(Code::kTimeout, "{}, after {:g} s{}", lacks(), seconds,
                                       connects() ? "; " + world_.interfaces_text() : "")});
  });
  MUSTER_LOG(kInfo, "supervisor", "job {} is being made on {} nodes", spec_.id(), unanswered_.size());
  Json message = Json::object();
  if (spec_.temporary()) message["wish"] = request_of(spec_);
  tell_all("prepare", message);
}

void JobMaking::held(const Result<RunningJobs::HeldEngine>& engine) {
  if (engine) return take(Event::kHeld, {.node = here(), .engine = &*engine});
  take(Event::kNotHeld,
       {.node = leads() ? here() : "", .why = leads() ? engine.error() : cut(engine.error())});
}

void JobMaking::hear(const std::string& peer, const std::string& step, const Json& message) {
  const bool is_asked = leads() && unanswered_.contains(peer);
  if (step == "prepared" && is_asked) {
    const auto engine = prepared_in(message);
    if (engine) return take(Event::kPrepared, {.node = peer, .engine = &*engine});
    take(Event::kNotPrepared, {.node = peer, .why = engine.error()});
  } else if (step == "connected" && is_asked) {
    const Status status = status_in(message);
    take(status.ok() ? Event::kConnected : Event::kNotConnected, {.node = peer, .why = status});
  } else if (step == "connect" && peer == leader_) {
    const auto addresses = control::addresses_in(message, spec_.world.nodes().size());
    if (addresses) return take(Event::kConnect, {.addresses = *addresses});
    take(Event::kMalformedConnect, {.why = unreached(addresses.error())});
  } else if (step == "commit" && peer == leader_) {
    take(Event::kCommit, {});
  }
}

// Notes a node's answer. The last one goes on.
void JobMaking::note(const Facts& facts) {
  if (facts.engine != nullptr) {
    const auto nodes = spec_.world.nodes();
    const auto index = std::find(nodes.begin(), nodes.end(), facts.node) - nodes.begin();
    addresses_[static_cast<std::size_t>(index)] = facts.engine->address;
    groups_[static_cast<std::size_t>(index)] = facts.engine->groups;
  }
  unanswered_.erase(facts.node);
  if (!unanswered_.empty()) return;
  if (connects()) return take(Event::kAllConnected, {});
  const Status why = misfit();
  take(why.ok() ? Event::kAllPrepared : Event::kUnfit, {.why = why});
}

// Operations of groups that do not correspond would never meet, and a message takes so many addresses.
Status JobMaking::misfit() const {
  const auto other = std::find_if(groups_.begin(), groups_.end(),
                                  [this](const std::string& each) { return each != groups_.front(); });
  Json message = Json::object();
  if (other == groups_.end()) return control::write_addresses(addresses_, message);
  const auto nodes = spec_.world.nodes();
  return failure(
      Code::kVersion,
      "node {}: it lists other groups for the job's mesh than node {}; install the same release on both",
      nodes[static_cast<std::size_t>(other - groups_.begin())], nodes.front());
}

// Asks this node's engine to connect with the others. It reports the outcome by on_word().
void JobMaking::connect(std::span<const control::EngineAddress> addresses) {
  unconnected_.clear();
  std::vector<control::EngineCall> calls;
  for (std::uint32_t node = 0; node < addresses.size(); ++node) {
    if (NodeIndex(node) == spec_.world.here()) continue;
    unconnected_.insert(NodeIndex(node));
    calls.push_back({NodeIndex(node), addresses[node], 0});
  }
  world_.connect(calls, [this, epoch = epoch_](const Status& begun) {
    if (!begun.ok() && epoch_ == epoch)
      take(Event::kUnreached, {.node = leads() ? here() : "", .why = unreached(begun)});
  });
}

// This node's engine has reached all others, or has failed to, or has lost one since.
void JobMaking::on_word(const RunningJobs::EngineEvent& word) {
  unconnected_.erase(word.node);
  const std::string node = leads() ? here() : "";
  if (!word.status.ok()) return take(Event::kUnreached, {.node = node, .why = unreached(word.status)});
  if (unconnected_.empty()) take(Event::kReached, {.node = node});
}

Status JobMaking::unreached(const Status& why) const {
  return cut(failure(why.code(), "its engine cannot connect with the others: {}; {}", why.message(),
                     world_.interfaces_text()));
}

}  // namespace muster::supervisor
