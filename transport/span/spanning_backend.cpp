#include "transport/span/spanning_backend.hpp"

#include "api/base/log.hpp"
#include "transport/loopback/loopback.hpp"
#include "transport/span/node_connection.hpp"
#include "transport/span/operation.hpp"
#include "transport/span/staging.hpp"
#include "transport/span/wire.hpp"

#include <algorithm>
#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <utility>

namespace muster::transport {
namespace {

using span::HeadKind;
using span::NodeConnection;
using span::OperationKey;
using span::SpanOperation;

// What one node has said of operations to which this one has not come. Members come to at most one operation
// of each of their lanes at a time.
constexpr std::size_t kWaitingMax = std::size_t{1} << 16;
// For so long after something has moved, operations in flight are polled for.
constexpr Nanos kPolled = std::chrono::microseconds(500);
// Groups whose ends another node has told and that this one does not have. It may make them later.
constexpr std::size_t kUnknownGroupsMax = 4096;

// What the engine asks for under its lock. It is carried out by the next progress().
struct Wishes {
  std::vector<span::Launched> launches;
  std::vector<const StepOutcome*> cancelled;
  std::vector<EpochEnd> ends;

  bool empty() const { return launches.empty() && cancelled.empty() && ends.empty(); }
};

// Owns    the network, the connections to all nodes, and the operations in flight.
// Thread  as Backend. One mutex guards the network and all that moves on it; progress() gives up if another
//         thread has it. A second one, which is never held for long, guards what the engine hands over.
// Bound   as its parts.
// Fails   as Backend.
class SpanningBackend final : public Backend {
 public:
  SpanningBackend(std::unique_ptr<Network> network, SpanningOptions options, const Clock& clock)
      : options_(std::move(options)),
        connections_(options_.nodes.size()),
        network_(std::move(network)),
        local_(loopback_backend()),
        workshop_{clock, staging_, connections_, {}, options_.nodes, options_.reproducible},
        greeted_(options_.nodes.size()),
        waiting_count_(options_.nodes.size()) {}
  ~SpanningBackend() override;

  bool spans() const override { return true; }
  Status use(device::Device& device, std::function<void()> wake) override;
  Result<std::unique_ptr<Communicator>> open(const Span& span) override;

  std::vector<std::byte> address() const override;
  Status connect(std::span<const std::vector<std::byte>> addresses) override;
  Status connected() override;
  void end(const EpochEnd& end) override;
  void take_ended(const std::function<void(const EpochEnd&)>& visit) override;

  std::size_t progress() override;
  bool arm() override;
  int descriptor() const override { return network_->descriptor(); }

  // ---- of its communicators --------------------------------------------------------------------
  void closed(std::uint64_t group);
  std::uint64_t first_epoch(std::uint64_t group) const;
  // The number of the latest launch of that place and tag in that epoch, over all communicators of its group.
  std::uint64_t latest(const OperationKey& of) const;
  void launch(span::Launched launched);
  void cancel(const StepOutcome& outcome);
  std::string awaited(const StepOutcome& outcome);

 private:
  struct Waiting {  // what came before this node's members
    NodeIndex from;
    span::MatchRequest request;
    Status refusal;  // not OK: that node will not carry the operation out
  };

  void carry_out(Wishes wishes);
  void begin(span::Launched launched);
  void hear(NodeConnection& from, Bytes message);
  void hear_request(NodeConnection& from, Bytes message);
  void hear_refusal(NodeConnection& from, Bytes message);
  void hear_end(NodeConnection& from, Bytes message);
  void end_what_came();
  // Hands it to the operation, or keeps it until this node comes to that.
  void keep(const OperationKey& key, Waiting waiting);
  static void hand_over(SpanOperation& operation, Waiting waiting);
  SpanOperation* find(const OperationKey& key);
  // The latest end of the group, if that epoch has ended.
  const EpochEnd* ended(std::uint64_t group, std::uint64_t epoch) const;
  // Fails what has not met all its nodes. False: the epoch had ended before.
  bool end_here(const EpochEnd& end);
  std::shared_ptr<const Span> span_of(std::uint64_t group) const;

  const SpanningOptions options_;
  // What a library may touch until the network has ended stands before it.
  span::Staging staging_;
  std::vector<std::unique_ptr<NodeConnection>> connections_;  // by NodeIndex; null: this node
  std::deque<std::unique_ptr<SpanOperation>> operations_;
  std::unique_ptr<Network> network_;
  std::unique_ptr<Backend> local_;
  std::function<void()> wake_;
  std::vector<std::unique_ptr<device::Stream>> streams_;
  span::Workshop workshop_;

  std::mutex mutex_;
  std::vector<bool> greeted_;  // by NodeIndex: a message has come from it
  std::map<OperationKey, std::vector<Waiting>> waiting_;
  std::vector<std::size_t> waiting_count_;   // by NodeIndex
  std::map<std::uint64_t, EpochEnd> ended_;  // by group: its latest end
  std::vector<EpochEnd> came_;               // ends that other nodes have told in this turn
  Instant moved_at_{0};

  mutable std::mutex wishes_mutex_;
  std::map<std::uint64_t, std::shared_ptr<const Span>> spans_;  // of the communicators, by group
  Wishes wishes_;
  std::map<OperationKey, std::uint64_t> latest_;          // by place, tag and epoch; their number is 0
  std::map<std::uint64_t, std::uint64_t> present_epoch_;  // by group
  std::vector<EpochEnd> heard_;
  std::atomic<bool> any_heard_{false};
  std::atomic<bool> quiet_{false};  // no worker calls progress() by itself
};

// A group that was freed and made again goes on in the numbers of its earlier life, because another node may
// have kept it.
//
// Owns    its span, and the numbers at which it has begun. Thread  as Communicator.
// Bound   one launch for each lane of its members. Fails  launch: kBadArgument. After it by the outcome.
class SpanningCommunicator final : public Communicator {
 public:
  SpanningCommunicator(SpanningBackend& backend, std::shared_ptr<const Span> span)
      : backend_(backend), span_(std::move(span)) {}
  ~SpanningCommunicator() override { backend_.closed(span_->group); }

  std::int32_t ranks() const noexcept override { return span_->ranks(); }
  Status launch(const Collective& collective, std::span<const LocalMember> members, const MatchKey& key,
                StepOutcome& outcome) override {
    MUSTER_RETURN_IF_ERROR(validate(collective, ranks()));
    MUSTER_RETURN_IF_ERROR(check(collective, members));
    const std::uint32_t tag = is_transfer(collective.op) ? collective.tag : 0;
    span::Launched launched{&collective,
                            span_,
                            {members.begin(), members.end()},
                            {key.place, tag, key.epoch, key.number},
                            &outcome};
    launched.key.number += base_of(launched.key);
    std::sort(launched.members.begin(), launched.members.end(),
              [](const LocalMember& a, const LocalMember& b) { return a.share->index < b.share->index; });
    outcome.hold();
    backend_.launch(std::move(launched));
    return {};
  }
  std::uint64_t first_epoch() const override { return backend_.first_epoch(span_->group); }
  void cancel(StepOutcome& outcome) override { backend_.cancel(outcome); }
  std::string awaited(const StepOutcome& outcome) const override { return backend_.awaited(outcome); }

 private:
  // Each member of this node that the operation has is there, once.
  Status check(const Collective& c, std::span<const LocalMember> members) const {
    const auto takes_part = [&](std::int32_t index) {
      return !is_transfer(c.op) || index == c.root || index == c.receiver;
    };
    std::vector<bool> seen(span_->node_of.size());
    for (const LocalMember& member : members) {
      const std::int32_t index = member.share->index;
      const bool here = index >= 0 && index < ranks() && takes_part(index) &&
                        span_->node_of[static_cast<std::size_t>(index)] == span_->here;
      if (!here || member.signature == nullptr)
        return failure(Code::kBadArgument, "member {} is not one of this node, or says nothing", index);
      if (seen[static_cast<std::size_t>(index)])
        return failure(Code::kBadArgument, "member {} is given twice", index);
      seen[static_cast<std::size_t>(index)] = true;
    }
    for (std::int32_t index = 0; index < ranks(); ++index)
      if (span_->node_of[static_cast<std::size_t>(index)] == span_->here && takes_part(index) &&
          !seen[static_cast<std::size_t>(index)])
        return failure(Code::kBadArgument, "member {} is missing", index);
    return {};
  }
  // How many launches of that place and tag there were in this epoch, before this communicator was opened.
  std::uint64_t base_of(OperationKey key) {
    key.number = 0;
    const auto known = bases_.find(key);
    if (known != bases_.end()) return known->second;
    std::erase_if(bases_, [&](const auto& each) {
      return each.first.place == key.place && each.first.tag == key.tag && each.first.epoch != key.epoch;
    });
    return bases_.emplace(key, backend_.latest(key)).first->second;
  }

  SpanningBackend& backend_;
  std::shared_ptr<const Span> span_;
  std::map<OperationKey, std::uint64_t> bases_;  // by place, tag and epoch
};

// Until the network has ended, a library may still touch what was begun on it.
SpanningBackend::~SpanningBackend() {
  for (auto& connection : connections_)
    if (connection != nullptr) connection->close();
  network_.reset();
  operations_.clear();
}

Status SpanningBackend::use(device::Device& device, std::function<void()> wake) {
  wake_ = std::move(wake);
  constexpr std::size_t kPriorities = static_cast<std::size_t>(device::Priority::kLow) + 1;
  for (std::size_t i = 0; i < kPriorities; ++i) {
    MUSTER_ASSIGN_OR_RETURN(auto stream, device.open_stream(static_cast<device::Priority>(i)));
    workshop_.streams.push_back(stream.get());
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

std::uint64_t SpanningBackend::latest(const OperationKey& of) const {
  const std::lock_guard lock(wishes_mutex_);
  const auto known = latest_.find(of);
  return known == latest_.end() ? 0 : known->second;
}

// ---- other nodes -------------------------------------------------------------------------------

std::vector<std::byte> SpanningBackend::address() const {
  const Bytes bytes = network_->address();
  return {bytes.begin(), bytes.end()};
}

Status SpanningBackend::connect(std::span<const std::vector<std::byte>> addresses) {
  const std::lock_guard lock(mutex_);
  if (addresses.size() != connections_.size())
    return failure(Code::kBadArgument, "{} addresses are given for {} nodes", addresses.size(),
                   connections_.size());
  for (std::uint32_t node = 0; node < connections_.size(); ++node) {
    if (NodeIndex(node) == options_.here || connections_[node] != nullptr) continue;
    connections_[node] = std::make_unique<NodeConnection>(
        NodeIndex(node), options_.nodes[node],
        [this](NodeConnection& from, Bytes message) { hear(from, message); });
    MUSTER_RETURN_IF_ERROR(connections_[node]->connect(*network_, addresses[node]));
    connections_[node]->tell(span::message_of(span::HelloHead(), {}));
  }
  return {};
}

Status SpanningBackend::connected() {
  static_cast<void>(progress());
  const std::lock_guard lock(mutex_);
  for (std::uint32_t node = 0; node < connections_.size(); ++node) {
    if (NodeIndex(node) == options_.here) continue;
    if (connections_[node] == nullptr) return failure(Code::kPending, "it has not begun");
    MUSTER_RETURN_IF_ERROR(connections_[node]->status());
    if (!greeted_[node]) return failure(Code::kPending, "node {} has not said hello", options_.nodes[node]);
  }
  return {};
}

void SpanningBackend::hear(NodeConnection& from, Bytes message) {
  greeted_[from.peer().value] = true;
  const auto kind = span::kind_of(message);
  if (kind == HeadKind::kRequest) hear_request(from, message);
  if (kind == HeadKind::kRefusal) hear_refusal(from, message);
  if (kind == HeadKind::kEnd) hear_end(from, message);
}

void SpanningBackend::hear_request(NodeConnection& from, Bytes message) {
  const auto head = span::read_head<span::RequestHead>(message);
  if (!head) return;
  const OperationKey key = span::key_of(*head);
  if (const EpochEnd* const end = ended(key.place.group, key.epoch)) {
    from.tell(span::refusal_of(key, Status(end->code, end->text, end->culprit)));
    return from.tell(span::message_of_end(*end));
  }
  const Bytes payload = message.subspan(sizeof *head);
  keep(key, {from.peer(), {*head, {payload.begin(), payload.end()}}, {}});
}

// What has agreed in an epoch that has ended goes on, unless a node refuses it.
void SpanningBackend::hear_refusal(NodeConnection& from, Bytes message) {
  const auto head = span::read_head<span::RefusalHead>(message);
  if (!head || head->code >= 0 || !is_known(head->code)) return;
  const OperationKey key = span::key_of(*head);
  const Bytes text = message.subspan(sizeof *head);
  Waiting waiting{
      from.peer(), {}, Status(static_cast<Code>(head->code), span::text_of_bytes(text), head->culprit)};
  if (SpanOperation* const operation = find(key)) return hand_over(*operation, std::move(waiting));
  if (ended(key.place.group, key.epoch) == nullptr) keep(key, std::move(waiting));
}

void SpanningBackend::hear_end(NodeConnection& from, Bytes message) {
  const auto head = span::read_head<span::EndHead>(message);
  if (!head || head->code >= 0 || !is_known(head->code)) return;
  if (head->epoch == 0 || head->epoch >= span::kEpochMax) return;
  if (const auto span = span_of(head->group)) {
    if (std::find(span->nodes.begin(), span->nodes.end(), from.peer()) == span->nodes.end()) return;
  } else if (ended_.size() >= kUnknownGroupsMax) {
    return;
  }
  const EpochEnd end{head->group,   head->epoch,     static_cast<Code>(head->code),
                     head->culprit, head->loss != 0, span::text_of_bytes(message.subspan(sizeof *head))};
  if (ended(end.group, end.epoch) == nullptr) came_.push_back(end);
}

// What came before an end counts before it: an operation may have met all its nodes by now.
void SpanningBackend::end_what_came() {
  for (const EpochEnd& end : std::exchange(came_, {})) {
    if (!end_here(end)) continue;
    const std::lock_guard lock(wishes_mutex_);
    std::uint64_t& present = present_epoch_[end.group];
    present = std::max(present, end.epoch + 1);
    heard_.push_back(end);
    any_heard_.store(true, std::memory_order_release);
  }
}

SpanOperation* SpanningBackend::find(const OperationKey& key) {
  const auto found = std::find_if(operations_.begin(), operations_.end(),
                                  [&](const auto& each) { return !each->over() && each->key() == key; });
  return found == operations_.end() ? nullptr : found->get();
}

void SpanningBackend::keep(const OperationKey& key, Waiting waiting) {
  if (SpanOperation* const operation = find(key)) return hand_over(*operation, std::move(waiting));
  std::size_t& count = waiting_count_[waiting.from.value];
  if (count == kWaitingMax) {
    MUSTER_LOG(kWarning, "span", "node {} is {} operations ahead; what it says of the next one is dropped",
               options_.nodes[waiting.from.value], kWaitingMax);
    return;
  }
  ++count;
  waiting_[key].push_back(std::move(waiting));
}

void SpanningBackend::hand_over(SpanOperation& operation, Waiting waiting) {
  const Span& span = operation.span();
  const auto at = std::find(span.nodes.begin(), span.nodes.end(), waiting.from);
  if (at == span.nodes.end()) return;  // no node of that group
  const auto node = static_cast<std::uint32_t>(at - span.nodes.begin());
  if (!waiting.refusal.ok()) return operation.refused(node, waiting.refusal);
  operation.came(node, std::move(waiting.request));
}

// ---- epochs ------------------------------------------------------------------------------------

const EpochEnd* SpanningBackend::ended(std::uint64_t group, std::uint64_t epoch) const {
  const auto known = ended_.find(group);
  return known != ended_.end() && epoch <= known->second.epoch ? &known->second : nullptr;
}

bool SpanningBackend::end_here(const EpochEnd& end) {
  if (ended(end.group, end.epoch) != nullptr) return false;
  ended_[end.group] = end;
  const Status why(end.code, end.text, end.culprit);
  for (auto& operation : operations_)
    if (operation->key().place.group == end.group && operation->key().epoch <= end.epoch &&
        !operation->agreed())
      operation->fail(why);
  for (auto each = waiting_.begin(); each != waiting_.end();) {
    const OperationKey& key = each->first;
    if (key.place.group != end.group || key.epoch > end.epoch) {
      ++each;
      continue;
    }
    for (const Waiting& waiting : each->second) {
      --waiting_count_[waiting.from.value];
      if (waiting.refusal.ok()) connections_[waiting.from.value]->tell(span::refusal_of(key, why));
    }
    each = waiting_.erase(each);
  }
  const std::lock_guard lock(wishes_mutex_);
  std::erase_if(latest_, [&](const auto& each) {
    return each.first.place.group == end.group && each.first.epoch <= end.epoch;
  });
  return true;
}

void SpanningBackend::end(const EpochEnd& end) {
  {
    const std::lock_guard lock(wishes_mutex_);
    std::uint64_t& present = present_epoch_[end.group];
    present = std::max(present, end.epoch + 1);
    wishes_.ends.push_back(end);
  }
  wake_();
}

void SpanningBackend::take_ended(const std::function<void(const EpochEnd&)>& visit) {
  if (!any_heard_.load(std::memory_order_acquire)) return;
  std::vector<EpochEnd> heard;
  {
    const std::lock_guard lock(wishes_mutex_);
    heard.swap(heard_);
    any_heard_.store(false, std::memory_order_relaxed);
  }
  for (const EpochEnd& end : heard) visit(end);
}

// ---- operations --------------------------------------------------------------------------------

void SpanningBackend::launch(span::Launched launched) {
  {
    const std::lock_guard lock(wishes_mutex_);
    OperationKey counted = launched.key;
    counted.number = 0;
    latest_[counted] = launched.key.number;
    wishes_.launches.push_back(std::move(launched));
  }
  if (quiet_.exchange(false, std::memory_order_relaxed)) wake_();
}

void SpanningBackend::cancel(const StepOutcome& outcome) {
  {
    const std::lock_guard lock(wishes_mutex_);
    wishes_.cancelled.push_back(&outcome);
  }
  wake_();
}

std::string SpanningBackend::awaited(const StepOutcome& outcome) {
  const std::lock_guard lock(mutex_);
  for (const auto& operation : operations_)
    if (!operation->over() && operation->outcome() == &outcome) return operation->awaited();
  return {};
}

void SpanningBackend::carry_out(Wishes wishes) {
  for (span::Launched& launched : wishes.launches) begin(std::move(launched));
  for (const StepOutcome* outcome : wishes.cancelled)
    for (auto& operation : operations_)
      if (!operation->over() && operation->outcome() == outcome)
        operation->fail(failure(Code::kTimeout, "it has passed its deadline"));
  for (const EpochEnd& end : wishes.ends) {
    end_here(end);
    const auto span = span_of(end.group);
    if (span == nullptr) continue;
    for (const NodeIndex node : span->nodes)
      if (node != options_.here && connections_[node.value] != nullptr)
        connections_[node.value]->tell(span::message_of_end(end));
  }
}

void SpanningBackend::begin(span::Launched launched) {
  const OperationKey key = launched.key;
  operations_.push_back(span::begin_operation(std::move(launched), workshop_));
  SpanOperation& begun = *operations_.back();
  if (const EpochEnd* const end = ended(key.place.group, key.epoch))
    return begun.fail(Status(end->code, end->text, end->culprit));
  const auto waiting = waiting_.find(key);
  if (waiting == waiting_.end()) return;
  for (Waiting& each : waiting->second) {
    --waiting_count_[each.from.value];
    hand_over(begun, std::move(each));
  }
  waiting_.erase(waiting);
}

std::size_t SpanningBackend::progress() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return 0;
  quiet_.store(false, std::memory_order_relaxed);
  Wishes wishes;
  {
    const std::lock_guard wishes_lock(wishes_mutex_);
    std::swap(wishes, wishes_);
  }
  std::size_t moved = wishes.empty() ? 0 : 1;
  carry_out(std::move(wishes));
  for (auto& connection : connections_)
    if (connection != nullptr) connection->go_on();
  moved += network_->progress();
  for (auto& operation : operations_) moved += operation->advance();
  if (!came_.empty()) {
    end_what_came();
    for (auto& operation : operations_) moved += operation->advance();
  }
  if (moved > 0) moved_at_ = workshop_.clock.now();
  std::erase_if(operations_, [](const auto& operation) { return operation->over() && operation->quiet(); });
  return moved;
}

bool SpanningBackend::arm() {
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return false;
  // The answers of other nodes are soon there: to sleep until they come would take longer.
  if (!operations_.empty() && workshop_.clock.now() - moved_at_ < kPolled) return false;
  if (!network_->arm()) return false;
  quiet_.store(true, std::memory_order_relaxed);
  const std::lock_guard wishes_lock(wishes_mutex_);
  return wishes_.empty() && heard_.empty();
}

}  // namespace

std::unique_ptr<Backend> spanning_backend(std::unique_ptr<Network> network, SpanningOptions options,
                                          const Clock& clock) {
  return std::make_unique<SpanningBackend>(std::move(network), std::move(options), clock);
}

}  // namespace muster::transport
