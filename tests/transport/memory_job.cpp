#include "tests/transport/memory_job.hpp"

#include "tests/transport/memory_job_engine.hpp"

#include <string>
#include <utility>

namespace muster::transport::test {

void MemoryJob::State::send(NodeIndex from, NodeIndex to, std::uint32_t generation, JobPacket packet) {
  const auto put = [&](NodeIndex one, NodeIndex other, JobPacket each) {
    Instant& latest = latest_[{one, other}];
    const auto range = static_cast<std::uint64_t>(faults_.delay_max.count());
    const Nanos delay(range > 0 ? static_cast<std::int64_t>(random_.below(range)) : 0);
    latest = std::max(latest, clock.now() + delay);
    each.from = one;
    each.generation = generation;
    each.number = ++sent_;
    each.at = latest;
    queues_[other.value].push_back(std::move(each));
    if (engines[other.value] != nullptr) engines[other.value]->wake();
  };
  if (from != to && faults_.breaks_one_in > 0 && random_.below(faults_.breaks_one_in) == 0) {
    packet = {};
    packet.kind = JobPacket::Kind::kBroken;
    packet.why = failure(Code::kPeerLost, "the path between nodes {} and {} broke", from.value, to.value);
    put(to, from, packet);
  }
  put(from, to, std::move(packet));
}

// ---- links -------------------------------------------------------------------------------------

MemoryJobEngine::~MemoryJobEngine() {
  const std::lock_guard lock(state_->mutex);
  JobPacket broken;
  broken.kind = JobPacket::Kind::kBroken;
  broken.why = failure(Code::kPeerLost, "the engine of node {} is gone", here_.value);
  for (std::uint32_t node = 0; node < links_.size(); ++node)
    if (links_[node].is_up()) send(NodeIndex(node), broken);
  if (state_->engines[here_.value] != this) return;
  state_->engines[here_.value] = nullptr;
  state_->drop_all(here_);
}

void MemoryJobEngine::send(NodeIndex to, JobPacket packet) {
  links_[to.value].said_at = state_->clock.now();
  state_->send(here_, to, links_[to.value].generation, std::move(packet));
}

Status MemoryJobEngine::connect(NodeIndex node, std::span<const std::byte> address,
                                std::uint32_t generation) {
  const std::lock_guard lock(state_->mutex);
  if (node == here_ || node.value >= links_.size())
    return failure(Code::kBadArgument, "the job has no other node {}", node.value);
  lost(node, failure(Code::kPeerLost, "it connects anew"));
  Link& link = links_[node.value];
  if (address.empty()) return failure(Code::kBadArgument, "node {} has no address", node.value);
  link.begun = true;
  link.connected = false;
  link.generation = generation;
  link.status = {};
  for (const auto& [group, end] : latest_end_) {
    const auto span = spans_.find(group);
    if (span != spans_.end() && !std::ranges::binary_search(span->second.nodes, node)) continue;
    JobPacket packet;
    packet.kind = JobPacket::Kind::kEnd;
    packet.end = end;
    send(node, std::move(packet));
  }
  JobPacket hello;
  hello.kind = JobPacket::Kind::kHello;
  send(node, std::move(hello));
  for (JobPacket& packet : std::exchange(link.early, {})) hear(std::move(packet));
  return {};
}

JobLinks::Link MemoryJobEngine::link(NodeIndex node) {
  const std::lock_guard lock(state_->mutex);
  const Link& link = links_[node.value];
  if (node == here_) return {};
  const bool pending = link.is_up() && !link.connected;
  return {pending ? failure(Code::kPending, "node {} has not said hello", node.value) : link.status,
          link.generation, link.heard_at};
}

void MemoryJobEngine::lose(NodeIndex node, const Status& why) {
  const std::lock_guard lock(state_->mutex);
  if (node == here_ || node.value >= links_.size() || !links_[node.value].is_up()) return;
  JobPacket broken;
  broken.kind = JobPacket::Kind::kBroken;
  broken.why = failure(Code::kPeerLost, "node {} has closed the connection", here_.value);
  send(node, std::move(broken));
  lost(node, why);
}

// Under the mutex.
void MemoryJobEngine::lost(NodeIndex node, const Status& why) {
  Link& link = links_[node.value];
  if (!link.is_up()) return;
  link.status = why;
  lost_.push_back({node, link.generation, why});
  std::vector<JobKey> broken;
  for (const auto& [key, operation] : operations_) {
    if (operation.prepared == nullptr || operation.done) continue;
    if (operation.prepared->peers.contains(node) && !operation.moved.contains(node)) broken.push_back(key);
  }
  for (const JobKey& key : broken) fail(key, why);
  wake();
}

void MemoryJobEngine::stay_alive() {
  constexpr Nanos kSilence = std::chrono::milliseconds(150);
  const std::lock_guard lock(state_->mutex);
  for (std::uint32_t node = 0; node < links_.size(); ++node)
    if (links_[node].is_up() && links_[node].connected &&
        state_->clock.now() - links_[node].said_at >= kSilence)
      send(NodeIndex(node), {});
}

void MemoryJobEngine::tell(NodeIndex node, std::span<const std::byte> message) {
  const std::lock_guard lock(state_->mutex);
  if (!links_[node.value].is_up() || !links_[node.value].connected) return;
  JobPacket packet;
  packet.kind = JobPacket::Kind::kMessage;
  packet.bytes.assign(message.begin(), message.end());
  send(node, std::move(packet));
}

void MemoryJobEngine::take_messages(const Messages& visit) {
  take(come_, [&](const Come& each) { visit(each.from, each.generation, each.bytes); });
}

bool MemoryJobEngine::in_use(std::uint64_t group) {
  const std::uint64_t present = present_epoch(group);
  const std::lock_guard lock(state_->mutex);
  const auto used = used_.find(group);
  return used != used_.end() && used->second == present;
}

std::uint64_t MemoryJobEngine::present_epoch(std::uint64_t group) const {
  const std::lock_guard lock(state_->mutex);
  const auto end = latest_end_.find(group);
  return end == latest_end_.end() ? 1 : end->second.epoch + 1;
}

// ---- ends of epochs ----------------------------------------------------------------------------

void MemoryJobEngine::end(const EpochEnd& end) {
  const std::lock_guard lock(state_->mutex);
  const auto known = latest_end_.find(end.group);
  if (known != latest_end_.end() && end.epoch <= known->second.epoch) return;
  apply_end(end, std::nullopt);
  const auto span = spans_.find(end.group);
  if (span == spans_.end()) return;
  for (const NodeIndex node : span->second.nodes) {
    if (node == here_ || !links_[node.value].is_up()) continue;
    JobPacket packet;
    packet.kind = JobPacket::Kind::kEnd;
    packet.end = end;
    send(node, std::move(packet));
  }
}

void MemoryJobEngine::heard_end(NodeIndex from, const EpochEnd& end) {
  const auto known = latest_end_.find(end.group);
  if (known != latest_end_.end() && end.epoch <= known->second.epoch) return;
  apply_end(end, from);
  ended_.push_back(end);
  wake();
}

// An operation to which the teller has come waits on: the teller has all requests, or it refuses.
void MemoryJobEngine::apply_end(const EpochEnd& end, std::optional<NodeIndex> teller) {
  latest_end_[end.group] = end;
  std::vector<JobKey> over;
  std::erase_if(operations_, [&](const auto& each) {
    const auto& [key, operation] = each;
    if (key.place.group != end.group || key.epoch > end.epoch) return false;
    if (operation.prepared == nullptr) return true;
    const bool waits = !operation.done && !operation.has_agreed();
    if (waits && !(teller && operation.heard.contains(*teller))) over.push_back(key);
    return false;
  });
  for (const JobKey& key : over) fail(key, cause_of_end(end));
}

// ---- packets -----------------------------------------------------------------------------------

std::size_t MemoryJobEngine::progress() {
  const std::lock_guard lock(state_->mutex);
  if (state_->engines[here_.value] != this) return 0;
  std::size_t heard = 0;
  while (auto packet = state_->take(here_)) {
    ++heard;
    hear(*std::move(packet));
  }
  return heard;
}

// It is polled while a packet is under way, since nothing but the clock of the test says when that comes.
bool MemoryJobEngine::arm() {
  const std::lock_guard lock(state_->mutex);
  return state_->is_empty(here_);
}

void MemoryJobEngine::hear(JobPacket packet) {
  using Kind = JobPacket::Kind;
  if (packet.kind == Kind::kDone) {
    const auto over = operations_.extract(packet.key);
    if (!over.empty()) over.mapped().outcome->release(state_->clock.now());
    return wake();
  }
  Link& link = links_[packet.from.value];
  if (!link.begun || packet.generation > link.generation) return link.early.push_back(std::move(packet));
  if (packet.generation < link.generation || !link.is_up()) return;
  link.heard_at = state_->clock.now();
  const auto end = latest_end_.find(packet.key.place.group);
  const bool late = end != latest_end_.end() && packet.key.epoch <= end->second.epoch;
  switch (packet.kind) {
    case Kind::kAlive:
    case Kind::kDone:
      break;
    case Kind::kHello:
      link.connected = true;
      break;
    case Kind::kMessage:
      come_.push_back({packet.from, packet.generation, std::move(packet.bytes)});
      break;
    case Kind::kEnd:
      return heard_end(packet.from, packet.end);
    case Kind::kBroken:
      return lost(packet.from, packet.why);
    case Kind::kRefusal:
      if (JobOperation* const known = find(packet.key); known != nullptr && known->prepared != nullptr) {
        if (!known->done && !known->moved.contains(packet.from)) fail(packet.key, packet.why);
      } else if (!late) {
        operations_[packet.key].refused = packet.why;
      }
      break;
    case Kind::kRequest:
      if (JobOperation* const known = find(packet.key); known != nullptr && known->prepared != nullptr) {
        known->heard[packet.from] = packet.request;
        move(packet.key, *known);
      } else if (late) {
        JobPacket refusal;
        refusal.kind = Kind::kRefusal;
        refusal.key = packet.key;
        refusal.why = cause_of_end(end->second);
        send(packet.from, std::move(refusal));
      } else {
        operations_[packet.key].heard[packet.from] = packet.request;
      }
      break;
  }
  wake();
}

// ---- the job -----------------------------------------------------------------------------------

MemoryJob::MemoryJob(std::uint32_t nodes, const Clock& clock, JobFaults faults)
    : state_(std::make_shared<State>(nodes, clock, faults)) {}

JobTransport MemoryJob::open(NodeIndex node) {
  auto engine = std::make_shared<MemoryJobEngine>(state_, node);
  const std::lock_guard lock(state_->mutex);
  state_->drop_all(node);
  state_->engines[node.value] = engine.get();
  return {{engine}, engine};
}

std::optional<Instant> MemoryJob::next() const {
  const std::lock_guard lock(state_->mutex);
  return state_->next();
}

}  // namespace muster::transport::test
