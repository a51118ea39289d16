#include "transport/span/spanning_transport.hpp"

#include "transport/span/ended_epochs.hpp"
#include "transport/span/engine_messages.hpp"
#include "transport/span/node_links.hpp"
#include "transport/span/operations_in_flight.hpp"
#include "transport/span/own_streams.hpp"
#include "transport/span/prepared_operation.hpp"
#include "transport/span/recycled_memory.hpp"
#include "transport/span/span_groups.hpp"
#include "transport/span/staging.hpp"
#include "transport/span/untaken_reports.hpp"
#include "transport/span/wire.hpp"

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
// Thread  as JobLinks and CommunicatorFactory. One mutex guards the network and all that moves on it;
//         progress() gives up if another thread has it. Further ones, which are never held for long, guard
//         the data from and for the engine: that of the commands here, and those inside the groups, reports
//         and messages.
// Bound   as its parts.
// Fails   as JobLinks and CommunicatorFactory.
class SpanningTransport final : public JobLinks, public CommunicatorFactory {
 public:
  SpanningTransport(std::unique_ptr<Network> network, SpanningOptions options, const Clock& clock)
      : options_(std::move(options)),
        links_(
            options_, *network, clock, [this](NodeConnection& from, Bytes message) { hear(from, message); },
            [this](NodeIndex node) { operations_.lost(node); }, &memory_),
        context_{&memory_,
                 clock,
                 links_.now(),
                 staging_,
                 links_.connections(),
                 options_,
                 network->freed_on_close_from()},
        operations_(context_, epochs_),
        network_(std::move(network)) {}
  ~SpanningTransport() override;

  // ---- JobLinks -----------------------------------------------------------------------------
  std::vector<std::byte> address() const override;
  Status connect(NodeIndex node, Bytes address, std::uint32_t generation) override;
  Link link(NodeIndex node) override;
  void lose(NodeIndex node, const Status& why) override;
  bool in_use(std::uint64_t group) override;
  void take_lost(const std::function<void(const Lost&)>& visit) override { links_.take_lost(visit); }
  void stay_alive() override;
  void end(const EpochEnd& end) override;
  void take_ended(const std::function<void(const EpochEnd&)>& visit) override;
  void tell(NodeIndex node, Bytes message) override {
    messages_.tell(node, message);
    wake_();
  }
  void take_messages(const Messages& visit) override { messages_.take(visit); }

  // ---- CommunicatorFactory ---------------------------------------------------------------------
  void use(std::function<void()> wake) override { wake_ = std::move(wake); }
  bool takes(const Span& span, Devices /*devices*/) const override { return !span.is_local(); }
  Result<std::unique_ptr<Communicator>> open(const Span& span, Devices devices) override;
  std::size_t progress() override;
  bool arm() override;
  int descriptor() const override { return network_->descriptor(); }

  // ---- for its communicators -------------------------------------------------------------------
  void launch(span::Launched launched);
  void cancel(const StepOutcome& outcome);
  std::vector<std::uint32_t> awaited(const StepOutcome& outcome);
  std::optional<Instant> moved_at(const StepOutcome& outcome);

 private:
  // The engine's requests, until a turn carries them out.
  struct Commands {
    std::vector<span::Launched> launches;
    std::vector<const StepOutcome*> cancelled;
    // With the span of the group, which may be closed by then. Null: it is not open.
    std::vector<std::pair<EpochEnd, std::shared_ptr<const Span>>> ends;
    bool empty() const { return launches.empty() && cancelled.empty() && ends.empty(); }
  };
  void hear(NodeConnection& from, Bytes message);
  std::size_t carry_out_commands();  // 0: there were none

  const SpanningOptions options_;
  span::SpanGroups groups_;
  span::OwnStreams own_streams_;
  std::function<void()> wake_;

  // The network's thread alone uses these. They are declared before `network_` to outlive it: a library may
  // touch them until the network has ended. Operations end before what they use.
  mutable std::mutex mutex_;
  span::RecycledMemory memory_;
  span::Staging staging_;
  span::NodeLinks links_;
  const span::OperationContext context_;
  span::EndedEpochs epochs_;
  span::OperationsInFlight operations_;
  Commands present_;  // that this turn carries out
  std::unique_ptr<Network> network_;

  std::mutex commands_mutex_;
  Commands commands_;
  std::atomic<bool> any_commands_{false};
  span::UntakenReports<EpochEnd> ended_;  // that other nodes have told
  span::EngineMessages messages_;
  std::atomic<bool> quiet_{false};  // no worker calls progress() by itself
};

// A group that was freed and made again goes on in the numbers of its earlier life, because another node may
// have kept it.
//
// Owns    its span, and the numbers at which it has begun. Thread  as Communicator.
// Bound   one launch for each lane of its members. Fails  launch: check_launch(). After it by the outcome.
class SpanningCommunicator final : public Communicator {
 public:
  SpanningCommunicator(SpanningTransport& transport, const span::OperationContext& context,
                       span::SpanGroups& groups, span::SpanGroups::OpenGroup group,
                       const span::OwnStreams::ByPriority& streams)
      : transport_(transport),
        context_(context),
        groups_(groups),
        group_(std::move(group)),
        streams_(streams) {}
  ~SpanningCommunicator() override { groups_.close(group_.span->group, std::move(launches_)); }

  std::int32_t ranks() const noexcept override { return group_.span->ranks(); }
  Result<std::shared_ptr<Prepared>> prepare(const Collective& collective,
                                            std::span<const LocalMember> members) override {
    MUSTER_RETURN_IF_ERROR(validate(collective, ranks()));
    MUSTER_RETURN_IF_ERROR(
        span::check_launch(*group_.span, collective, members, context_.options.reproducible));
    auto prepared = std::make_shared<span::PreparedOperation>(
        collective, members, group_.span, group_.traffic, context_.options, context_.direct_from());
    MUSTER_RETURN_IF_ERROR(prepared->charge(context_.options.memory));
    return prepared;
  }
  Status launch(const std::shared_ptr<Prepared>& prepared, std::span<const LocalMember> members,
                const MatchKey& key, device::Priority priority, StepOutcome& outcome) override {
    auto operation = std::static_pointer_cast<span::PreparedOperation>(prepared);
    const Collective& collective = operation->collective();
    const std::uint32_t tag = is_transfer(collective.op) ? collective.tag : 0;
    span::OperationKey number{key.place, tag, key.epoch, key.number};
    if (key.epoch == group_.before.epoch) {
      const auto known = group_.before.counts.find(key.place);
      if (known != group_.before.counts.end()) number.number += known->second.of(tag);
    }
    outcome.hold();
    group_.traffic->begun();
    count(number);
    span::PreparedOperation::Room& room = operation->take_room(members);
    transport_.launch({std::move(operation), &room, number, priority,
                       streams_[static_cast<std::size_t>(priority)].get(), &outcome});
    return {};
  }
  std::uint64_t first_epoch() const override { return groups_.first_epoch(group_.span->group); }
  void cancel(StepOutcome& outcome) override { transport_.cancel(outcome); }
  std::vector<std::uint32_t> awaited(const StepOutcome& outcome) const override {
    return transport_.awaited(outcome);
  }
  std::optional<Instant> moved_at(const StepOutcome& outcome) const override {
    return transport_.moved_at(outcome);
  }
  Traffic traffic() const override { return group_.traffic->now(); }

 private:
  // A later life of the group goes on with the numbers of its present epoch.
  void count(const span::OperationKey& launched) {
    if (launched.epoch < launches_.epoch) return;
    if (launched.epoch > launches_.epoch) launches_ = {launched.epoch, {}};
    launches_.counts[launched.place].set(launched.tag, launched.number);
  }

  SpanningTransport& transport_;
  const span::OperationContext& context_;
  span::SpanGroups& groups_;
  const span::SpanGroups::OpenGroup group_;
  const span::OwnStreams::ByPriority& streams_;  // of the first local member's device
  span::SpanGroups::Launches launches_ = group_.before;
};

// A library may still touch the memory of begun messages until the network has ended.
SpanningTransport::~SpanningTransport() {
  links_.close();
  network_.reset();
}

Result<std::unique_ptr<Communicator>> SpanningTransport::open(const Span& span, Devices devices) {
  for (const NodeIndex node : span.nodes)
    if (node.value >= options_.nodes.size())
      return fail(Code::kBadArgument, "the job has no node {}", node.value);
  MUSTER_ASSIGN_OR_RETURN(const auto* const streams, own_streams_.of(*devices.front()));
  MUSTER_ASSIGN_OR_RETURN(auto group, groups_.open(span));
  return std::make_unique<SpanningCommunicator>(*this, context_, groups_, std::move(group), *streams);
}

// ---- links --------------------------------------------------------------------------------------

std::vector<std::byte> SpanningTransport::address() const {
  const std::lock_guard lock(mutex_);
  const Bytes bytes = network_->address();
  return {bytes.begin(), bytes.end()};
}

// Sends ends of epochs before the hello: a node that is connected then stands in the same epochs.
Status SpanningTransport::connect(NodeIndex node, Bytes address, std::uint32_t generation) {
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

JobLinks::Link SpanningTransport::link(NodeIndex node) {
  const std::lock_guard lock(mutex_);
  return links_.link(node);
}

void SpanningTransport::lose(NodeIndex node, const Status& why) {
  const std::lock_guard lock(mutex_);
  if (links_.lose(node, why)) wake_();
}

bool SpanningTransport::in_use(std::uint64_t group) {
  const std::uint64_t present = groups_.first_epoch(group);
  const std::lock_guard lock(mutex_);
  return operations_.in_use(group, present);
}

void SpanningTransport::stay_alive() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // something moves
  if (links_.stay_alive()) wake_();
}

void SpanningTransport::hear(NodeConnection& from, Bytes message) {
  bool in_time = links_.is_present(from);
  const auto kind = in_time ? read_head<span::HeaderKind>(message) : std::nullopt;
  if (kind == HeaderKind::kRequest) in_time = operations_.request(from, message);
  if (kind == HeaderKind::kRefusal) in_time = operations_.refusal(from, message);
  if (kind == HeaderKind::kReady) in_time = operations_.ready_came(from, message);
  if (kind == HeaderKind::kEnd) epochs_.hear(from.peer(), message, groups_);
  if (kind == HeaderKind::kEngine) messages_.hear(from, message);
  if (!in_time) groups_.came_late(message);
}

void SpanningTransport::end(const EpochEnd& end) {
  groups_.end(end);
  auto span = groups_.span_of(end.group);
  {
    const std::lock_guard lock(commands_mutex_);
    commands_.ends.emplace_back(end, std::move(span));
    any_commands_.store(true, std::memory_order_release);
  }
  wake_();
}

void SpanningTransport::take_ended(const std::function<void(const EpochEnd&)>& visit) {
  for (const EpochEnd& end : ended_.take()) visit(end);
}

// ---- operations --------------------------------------------------------------------------------

void SpanningTransport::launch(span::Launched launched) {
  {
    const std::lock_guard lock(commands_mutex_);
    commands_.launches.push_back(std::move(launched));
    any_commands_.store(true, std::memory_order_release);
  }
  if (quiet_.exchange(false, std::memory_order_relaxed)) wake_();
}

void SpanningTransport::cancel(const StepOutcome& outcome) {
  {
    const std::lock_guard lock(commands_mutex_);
    commands_.cancelled.push_back(&outcome);
    any_commands_.store(true, std::memory_order_release);
  }
  wake_();
}

std::vector<std::uint32_t> SpanningTransport::awaited(const StepOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  return operations_.awaited(outcome);
}

std::optional<Instant> SpanningTransport::moved_at(const StepOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  return operations_.moved_at(outcome);
}

std::size_t SpanningTransport::carry_out_commands() {
  if (!any_commands_.load(std::memory_order_acquire) && messages_.all_told()) return 0;
  span::EngineMessages::Told told = messages_.take_told();
  if (any_commands_.load(std::memory_order_acquire)) {
    const std::lock_guard lock(commands_mutex_);
    commands_.launches.swap(present_.launches);
    commands_.cancelled.swap(present_.cancelled);
    commands_.ends.swap(present_.ends);
    any_commands_.store(false, std::memory_order_relaxed);
  }
  if (present_.empty() && told.empty()) return 0;
  for (span::Launched& launched : present_.launches) operations_.begin(std::move(launched));
  for (const StepOutcome* outcome : present_.cancelled) operations_.cancel(*outcome);
  for (const auto& [end, span] : present_.ends) {
    static_cast<void>(operations_.end(end, options_.here));
    if (span != nullptr)
      for (const NodeIndex node : span->nodes)
        if (node != options_.here) links_[node].tell(span::message_of_end(end));
  }
  present_.launches.clear();  // which keeps the room of the lists
  present_.cancelled.clear();
  present_.ends.clear();
  for (const auto& [node, message] : told) links_.tell(node, message);
  return 1;
}

// Messages that came before an end count first: an operation may have met all its nodes by now.
std::size_t SpanningTransport::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return 0;
  quiet_.store(false, std::memory_order_relaxed);
  links_.begin_turn();
  std::size_t moved = carry_out_commands();
  links_.go_on();
  moved += network_->progress();
  links_.look_for_losses();
  moved += operations_.advance();
  if (epochs_.any_told()) {
    for (const auto& [end, teller] : epochs_.take_told()) {
      if (!operations_.end(end, teller)) continue;
      groups_.end(end);
      ended_.add(end);
    }
    moved += operations_.advance();
  }
  messages_.arrive();
  operations_.forget_past();
  return moved;
}

bool SpanningTransport::arm() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (!network_->arm()) return false;
  quiet_.store(true, std::memory_order_relaxed);
  const std::lock_guard commands_lock(commands_mutex_);
  return commands_.empty() && messages_.all_told() && ended_.empty() && links_.all_losses_taken();
}

}  // namespace

JobTransport spanning_transport(std::unique_ptr<Network> network, SpanningOptions options,
                                const Clock& clock) {
  auto made = std::make_shared<SpanningTransport>(std::move(network), std::move(options), clock);
  return {{made}, made};
}

}  // namespace muster::transport
