#include "daemon/supervisor/spanning/job_making.hpp"

#include "api/base/log.hpp"
#include "api/base/network/network_devices.hpp"
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

// The interface of this node, and why: if engines cannot connect, another one may have been meant.
std::string interfaces_text(const std::string& here, const std::string& network, const InterfaceRule& rule) {
  const auto choice = interfaces_of_network(network, rule);
  if (!choice) return choice.error().message();
  return fmt::format(
      "node {} exchanges data by {}, because {}; {} can name another, and `muster doctor` tries "
      "the way",
      here, choice->text(), choice->why, rule.setting);
}

}  // namespace

JobMaking::JobMaking(control::Loop& loop, RunningJobs& jobs, Peers& peers, const control::JobSpec& spec,
                     const std::string& leader, Events events)
    : loop_(loop), jobs_(jobs), peers_(peers), spec_(spec), leader_(leader), events_(std::move(events)) {}

JobMaking::~JobMaking() {
  loop_.unwatch(timer_);
}

void JobMaking::stop() {
  state_ = State::kIdle;
  loop_.unwatch(std::exchange(timer_, 0));
}

void JobMaking::end(const Status& how) {
  stop();
  events_.ended(how);
}

void JobMaking::say(const char* step, Json message) {
  message.update({{"job", spec_.id()}, {"epoch", epoch_}, {"step", step}});
  peers_.send(leader_, message);
}

void JobMaking::tell_all(const char* step, const Json& message) {
  Json whole = message;
  whole.update({{"job", spec_.id()}, {"epoch", epoch_}, {"step", step}});
  for (const std::string& node : spec_.world.nodes())
    if (node != peers_.here()) peers_.send(node, whole);
}

std::string JobMaking::lacks() const {
  const bool connects = state_ == State::kConnecting || state_ == State::kConnected;
  const char* what = connects ? "connected with the others" : "started";
  if (leads() && !unanswered_.empty())
    return fmt::format(
        "the engine of node {}{} has not {} yet", *unanswered_.begin(),
        unanswered_.size() == 1 ? std::string() : fmt::format(" (and of {} more)", unanswered_.size() - 1),
        what);
  const bool own = state_ == State::kPreparing || state_ == State::kConnecting;
  return own ? fmt::format("the engine of this node has not {} yet", what)
             : fmt::format("the engines of other nodes may not have {} yet", what);
}

void JobMaking::await_all() {
  const auto nodes = spec_.world.nodes();
  unanswered_ = {nodes.begin(), nodes.end()};
}

void JobMaking::begin(std::uint64_t epoch, Nanos patience) {
  stop();
  state_ = State::kPreparing;
  epoch_ = epoch;
  if (!leads()) return;
  await_all();
  addresses_.assign(unanswered_.size(), {});
  groups_.assign(unanswered_.size(), {});
  timer_ = loop_.after(patience, [this, patience] {
    timer_ = 0;
    const double seconds = std::chrono::duration<double>(patience).count();
    const bool connects = state_ == State::kConnecting || state_ == State::kConnected;
    end(failure(
        Code::kTimeout, "{}, after {:g} s{}", lacks(), seconds,
        connects ? "; " + interfaces_text(peers_.here(), spec_.network, peers_.interfaces_for(spec_)) : ""));
  });
  MUSTER_LOG(kInfo, "supervisor", "job {} is being made on {} nodes", spec_.id(), unanswered_.size());
  Json message = Json::object();
  if (spec_.temporary()) message["wish"] = request_of(spec_);
  tell_all("prepare", message);
}

void JobMaking::held(const Result<RunningJobs::HeldEngine>& engine) {
  if (state_ != State::kPreparing) return;
  if (leads()) {
    state_ = State::kHeld;
    return prepared(peers_.here(), engine);
  }
  Json answer{{"groups", engine ? engine->groups : ""}};
  if (engine) {
    control::write_address(engine->address, answer);
    state_ = State::kHeld;
  } else {
    answer = control::failed(cut(engine.error()));
    stop();
    events_.failed_here(cut(engine.error()));
  }
  say("prepared", std::move(answer));
}

void JobMaking::hear(const std::string& peer, const std::string& step, const Json& message) {
  const bool is_asked = leads() && unanswered_.contains(peer);
  const bool prepares = state_ == State::kPreparing || state_ == State::kHeld;
  const bool connects = state_ == State::kConnecting || state_ == State::kConnected;
  if (step == "prepared" && is_asked && prepares) {
    prepared(peer, prepared_in(message));
  } else if (step == "connect" && peer == leader_ && state_ == State::kHeld) {
    const auto addresses = control::addresses_in(message, spec_.world.nodes().size());
    if (addresses) return connect(*addresses);
    state_ = State::kConnecting;
    on_connected(addresses.error());
  } else if (step == "connected" && is_asked && connects) {
    connected(peer, status_in(message));
  } else if (step == "commit" && peer == leader_ && state_ == State::kConnected) {
    end({});
  }
}

// Notes a node's answer. The first failure ends the attempt.
bool JobMaking::all_answered(const std::string& node, const Status& status) {
  if (!status.ok()) {
    end(failure(status.code(), "node {}: {}", node, status.message()));
    return false;
  }
  unanswered_.erase(node);
  return unanswered_.empty();
}

void JobMaking::prepared(const std::string& node, const Result<RunningJobs::HeldEngine>& engine) {
  const auto nodes = spec_.world.nodes();
  const auto index = static_cast<std::size_t>(std::find(nodes.begin(), nodes.end(), node) - nodes.begin());
  if (engine) {
    addresses_[index] = engine->address;
    groups_[index] = engine->groups;
  }
  if (!all_answered(node, engine ? Status() : engine.error())) return;
  // Else operations of groups that do not correspond would never meet.
  const auto other = std::find_if(groups_.begin(), groups_.end(),
                                  [this](const std::string& each) { return each != groups_.front(); });
  if (other != groups_.end()) {
    const std::string& differs = nodes[static_cast<std::size_t>(other - groups_.begin())];
    return end(failure(Code::kVersion,
                       "node {}: it lists other groups for the job's mesh than node {}; install the same "
                       "release on both",
                       differs, nodes.front()));
  }
  Json message = Json::object();
  const auto addresses = std::exchange(addresses_, {});
  if (const Status written = control::write_addresses(addresses, message); !written.ok()) return end(written);
  await_all();
  tell_all("connect", message);
  connect(addresses);
}

// Asks this node's engine to connect with the others. It reports the outcome by on_word().
void JobMaking::connect(std::span<const control::EngineAddress> addresses) {
  state_ = State::kConnecting;
  unconnected_.clear();
  std::vector<control::EngineCall> calls;
  for (std::uint32_t node = 0; node < addresses.size(); ++node) {
    if (NodeIndex(node) == spec_.world.here()) continue;
    unconnected_.insert(NodeIndex(node));
    calls.push_back({NodeIndex(node), addresses[node], 0});
  }
  Json command{{"command", "connect"}};
  control::write_calls(calls, command);
  jobs_.ask(spec_.id(), command, {}, [this, epoch = epoch_](const Result<control::Packet>& answer) {
    const Status begun = answer ? control::status_of(answer->body) : answer.error();
    if (!begun.ok() && epoch_ == epoch) on_connected(begun);
  });
}

void JobMaking::on_word(const EngineEvent& word) {
  unconnected_.erase(word.node);
  if (!word.status.ok() || unconnected_.empty()) on_connected(word.status);
}

// This node's engine has reached all others, or has failed to, or has lost one since.
void JobMaking::on_connected(const Status& status) {
  const bool connects = state_ == State::kConnecting || (state_ == State::kConnected && !status.ok());
  if (!connects) return;
  Status outcome;
  if (!status.ok())
    outcome =
        cut(failure(status.code(), "its engine cannot connect with the others: {}; {}", status.message(),
                    interfaces_text(peers_.here(), spec_.network, peers_.interfaces_for(spec_))));
  if (outcome.ok()) state_ = State::kConnected;
  if (leads()) return connected(peers_.here(), outcome);
  if (outcome.ok()) return say("connected", Json::object());
  stop();
  events_.failed_here(outcome);
  say("connected", control::failed(outcome));
}

void JobMaking::connected(const std::string& node, const Status& status) {
  if (!all_answered(node, status)) return;
  tell_all("commit", Json::object());
  MUSTER_LOG(kInfo, "supervisor", "job {} is ready on {} nodes", spec_.id(), spec_.world.nodes().size());
  end({});
}

}  // namespace muster::supervisor
