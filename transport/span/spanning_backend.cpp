#include "transport/span/spanning_backend.hpp"

#include "api/base/collective/tag_counts.hpp"
#include "api/base/log.hpp"
#include "transport/loopback/loopback.hpp"
#include "transport/span/early_requests.hpp"
#include "transport/span/engine_messages.hpp"
#include "transport/span/node_connection.hpp"
#include "transport/span/operation.hpp"
#include "transport/span/pending_commands.hpp"
#include "transport/span/staging.hpp"
#include "transport/span/wire.hpp"

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>

namespace muster::transport {
namespace {

using span::HeaderKind;
using span::NodeConnection;
using span::OperationKey;
using span::PendingCommands;
using span::SpanOperation;
using span::Standing;

// A node that has sent nothing for so long sends a hello, to show that it lives.
constexpr Nanos kSilence = std::chrono::milliseconds(150);
// Groups that this node does not have, but whose ends another node has sent. It may make them later.
constexpr std::size_t kUnknownGroupsMax = 4096;

// The key under which launches are counted, for each tag.
OperationKey counted_at(const OperationKey& key) {
  return {key.place, 0, key.epoch, 0};
}

// Owns    the network, the connections to all nodes, and the operations in flight.
// Thread  as Backend. One mutex guards the network and all that moves on it; progress() gives up if another
//         thread has it. A second one, which is never held for long, guards the data from and for the engine.
// Bound   as its parts.
// Fails   as Backend.
class SpanningBackend final : public Backend {
 public:
  SpanningBackend(std::unique_ptr<Network> network, SpanningOptions options, const Clock& clock)
      : options_(std::move(options)),
        connections_(options_.nodes.size()),
        network_(std::move(network)),
        local_(loopback_backend()),
        context_{clock, staging_, connections_, {}, options_, network_->freed_on_close_from()},
        greeted_(options_.nodes.size()),
        told_lost_(options_.nodes.size(), true),
        early_(options_.nodes.size()) {
    for (std::uint32_t node = 0; node < connections_.size(); ++node)
      if (NodeIndex(node) != options_.here) connections_[node] = connection_to(NodeIndex(node));
  }
  ~SpanningBackend() override;

  bool spans() const override { return true; }
  bool is_reproducible() const { return options_.reproducible; }
  Status use(device::Device& device, std::function<void()> wake) override;
  Result<std::unique_ptr<Communicator>> open(const Span& span) override;

  std::vector<std::byte> address() const override;
  Status connect(NodeIndex node, Bytes address, std::uint32_t generation) override;
  NodeLink link(NodeIndex node) override;
  void lose(NodeIndex node, const Status& why) override;
  bool in_use(std::uint64_t group) override;
  void take_lost(const std::function<void(const LostLink&)>& visit) override;
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
  void closed(std::uint64_t group);
  std::uint64_t first_epoch(std::uint64_t group) const;
  using Launches = std::map<OperationKey, TagCounts>;  // of each tag, by counted_at()
  Launches launches_of(std::uint64_t group) const;     // over all its communicators
  void launch(span::Launched launched);
  void cancel(const StepOutcome& outcome);
  std::vector<std::uint32_t> awaited(const StepOutcome& outcome);
  std::optional<Instant> moved_at(const StepOutcome& outcome);
  Communicator::Traffic traffic(std::uint64_t group) const;

 private:
  std::unique_ptr<NodeConnection> connection_to(NodeIndex node);
  // Notes connections that have ended since, and closes them.
  void look_for_losses();
  std::size_t carry_out_commands();  // 0: there were none
  void begin(span::Launched launched);
  void hear(NodeConnection& from, Bytes message);
  void hear_request(NodeConnection& from, Bytes message);
  void hear_refusal(NodeConnection& from, Bytes message);
  void hear_ready(NodeConnection& from, Bytes message);
  void hear_end(NodeConnection& from, Bytes message);
  void end_what_came();
  // Notes a message that is dropped because it comes too late.
  void drop(Bytes message);
  // Notes that the operation goes, if its group is still there. True.
  bool note(SpanOperation& past);
  // Hands it to the operation, or keeps it until this node comes to that.
  void keep(const OperationKey& key, span::EarlyRequest request);
  // The latest end of the group, if that epoch has ended.
  const EpochEnd* ended(std::uint64_t group, std::uint64_t epoch) const;
  // Ends operations that wait for nodes, unless the teller has come to them: it then has all requests, so all
  // come here too, or it refuses. False: the epoch had ended before.
  bool end_here(const EpochEnd& end, NodeIndex teller);
  std::shared_ptr<const Span> span_of(std::uint64_t group) const;
  // Takes the notes for the engine, if `any` is set.
  template<class Notes>
  Notes taken(Notes& notes, std::atomic<bool>& any) {
    if (!any.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(wishes_mutex_);
    any.store(false, std::memory_order_relaxed);
    return std::exchange(notes, {});
  }

  const SpanningOptions options_;
  // Declared before `network_` to outlive it: a library may touch these until the network has ended.
  span::Staging staging_;
  std::vector<std::unique_ptr<NodeConnection>> connections_;  // by NodeIndex; null: this node
  std::vector<std::unique_ptr<NodeConnection>> former_;       // whose memory a library may still touch
  span::SpanOperations operations_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Backend> local_;
  std::function<void()> wake_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
  span::OperationContext context_;

  std::mutex mutex_;
  std::vector<bool> greeted_;    // by NodeIndex: it has sent a hello on this connection
  std::vector<bool> told_lost_;  // by NodeIndex: the end of this connection is in `lost_`, or was
  span::EarlyRequests early_;
  std::map<std::uint64_t, EpochEnd> ended_;      // by group: its latest end
  std::map<std::uint64_t, std::uint64_t> done_;  // by group: the latest epoch in which an operation was done
  std::vector<std::pair<EpochEnd, NodeIndex>> came_;  // ends that other nodes have sent in this turn

  mutable std::mutex wishes_mutex_;
  std::map<std::uint64_t, std::shared_ptr<const Span>> spans_;  // of the communicators, by group
  PendingCommands commands_;
  Launches launches_;
  std::map<std::uint64_t, std::uint64_t> present_epoch_;    // by group
  std::map<std::uint64_t, Communicator::Traffic> traffic_;  // by group of `spans_`
  std::vector<EpochEnd> heard_;
  std::vector<LostLink> lost_;
  span::EngineMessages words_;
  std::atomic<bool> any_heard_{false};
  std::atomic<bool> any_lost_{false};
  std::atomic<bool> quiet_{false};  // no worker calls progress() by itself
};

// A group that was freed and made again goes on in the numbers of its earlier life, because another node may
// have kept it.
//
// Owns    its span, and the numbers at which it has begun. Thread  as Communicator.
// Bound   one launch for each lane of its members. Fails  launch: check_launch(). After it by the outcome.
class SpanningCommunicator final : public Communicator {
 public:
  SpanningCommunicator(SpanningBackend& backend, std::shared_ptr<const Span> span)
      : backend_(backend), span_(std::move(span)), before_(backend.launches_of(span_->group)) {}
  ~SpanningCommunicator() override { backend_.closed(span_->group); }

  std::int32_t ranks() const noexcept override { return span_->ranks(); }
  Status launch(const Collective& collective, std::span<const LocalMember> members, const MatchKey& key,
                StepOutcome& outcome) override {
    MUSTER_RETURN_IF_ERROR(validate(collective, ranks()));
    MUSTER_RETURN_IF_ERROR(span::check_launch(*span_, collective, members, backend_.is_reproducible()));
    const std::uint32_t tag = is_transfer(collective.op) ? collective.tag : 0;
    span::Launched launched{&collective,
                            span_,
                            {members.begin(), members.end()},
                            {key.place, tag, key.epoch, key.number},
                            &outcome};
    if (const auto known = before_.find(counted_at(launched.key)); known != before_.end())
      launched.key.number += known->second.of(tag);
    std::sort(launched.members.begin(), launched.members.end(),
              [](const LocalMember& a, const LocalMember& b) { return a.share->index < b.share->index; });
    outcome.hold();
    backend_.launch(std::move(launched));
    return {};
  }
  std::uint64_t first_epoch() const override { return backend_.first_epoch(span_->group); }
  void cancel(StepOutcome& outcome) override { backend_.cancel(outcome); }
  std::vector<std::uint32_t> awaited(const StepOutcome& outcome) const override {
    return backend_.awaited(outcome);
  }
  std::optional<Instant> moved_at(const StepOutcome& outcome) const override {
    return backend_.moved_at(outcome);
  }
  Traffic traffic() const override { return backend_.traffic(span_->group); }

 private:
  SpanningBackend& backend_;
  std::shared_ptr<const Span> span_;
  const SpanningBackend::Launches before_;  // when it was opened
};

// A library may still touch the memory of begun messages until the network has ended.
SpanningBackend::~SpanningBackend() {
  for (auto& connection : connections_)
    if (connection != nullptr) connection->close();
  network_.reset();
  operations_.clear();
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

// ---- groups ------------------------------------------------------------------------------------

Result<std::unique_ptr<Communicator>> SpanningBackend::open(const Span& span) {
  if (span.is_local()) return local_->open(span);
  for (const NodeIndex node : span.nodes)
    if (node.value >= options_.nodes.size())
      return fail(Code::kBadArgument, "the job has no node {}", node.value);
  auto shared = std::make_shared<const Span>(span);
  {
    const std::lock_guard lock(wishes_mutex_);
    if (!spans_.emplace(span.group, shared).second)
      return fail(Code::kUnsupported, "another group of the same ranks goes by the same name between nodes");
  }
  return std::make_unique<SpanningCommunicator>(*this, std::move(shared));
}

void SpanningBackend::closed(std::uint64_t group) {
  const std::lock_guard lock(wishes_mutex_);
  spans_.erase(group);
  traffic_.erase(group);
}

Communicator::Traffic SpanningBackend::traffic(std::uint64_t group) const {
  const std::lock_guard lock(wishes_mutex_);
  auto traffic = traffic_.contains(group) ? traffic_.at(group) : Communicator::Traffic();
  // The span is here, with the communicator, and with each operation.
  traffic.kept = static_cast<std::uint64_t>(spans_.at(group).use_count()) - 2;
  return traffic;
}

bool SpanningBackend::note(SpanOperation& past) {
  const std::uint64_t group = past.launched().key.place.group;
  if (past.agreed()) done_[group] = std::max(done_[group], past.launched().key.epoch);
  const std::uint64_t ahead = past.peers().bulk_ahead();
  const std::lock_guard lock(wishes_mutex_);
  if (spans_.contains(group)) traffic_[group].bulk_ahead = std::max(traffic_[group].bulk_ahead, ahead);
  return true;
}

void SpanningBackend::drop(Bytes message) {
  const auto group = span::group_of(message);
  const std::lock_guard lock(wishes_mutex_);
  if (group && spans_.contains(*group)) ++traffic_[*group].late_messages;
}

std::shared_ptr<const Span> SpanningBackend::span_of(std::uint64_t group) const {
  const std::lock_guard lock(wishes_mutex_);
  const auto known = spans_.find(group);
  return known == spans_.end() ? nullptr : known->second;
}

std::uint64_t SpanningBackend::first_epoch(std::uint64_t group) const {
  const std::lock_guard lock(wishes_mutex_);
  const auto known = present_epoch_.find(group);
  return known == present_epoch_.end() ? 1 : known->second;
}

SpanningBackend::Launches SpanningBackend::launches_of(std::uint64_t group) const {
  const std::lock_guard lock(wishes_mutex_);
  Launches of;
  for (const auto& each : launches_)
    if (each.first.place.group == group) of.insert(each);
  return of;
}

// ---- other nodes -------------------------------------------------------------------------------

std::vector<std::byte> SpanningBackend::address() const {
  const Bytes bytes = network_->address();
  return {bytes.begin(), bytes.end()};
}

std::unique_ptr<NodeConnection> SpanningBackend::connection_to(NodeIndex node) {
  return std::make_unique<NodeConnection>(
      node, options_.nodes[node.value], context_.clock, options_.nodes.size() - 1,
      [this](NodeConnection& from, Bytes message) { hear(from, message); });
}

// Sends ends of epochs before the hello: a node that is connected then stands in the same epochs.
Status SpanningBackend::connect(NodeIndex node, Bytes address, std::uint32_t generation) {
  const std::lock_guard lock(mutex_);
  if (node.value >= connections_.size() || node == options_.here)
    return failure(Code::kBadArgument, "the job has no other node {}", node.value);
  auto& connection = connections_[node.value];
  connection->fail(failure(Code::kPeerLost, "it connects anew"));
  look_for_losses();
  static_cast<void>(carry_out_commands());
  early_.forget(node);
  former_.push_back(std::exchange(connection, connection_to(node)));
  greeted_[node.value] = told_lost_[node.value] = false;
  MUSTER_RETURN_IF_ERROR(connection->connect(*network_, address, generation));
  for (const auto& [group, end] : ended_) {
    const auto span = span_of(group);
    if (span == nullptr || std::find(span->nodes.begin(), span->nodes.end(), node) != span->nodes.end())
      connection->tell(span::message_of_end(end));
  }
  connection->tell(span::message_of(span::HelloHeader(), {}));
  return {};
}

NodeLink SpanningBackend::link(NodeIndex node) {
  static_cast<void>(progress());
  const std::lock_guard lock(mutex_);
  if (node == options_.here || node.value >= connections_.size()) return {};
  const NodeConnection& connection = *connections_[node.value];
  Status status = connection.status();
  if (status.ok() && !greeted_[node.value])
    status = failure(Code::kPending, "node {} has not said hello", connection.name());
  return {status, connection.generation(), connection.heard_at()};
}

void SpanningBackend::lose(NodeIndex node, const Status& why) {
  const std::lock_guard lock(mutex_);
  if (node.value >= connections_.size() || node == options_.here) return;
  connections_[node.value]->fail(why);
  look_for_losses();
  wake_();
}

void SpanningBackend::look_for_losses() {
  for (std::uint32_t node = 0; node < connections_.size(); ++node) {
    if (told_lost_[node] || connections_[node] == nullptr || connections_[node]->status().ok()) continue;
    told_lost_[node] = true;
    for (auto& operation : operations_) operation->lost(NodeIndex(node));
    connections_[node]->close();
    const std::lock_guard lock(wishes_mutex_);
    lost_.push_back({NodeIndex(node), connections_[node]->generation(), connections_[node]->status()});
    any_lost_.store(true, std::memory_order_release);
  }
  std::erase_if(former_, [](const auto& each) { return each->quiet(); });
}

bool SpanningBackend::in_use(std::uint64_t group) {
  const std::uint64_t present = first_epoch(group);
  const std::lock_guard lock(mutex_);
  if (const auto done = done_.find(group); done != done_.end() && done->second == present) return true;
  return std::any_of(operations_.begin(), operations_.end(), [&](const auto& operation) {
    return operation->launched().key.place.group == group && operation->launched().key.epoch == present &&
           operation->agreed();
  });
}

void SpanningBackend::take_lost(const std::function<void(const LostLink&)>& visit) {
  for (const LostLink& link : taken(lost_, any_lost_)) visit(link);
}

void SpanningBackend::stay_alive() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return;  // something moves
  bool told = false;
  for (std::uint32_t node = 0; node < connections_.size(); ++node) {
    NodeConnection* const connection = connections_[node].get();
    if (connection == nullptr || !connection->status().ok() || !greeted_[node]) continue;
    if (context_.clock.now() - connection->said_at() < kSilence) continue;
    connection->tell(span::message_of(span::HelloHeader(), {}));
    told = true;
  }
  if (told) wake_();
}

void SpanningBackend::hear(NodeConnection& from, Bytes message) {
  if (&from != connections_[from.peer().value].get()) return drop(message);  // of a former connection
  const auto kind = span::kind_of(message);
  if (kind == HeaderKind::kHello) greeted_[from.peer().value] = true;
  if (kind == HeaderKind::kRequest) hear_request(from, message);
  if (kind == HeaderKind::kRefusal) hear_refusal(from, message);
  if (kind == HeaderKind::kEnd) hear_end(from, message);
  if (kind == HeaderKind::kReady) hear_ready(from, message);
  if (kind == HeaderKind::kEngine) words_.hear(from, message);
}

void SpanningBackend::hear_request(NodeConnection& from, Bytes message) {
  auto read = span::read_request(from.peer(), message);
  if (!read) return;
  const OperationKey& key = read->first;
  SpanOperation* const operation = span::find(operations_, key);
  const EpochEnd* const end = ended(key.place.group, key.epoch);
  if (end == nullptr || (operation && operation->waits())) return keep(key, std::move(read->second));
  drop(message);
  from.tell(span::refusal_of(key, span::cause_of(*end), Standing::kGone));
  from.tell(span::message_of_end(*end));
  if (operation) span::hand_over(*operation, std::move(read->second));
}

// The message is of no use to an operation that this node has given up before it agreed.
void SpanningBackend::hear_ready(NodeConnection& from, Bytes message) {
  const auto head = span::read_head<span::ReadyHeader>(message);
  if (!head) return;
  SpanOperation* const operation = span::find(operations_, span::key_of(*head));
  if (operation == nullptr) return drop(message);
  if (const auto node = operation->peers().place_of(from.peer())) operation->peers()[*node].ready = true;
}

// An operation that has agreed goes on after the end of its epoch, unless a node refuses it.
void SpanningBackend::hear_refusal(NodeConnection& from, Bytes message) {
  auto read = span::read_refusal(from.peer(), message);
  if (!read) return;
  const OperationKey& key = read->first;
  const EpochEnd* const end = ended(key.place.group, key.epoch);
  if (end == nullptr || span::find(operations_, key)) return keep(key, std::move(read->second));
  if (read->second.asks()) from.tell(span::refusal_of(key, span::cause_of(*end), Standing::kGone));
  drop(message);
}

void SpanningBackend::hear_end(NodeConnection& from, Bytes message) {
  const auto end = span::read_end(message);
  if (!end) return;
  if (const auto span = span_of(end->group)) {
    if (std::find(span->nodes.begin(), span->nodes.end(), from.peer()) == span->nodes.end()) return;
  } else if (!ended_.contains(end->group) && ended_.size() >= kUnknownGroupsMax) {
    return;
  }
  if (ended(end->group, end->epoch) == nullptr) came_.emplace_back(*end, from.peer());
}

// Messages that came before an end count first: an operation may have met all its nodes by now.
void SpanningBackend::end_what_came() {
  for (const auto& [end, teller] : std::exchange(came_, {})) {
    if (!end_here(end, teller)) continue;
    const std::lock_guard lock(wishes_mutex_);
    std::uint64_t& present = present_epoch_[end.group];
    present = std::max(present, end.epoch + 1);
    heard_.push_back(end);
    any_heard_.store(true, std::memory_order_release);
  }
}

void SpanningBackend::keep(const OperationKey& key, span::EarlyRequest request) {
  if (SpanOperation* const operation = span::find(operations_, key))
    return span::hand_over(*operation, std::move(request));
  const NodeIndex from = request.from;
  if (!early_.keep(key, std::move(request)))
    MUSTER_LOG(kWarning, "span", "node {} is {} operations ahead; what it says of the next one is dropped",
               options_.nodes[from.value], span::EarlyRequests::kMax);
}

// ---- epochs ------------------------------------------------------------------------------------

const EpochEnd* SpanningBackend::ended(std::uint64_t group, std::uint64_t epoch) const {
  const auto known = ended_.find(group);
  return known != ended_.end() && epoch <= known->second.epoch ? &known->second : nullptr;
}

bool SpanningBackend::end_here(const EpochEnd& end, NodeIndex teller) {
  if (ended(end.group, end.epoch) != nullptr) return false;
  ended_[end.group] = end;
  const Status why = span::cause_of(end);
  const auto ends = [&end](const OperationKey& key) {
    return key.place.group == end.group && key.epoch <= end.epoch;
  };
  for (auto& each : operations_)
    if (ends(each->launched().key) && each->waits() && !each->peers().has_come(teller)) each->fail(why);
  for (const auto& [key, early] : early_.take_ended(end.group, end.epoch))
    if (early.asks()) connections_[early.from.value]->tell(span::refusal_of(key, why, Standing::kGone));
  const std::lock_guard lock(wishes_mutex_);
  std::erase_if(launches_, [&](const auto& each) { return ends(each.first); });
  return true;
}

void SpanningBackend::end(const EpochEnd& end) {
  auto span = span_of(end.group);
  {
    const std::lock_guard lock(wishes_mutex_);
    std::uint64_t& present = present_epoch_[end.group];
    present = std::max(present, end.epoch + 1);
    commands_.ends.emplace_back(end, std::move(span));
  }
  wake_();
}

void SpanningBackend::take_ended(const std::function<void(const EpochEnd&)>& visit) {
  for (const EpochEnd& end : taken(heard_, any_heard_)) visit(end);
}

// ---- operations --------------------------------------------------------------------------------

void SpanningBackend::launch(span::Launched launched) {
  {
    const std::lock_guard lock(wishes_mutex_);
    launches_[counted_at(launched.key)].set(launched.key.tag, launched.key.number);
    commands_.launches.push_back(std::move(launched));
  }
  if (quiet_.exchange(false, std::memory_order_relaxed)) wake_();
}

void SpanningBackend::cancel(const StepOutcome& outcome) {
  {
    const std::lock_guard lock(wishes_mutex_);
    commands_.cancelled.push_back(&outcome);
  }
  wake_();
}

std::vector<std::uint32_t> SpanningBackend::awaited(const StepOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  return span::awaited(operations_, outcome);
}

std::optional<Instant> SpanningBackend::moved_at(const StepOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  return span::moved_at(operations_, outcome);
}

std::size_t SpanningBackend::carry_out_commands() {
  span::EngineMessages::Said said = words_.take_said();
  PendingCommands commands;
  {
    const std::lock_guard lock(wishes_mutex_);
    std::swap(commands, commands_);
  }
  if (commands.empty() && said.empty()) return 0;
  for (span::Launched& launched : commands.launches) begin(std::move(launched));
  for (const StepOutcome* outcome : commands.cancelled)
    if (SpanOperation* const operation = span::find(operations_, *outcome))
      operation->fail(failure(Code::kTimeout, "it has passed its deadline"));
  for (const auto& [end, span] : commands.ends) {
    end_here(end, options_.here);
    if (span != nullptr)
      for (const NodeIndex node : span->nodes)
        if (node != options_.here) connections_[node.value]->tell(span::message_of_end(end));
  }
  span::EngineMessages::send(std::move(said), connections_, greeted_);
  return 1;
}

void SpanningBackend::begin(span::Launched launched) {
  const auto key = launched.key;
  const auto at = span::is_urgent(*launched.collective) ? operations_.begin() : operations_.end();
  SpanOperation& begun = **operations_.insert(at, span::begin_operation(std::move(launched), context_));
  if (const EpochEnd* const end = ended(key.place.group, key.epoch)) return begun.fail(span::cause_of(*end));
  for (span::EarlyRequest& each : early_.take(key)) span::hand_over(begun, std::move(each));
}

std::size_t SpanningBackend::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return 0;
  quiet_.store(false, std::memory_order_relaxed);
  std::size_t moved = carry_out_commands();
  for (auto& connection : connections_)
    if (connection != nullptr) connection->go_on();
  moved += network_->progress();
  look_for_losses();
  moved += span::advance(operations_);
  if (!came_.empty()) {
    end_what_came();
    moved += span::advance(operations_);
  }
  words_.arrive();
  std::erase_if(operations_, [this](const auto& operation) {
    return operation->is_past() && operation->quiet() && note(*operation);
  });
  return moved;
}

bool SpanningBackend::arm() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  if (!network_->arm()) return false;
  quiet_.store(true, std::memory_order_relaxed);
  const std::lock_guard wishes_lock(wishes_mutex_);
  return commands_.empty() && words_.all_said() && heard_.empty() && lost_.empty();
}

}  // namespace

std::unique_ptr<Backend> spanning_backend(std::unique_ptr<Network> network, SpanningOptions options,
                                          const Clock& clock) {
  return std::make_unique<SpanningBackend>(std::move(network), std::move(options), clock);
}

}  // namespace muster::transport
