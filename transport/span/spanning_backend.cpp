#include "transport/span/spanning_backend.hpp"

#include "transport/loopback/loopback.hpp"
#include "transport/span/ended_epochs.hpp"
#include "transport/span/engine_messages.hpp"
#include "transport/span/node_links.hpp"
#include "transport/span/operations_in_flight.hpp"
#include "transport/span/pending_commands.hpp"
#include "transport/span/prepared_operation.hpp"
#include "transport/span/recycled_memory.hpp"
#include "transport/span/span_groups.hpp"
#include "transport/span/staging.hpp"
#include "transport/span/untaken_reports.hpp"
#include "transport/span/wire.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <utility>

namespace muster::transport {
namespace {

using span::HeaderKind;
using span::NodeConnection;

// Owns    the network, and the objects that move on it.
// Thread  as Backend. One mutex guards the network and all that moves on it; progress() gives up if another
//         thread has it. Further ones, which are never held for long, guard the data from and for the engine:
//         that of the commands here, and those inside the groups, reports and messages.
// Bound   as its parts.
// Fails   as Backend.
class SpanningBackend final : public Backend {
 public:
  SpanningBackend(std::unique_ptr<Network> network, SpanningOptions options, const Clock& clock)
      : options_(std::move(options)),
        local_(loopback_backend()),
        links_(
            options_, *network, clock, [this](NodeConnection& from, Bytes message) { hear(from, message); },
            [this](NodeIndex node) { operations_.lost(node); }, &memory_),
        context_{
            &memory_, clock, staging_, links_.connections(), {}, options_, network->freed_on_close_from()},
        operations_(context_, epochs_),
        network_(std::move(network)) {}
  ~SpanningBackend() override;

  bool spans() const override { return true; }
  Status use(device::Device& device, std::function<void()> wake) override;
  Result<std::unique_ptr<Communicator>> open(const Span& span) override;

  std::vector<std::byte> address() const override;
  Status connect(NodeIndex node, Bytes address, std::uint32_t generation) override;
  NodeLink link(NodeIndex node) override;
  void lose(NodeIndex node, const Status& why) override;
  bool in_use(std::uint64_t group) override;
  void take_lost(const std::function<void(const LostLink&)>& visit) override { links_.take_lost(visit); }
  void stay_alive() override;
  void end(const EpochEnd& end) override;
  void take_ended(const std::function<void(const EpochEnd&)>& visit) override;
  void tell(NodeIndex node, Bytes word) override {
    words_.say(node, word);
    wake_();
  }
  void take_words(const span::EngineMessages::Visit& visit) override { words_.take(visit); }

  std::size_t progress() override;
  bool arm() override;
  int descriptor() const override { return network_->descriptor(); }

  // ---- for its communicators -------------------------------------------------------------------
  const SpanningOptions& options() const { return options_; }
  std::size_t direct_from() const { return context_.direct_from(); }
  void launch(span::Launched launched);
  void cancel(const StepOutcome& outcome);
  std::vector<std::uint32_t> awaited(const StepOutcome& outcome);
  std::optional<Instant> moved_at(const StepOutcome& outcome);

 private:
  void hear(NodeConnection& from, Bytes message);
  std::size_t carry_out_commands();  // 0: there were none

  const SpanningOptions options_;
  const std::unique_ptr<Backend> local_;
  span::SpanGroups groups_;
  std::function<void()> wake_;

  // The network's thread alone uses these. They are declared before `network_` to outlive it: a library may
  // touch them until the network has ended. Operations end before what they use.
  std::mutex mutex_;
  span::RecycledMemory memory_;
  span::Staging staging_;
  span::NodeLinks links_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
  span::OperationContext context_;
  span::EndedEpochs epochs_;
  span::OperationsInFlight operations_;
  span::PendingCommands present_;  // that this turn carries out
  std::unique_ptr<Network> network_;

  std::mutex commands_mutex_;
  span::PendingCommands commands_;
  span::UntakenReports<EpochEnd> ended_;  // that other nodes have told
  span::EngineMessages words_;
  std::atomic<bool> quiet_{false};  // no worker calls progress() by itself
};

// A group that was freed and made again goes on in the numbers of its earlier life, because another node may
// have kept it.
//
// Owns    its span, and the numbers at which it has begun. Thread  as Communicator.
// Bound   one launch for each lane of its members. Fails  launch: check_launch(). After it by the outcome.
class SpanningCommunicator final : public Communicator {
 public:
  SpanningCommunicator(SpanningBackend& backend, span::SpanGroups& groups, span::SpanGroups::OpenGroup group)
      : backend_(backend), groups_(groups), group_(std::move(group)) {}
  ~SpanningCommunicator() override { groups_.close(group_.span->group); }

  std::int32_t ranks() const noexcept override { return group_.span->ranks(); }
  Result<std::shared_ptr<Prepared>> prepare(const Collective& collective,
                                            std::span<const LocalMember> members) override {
    MUSTER_RETURN_IF_ERROR(validate(collective, ranks()));
    MUSTER_RETURN_IF_ERROR(
        span::check_launch(*group_.span, collective, members, backend_.options().reproducible));
    auto prepared = std::make_shared<span::PreparedOperation>(
        collective, members, group_.span, group_.traffic, backend_.options(), backend_.direct_from());
    MUSTER_RETURN_IF_ERROR(prepared->charge(backend_.options().memory));
    return prepared;
  }
  Status launch(const std::shared_ptr<Prepared>& prepared, std::span<const LocalMember> members,
                const MatchKey& key, device::Priority priority, StepOutcome& outcome) override {
    auto operation = std::static_pointer_cast<span::PreparedOperation>(prepared);
    const Collective& collective = operation->collective();
    const std::uint32_t tag = is_transfer(collective.op) ? collective.tag : 0;
    span::OperationKey number{key.place, tag, key.epoch, key.number};
    if (!group_.before.empty()) {
      const auto known = group_.before.find(span::SpanGroups::counted_at(number));
      if (known != group_.before.end()) number.number += known->second.of(tag);
    }
    outcome.hold();
    group_.traffic->begun();
    groups_.count(number);
    span::PreparedOperation::Room& room = operation->take_room(members);
    backend_.launch({std::move(operation), &room, number, priority, &outcome});
    return {};
  }
  std::uint64_t first_epoch() const override { return groups_.first_epoch(group_.span->group); }
  void cancel(StepOutcome& outcome) override { backend_.cancel(outcome); }
  std::vector<std::uint32_t> awaited(const StepOutcome& outcome) const override {
    return backend_.awaited(outcome);
  }
  std::optional<Instant> moved_at(const StepOutcome& outcome) const override {
    return backend_.moved_at(outcome);
  }
  Traffic traffic() const override { return group_.traffic->now(); }

 private:
  SpanningBackend& backend_;
  span::SpanGroups& groups_;
  const span::SpanGroups::OpenGroup group_;
};

// A library may still touch the memory of begun messages until the network has ended.
SpanningBackend::~SpanningBackend() {
  links_.close();
  network_.reset();
}

Status SpanningBackend::use(device::Device& device, std::function<void()> wake) {
  wake_ = std::move(wake);
  for (std::size_t i = 0; i <= static_cast<std::size_t>(device::Priority::kLow); ++i) {
    MUSTER_ASSIGN_OR_RETURN(auto stream, device.open_stream(static_cast<device::Priority>(i)));
    context_.streams.push_back(stream.get());
    streams_.push_back(std::move(stream));
  }
  return {};
}

Result<std::unique_ptr<Communicator>> SpanningBackend::open(const Span& span) {
  if (span.is_local()) return local_->open(span);
  for (const NodeIndex node : span.nodes)
    if (node.value >= options_.nodes.size())
      return fail(Code::kBadArgument, "the job has no node {}", node.value);
  MUSTER_ASSIGN_OR_RETURN(auto group, groups_.open(span));
  return std::make_unique<SpanningCommunicator>(*this, groups_, std::move(group));
}

// ---- other nodes -------------------------------------------------------------------------------

std::vector<std::byte> SpanningBackend::address() const {
  const Bytes bytes = network_->address();
  return {bytes.begin(), bytes.end()};
}

// Sends ends of epochs before the hello: a node that is connected then stands in the same epochs.
Status SpanningBackend::connect(NodeIndex node, Bytes address, std::uint32_t generation) {
  const std::lock_guard lock(mutex_);
  if (!links_.lose(node, failure(Code::kPeerLost, "it connects anew")))
    return failure(Code::kBadArgument, "the job has no other node {}", node.value);
  static_cast<void>(carry_out_commands());
  operations_.forget(node);
  MUSTER_RETURN_IF_ERROR(links_.connect(node, address, generation));
  epochs_.tell_all(links_[node], groups_);
  links_.greet(node);
  return {};
}

NodeLink SpanningBackend::link(NodeIndex node) {
  static_cast<void>(progress());
  const std::lock_guard lock(mutex_);
  return links_.link(node);
}

void SpanningBackend::lose(NodeIndex node, const Status& why) {
  const std::lock_guard lock(mutex_);
  if (links_.lose(node, why)) wake_();
}

bool SpanningBackend::in_use(std::uint64_t group) {
  const std::uint64_t present = groups_.first_epoch(group);
  const std::lock_guard lock(mutex_);
  return operations_.in_use(group, present);
}

void SpanningBackend::stay_alive() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // something moves
  if (links_.stay_alive()) wake_();
}

void SpanningBackend::hear(NodeConnection& from, Bytes message) {
  bool in_time = links_.is_present(from);
  const auto kind = in_time ? span::kind_of(message) : std::nullopt;
  if (kind == HeaderKind::kRequest) in_time = operations_.request(from, message);
  if (kind == HeaderKind::kRefusal) in_time = operations_.refusal(from, message);
  if (kind == HeaderKind::kReady) in_time = operations_.ready_came(from, message);
  if (kind == HeaderKind::kEnd) epochs_.hear(from.peer(), message, groups_);
  if (kind == HeaderKind::kEngine) words_.hear(from, message);
  if (!in_time) groups_.came_late(message);
}

void SpanningBackend::end(const EpochEnd& end) {
  groups_.end(end);
  auto span = groups_.span_of(end.group);
  {
    const std::lock_guard lock(commands_mutex_);
    commands_.ends.emplace_back(end, std::move(span));
  }
  wake_();
}

void SpanningBackend::take_ended(const std::function<void(const EpochEnd&)>& visit) {
  for (const EpochEnd& end : ended_.take()) visit(end);
}

// ---- operations --------------------------------------------------------------------------------

void SpanningBackend::launch(span::Launched launched) {
  {
    const std::lock_guard lock(commands_mutex_);
    commands_.launches.push_back(std::move(launched));
  }
  if (quiet_.exchange(false, std::memory_order_relaxed)) wake_();
}

void SpanningBackend::cancel(const StepOutcome& outcome) {
  {
    const std::lock_guard lock(commands_mutex_);
    commands_.cancelled.push_back(&outcome);
  }
  wake_();
}

std::vector<std::uint32_t> SpanningBackend::awaited(const StepOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  return operations_.awaited(outcome);
}

std::optional<Instant> SpanningBackend::moved_at(const StepOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  return operations_.moved_at(outcome);
}

std::size_t SpanningBackend::carry_out_commands() {
  span::EngineMessages::Said said = words_.take_said();
  {
    const std::lock_guard lock(commands_mutex_);
    if (!commands_.empty()) commands_.swap(present_);
  }
  if (present_.empty() && said.empty()) return 0;
  for (span::Launched& launched : present_.launches) operations_.begin(std::move(launched));
  for (const StepOutcome* outcome : present_.cancelled) operations_.cancel(*outcome);
  for (const auto& [end, span] : present_.ends) {
    if (operations_.end(end, options_.here)) groups_.forget_launches(end);
    if (span != nullptr)
      for (const NodeIndex node : span->nodes)
        if (node != options_.here) links_[node].tell(span::message_of_end(end));
  }
  present_.clear();
  for (const auto& [node, word] : said) links_.tell(node, word);
  return 1;
}

// Messages that came before an end count first: an operation may have met all its nodes by now.
std::size_t SpanningBackend::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return 0;
  quiet_.store(false, std::memory_order_relaxed);
  std::size_t moved = carry_out_commands();
  links_.go_on();
  moved += network_->progress();
  links_.look_for_losses();
  moved += operations_.advance();
  if (epochs_.any_told()) {
    for (const auto& [end, teller] : epochs_.take_told()) {
      if (!operations_.end(end, teller)) continue;
      groups_.forget_launches(end);
      groups_.end(end);
      ended_.add(end);
    }
    moved += operations_.advance();
  }
  words_.arrive();
  operations_.forget_past();
  return moved;
}

bool SpanningBackend::arm() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (!network_->arm()) return false;
  quiet_.store(true, std::memory_order_relaxed);
  const std::lock_guard commands_lock(commands_mutex_);
  return commands_.empty() && words_.all_said() && ended_.empty() && links_.all_losses_taken();
}

}  // namespace

std::unique_ptr<Backend> spanning_backend(std::unique_ptr<Network> network, SpanningOptions options,
                                          const Clock& clock) {
  return std::make_unique<SpanningBackend>(std::move(network), std::move(options), clock);
}

}  // namespace muster::transport
