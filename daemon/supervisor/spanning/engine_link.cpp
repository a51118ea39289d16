#include "daemon/supervisor/spanning/engine_link.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/base/retry.hpp"

#include <algorithm>
#include <utility>

namespace muster::supervisor {

EngineLink::EngineLink(World& world, Ends ends, const LinkMachine::Table& table)
    : world_(world), ends_(std::move(ends)), machine_(table, State::kAbsent) {}

void EngineLink::take(Event event, const Facts& facts) {
  const auto step = machine_.take(event);
  if (!step) return world_.refused(*this, step.error());
  if (facts.epoch) epoch_ = *facts.epoch;
  if (event == Event::kUp || event == Event::kUpElsewhere) failures_ = 0;
  if (step->entered) enter(*step->entered);
  act(step->action, facts, step->before);
}

// The timer first: the engine's answer to the action may come at once, and end it.
void EngineLink::enter(State state) {
  ++round_;
  world_.unwatch(std::exchange(timer_, 0));
  if (state == State::kAbsent || state == State::kCalled) {
    failures_ = generation_ = 0;
    why_ = failure(Code::kPeerLost, "it was not connected yet");
  }
  const auto timer = LinkMachine::timer_of(state);
  if (timer == LinkMachine::Timer::kNone) return;
  const bool retries = timer == LinkMachine::Timer::kRetry;
  const Nanos delay = retries ? doubled_wait(kFirstRetry, failures_++, kLastRetry) : kAnswerTime;
  timer_ = world_.after(delay, [this] {
    timer_ = 0;
    take(Event::kTime, {.why = failure(Code::kTimeout, "it has not answered for {} s",
                                       kAnswerTime / std::chrono::seconds(1))});
  });
}

void EngineLink::act(LinkMachine::Action action, const Facts& facts, State before) {
  using enum LinkMachine::Action;
  switch (action) {
    case kNone:
      return;
    case kTry:
      return attempt();
    case kAskEngine:
      if (facts.call != nullptr) call_ = *facts.call;
      return ask_engine();
    case kInquire:
      return inquire();
    case kSendJoin:
      return world_.send(*this, "join", &facts.network->address, facts.network->generation);
    case kSendApart:
      return world_.send(*this, "apart", nullptr, 0);
    case kSendHere:
      call_.generation = std::max(call_.generation, facts.network->generation) + 1;
      world_.send(*this, "here", &facts.network->address, call_.generation);
      return connect();
    case kConnect:
      call_ = *facts.call;
      return connect();
    case kKeep:
      call_ = *facts.call;
      return;
    case kReport:
      return report();
    case kTellEngineAndTry:
    case kTellEngine:
      world_.tell_lost(*this, facts.why, facts.fate);
      break;
    case kGiveUpAndTry:
    case kGiveUp:
      world_.tell_lost(*this, facts.why, facts.fate);
      [[fallthrough]];
    case kFailAndTry:
    case kFail:
      note_failure(facts.why, before);
      break;
  }
  if (action == kTellEngineAndTry || action == kGiveUpAndTry || action == kFailAndTry) attempt();
}

// The caller of changed() may have ended the part meanwhile.
void EngineLink::attempt() {
  if (is_apart(machine_.state()) && world_.may_try(*this)) take(Event::kMay);
}

// For an attempt to connect, which fails if there is no answer.
void EngineLink::ask_engine() {
  world_.ask_engine(*this, [this, round = round_](const Result<Network>& network) {
    if (round_ != round) return;
    if (!network) return take(Event::kRefused, {.why = network.error()});
    take(Event::kNetwork, {.network = &*network});
  });
}

void EngineLink::inquire() {
  world_.ask_engine(*this, [this, round = round_](const Result<Network>& network) {
    if (round_ != round) return;
    if (!network) return take(Event::kRefused, {.why = network.error()});
    generation_ = network->generation;
    if (network->connected) return take(Event::kStillConnected);
    take(Event::kNotConnected, {.why = failure(Code::kPeerLost, "{}", network->why)});
  });
}

void EngineLink::connect() {
  call_.node = ends_.index;
  generation_ = call_.generation;
  world_.connect(*this, call_, [this, round = round_](const Status& begun) {
    if (!begun.ok() && round_ == round) take(Event::kRefused, {.why = begun});
  });
}

void EngineLink::report() {
  failures_ = 0;
  why_ = {};
  MUSTER_LOG(kInfo, "supervisor", "job {}: its engine is connected with that of node {} again", ends_.job,
             ends_.node);
  world_.changed();
}

void EngineLink::note_failure(const Status& why, State before) {
  if (!is_apart(before) || why_.text() != why.text())
    MUSTER_LOG(kWarning, "supervisor", "job {}: its engine is not connected with that of node {}: {}",
               ends_.job, ends_.node, why.message());
  why_ = why;
  world_.changed();
}

}  // namespace muster::supervisor
