// The collectives of a MemoryJob.
#include "api/base/collective/signature.hpp"
#include "tests/transport/memory_job_engine.hpp"
#include "transport/loopback/parts.hpp"

#include <algorithm>
#include <deque>
#include <string>
#include <utility>

namespace muster::transport::test {
namespace {

// A group's half on one node. Owns  nothing. Thread, Fails  as Communicator.
class JobCommunicator final : public Communicator {
 public:
  JobCommunicator(MemoryJobEngine& engine, Span span) : engine_(engine), span_(std::move(span)) {}

  std::int32_t ranks() const noexcept override { return span_.ranks(); }
  Result<std::shared_ptr<Communicator::Prepared>> prepare(const Collective& collective,
                                                          std::span<const LocalMember> members) override;
  Status launch(const std::shared_ptr<Communicator::Prepared>& prepared, std::span<const LocalMember> members,
                const MatchKey& key, device::Priority, StepOutcome& outcome) override {
    const auto here = std::static_pointer_cast<JobPrepared>(prepared);
    const std::uint32_t tag = is_transfer(here->collective.op) ? here->collective.tag : 0;
    engine_.launch({key.place, tag, key.epoch, key.number}, here, members, outcome);
    return {};
  }
  std::uint64_t first_epoch() const override { return engine_.present_epoch(span_.group); }
  void cancel(StepOutcome& outcome) override { engine_.cancel(outcome); }
  std::vector<std::uint32_t> awaited(const StepOutcome& outcome) const override {
    return engine_.awaited(outcome);
  }

 private:
  MemoryJobEngine& engine_;
  const Span span_;
};

Result<std::shared_ptr<Communicator::Prepared>> JobCommunicator::prepare(
    const Collective& collective, std::span<const LocalMember> members) {
  MUSTER_RETURN_IF_ERROR(validate(collective, ranks()));
  auto prepared = std::make_shared<JobPrepared>(collective, span_);
  std::vector<Hash128> by_node(span_.nodes.size());
  for (const LocalMember& member : members) {
    prepared->own.common = member.signature->common;
    prepared->own.balance += member.signature->balance;
    if (!prepared->by_pairs()) continue;
    add_face_balances(*member.share, span_.node_of, by_node);
    for (const auto* faces : {&member.share->sends, &member.share->receives})
      for (const Face& face : *faces)
        prepared->peers.insert(span_.nodes[span_.node_of[static_cast<std::size_t>(face.peer)]]);
  }
  for (std::size_t i = 0; i < by_node.size(); ++i) prepared->balances[span_.nodes[i]] = by_node[i];
  if (is_transfer(collective.op)) {
    for (const std::int32_t member : {collective.root, collective.receiver})
      prepared->peers.insert(span_.nodes[span_.node_of[static_cast<std::size_t>(member)]]);
  } else if (!prepared->by_pairs()) {
    prepared->peers.insert(span_.nodes.begin(), span_.nodes.end());
  }
  prepared->peers.erase(span_.nodes[span_.here]);
  return prepared;
}

// Runs a collective for all members at once. `of`: the members that there are, by index.
void run_all(const Collective& collective, std::vector<loopback::Member> of) {
  std::vector<std::uint64_t> starts(of.size() + 1);
  const loopback::CollectiveRow row = loopback::cut(collective, of, starts);
  for (std::uint32_t part = 0; part < row.parts; ++part) loopback::execute_part(row, part);
}

// The share with its faces to and from members on `node` alone.
Share faces_with(const Share& share, const Span& span, NodeIndex node) {
  Share some = share;
  const auto elsewhere = [&](const Face& face) {
    return span.nodes[span.node_of[static_cast<std::size_t>(face.peer)]] != node;
  };
  std::erase_if(some.sends, elsewhere);
  std::erase_if(some.receives, elsewhere);
  return some;
}

}  // namespace
Result<std::unique_ptr<Communicator>> MemoryJobEngine::open(const Span& span, Devices /*devices*/) {
  for (const NodeIndex node : span.nodes)
    if (node.value >= links_.size())
      return muster::fail(Code::kBadArgument, "the job has no node {}", node.value);
  const std::lock_guard lock(state_->mutex);
  spans_[span.group] = span;
  return std::make_unique<JobCommunicator>(*this, span);
}

JobOperation* MemoryJobEngine::find(const JobKey& key) {
  const auto known = operations_.find(key);
  return known == operations_.end() ? nullptr : &known->second;
}

void MemoryJobEngine::launch(const JobKey& key, std::shared_ptr<JobPrepared> prepared,
                             std::span<const LocalMember> members, StepOutcome& outcome) {
  const std::lock_guard lock(state_->mutex);
  outcome.hold();
  JobOperation& operation = operations_[key];
  operation.prepared = std::move(prepared);
  operation.members.assign(members.begin(), members.end());
  operation.outcome = &outcome;
  const auto end = latest_end_.find(key.place.group);
  if (end != latest_end_.end() && key.epoch <= end->second.epoch) return fail(key, cause_of_end(end->second));
  for (const NodeIndex peer : operation.prepared->peers)
    if (!links_[peer.value].is_up()) return fail(key, links_[peer.value].status);
  if (operation.refused) return fail(key, Status(*operation.refused));
  for (const NodeIndex peer : operation.prepared->peers) {
    JobPacket packet;
    packet.kind = JobPacket::Kind::kRequest;
    packet.key = key;
    packet.request = operation.prepared->own;
    if (operation.prepared->by_pairs()) packet.request.balance = operation.prepared->balances[peer];
    send(peer, std::move(packet));
  }
  move(key, operation);
}

bool MemoryJobEngine::differs(const JobOperation& operation) const {
  const JobPrepared& prepared = *operation.prepared;
  Hash128 all = prepared.own.balance;
  for (const auto& [node, request] : operation.heard) {
    if (request.common != prepared.own.common) return true;
    Hash128 pair = request.balance;
    all += pair;
    if (!prepared.by_pairs()) continue;
    pair += prepared.balances.at(node);
    if (!pair.zero()) return true;
  }
  return !prepared.by_pairs() && operation.has_agreed() && !all.zero();
}

void MemoryJobEngine::move(const JobKey& key, JobOperation& operation) {
  if (operation.prepared == nullptr || operation.done) return;
  if (differs(operation)) return fail(key, failure(Code::kMismatch, "the nodes do not mean the same"));
  operation.prepared->by_pairs() ? move_pairs(key, operation) : move_row(key, operation);
}

// Once all nodes have agreed nothing can hold the collective up, so the last one moves it for all.
void MemoryJobEngine::move_row(const JobKey& key, JobOperation& operation) {
  if (!operation.has_agreed()) return;
  const JobPrepared& prepared = *operation.prepared;
  used_[key.place.group] = std::max(used_[key.place.group], key.epoch);
  std::vector<JobOperation*> all{&operation};
  for (const NodeIndex peer : prepared.peers) {
    MemoryJobEngine* const engine = state_->engines[peer.value];
    JobOperation* const there = engine != nullptr ? engine->find(key) : nullptr;
    if (there == nullptr || !there->has_agreed()) return;
    all.push_back(there);
  }
  const bool transfer = is_transfer(prepared.collective.op);
  std::vector<loopback::Member> members(transfer ? 2 : prepared.span.node_of.size());
  for (const JobOperation* each : all)
    for (const LocalMember& member : each->members) {
      const bool receives = transfer && member.share->index == prepared.collective.receiver;
      const auto place = transfer ? std::size_t{receives} : static_cast<std::size_t>(member.share->index);
      members[place] = {member.share, member.bases.source, member.bases.target, false};
    }
  run_all(prepared.collective, std::move(members));
  done(key, operation);
  for (const NodeIndex peer : prepared.peers) {
    MemoryJobEngine& engine = *state_->engines[peer.value];
    engine.done(key, *engine.find(key));
  }
}

// The faces between two nodes move once each has heard of the other.
void MemoryJobEngine::move_pairs(const JobKey& key, JobOperation& operation) {
  const JobPrepared& prepared = *operation.prepared;
  if (operation.has_agreed()) used_[key.place.group] = std::max(used_[key.place.group], key.epoch);
  const auto run_between = [&](JobOperation& other, NodeIndex peer) {
    Share none;
    std::vector<loopback::Member> members(prepared.span.node_of.size(), {&none, nullptr, nullptr, false});
    std::deque<Share> shares;
    const auto put = [&](const JobOperation& of, NodeIndex towards) {
      for (const LocalMember& member : of.members)
        members[static_cast<std::size_t>(member.share->index)] = {
            &shares.emplace_back(faces_with(*member.share, prepared.span, towards)), member.bases.source,
            member.bases.target, false};
    };
    put(operation, peer);
    if (&other != &operation) put(other, here_);
    std::erase_if(members, [&](const loopback::Member& member) { return member.share == &none; });
    run_all(prepared.collective, std::move(members));
  };
  for (const auto& [peer, request] : operation.heard) {
    MemoryJobEngine* const engine = state_->engines[peer.value];
    JobOperation* const there = engine != nullptr ? engine->find(key) : nullptr;
    if (operation.moved.contains(peer) || there == nullptr || there->prepared == nullptr) continue;
    if (!there->heard.contains(here_)) continue;
    run_between(*there, peer);
    operation.moved.insert(peer);
    there->moved.insert(here_);
    if (there->moved.size() == there->prepared->peers.size()) engine->move_pairs(key, *there);
  }
  if (operation.done || operation.moved.size() < prepared.peers.size()) return;
  run_between(operation, here_);
  done(key, operation);
}

// The outcome of each node ends in its own time.
void MemoryJobEngine::done(const JobKey& key, JobOperation& operation) {
  operation.done = true;
  JobPacket packet;
  packet.kind = JobPacket::Kind::kDone;
  packet.key = key;
  state_->send(here_, here_, 0, std::move(packet));
}

void MemoryJobEngine::fail(const JobKey& key, const Status& why) {
  const auto failed = operations_.extract(key);
  if (failed.empty() || failed.mapped().prepared == nullptr) return;
  JobPacket packet;
  packet.kind = JobPacket::Kind::kRefusal;
  packet.key = key;
  packet.why = why;
  for (const NodeIndex peer : failed.mapped().prepared->peers)
    if (links_[peer.value].is_up()) send(peer, packet);
  failed.mapped().outcome->fail(why);
  failed.mapped().outcome->release(state_->clock.now());
  wake();
}

void MemoryJobEngine::cancel(const StepOutcome& outcome) {
  const std::lock_guard lock(state_->mutex);
  for (const auto& [key, operation] : operations_)
    if (operation.outcome == &outcome && !operation.done)
      return fail(JobKey(key), failure(Code::kTimeout, "it has passed its deadline"));
}

std::vector<std::uint32_t> MemoryJobEngine::awaited(const StepOutcome& outcome) const {
  const std::lock_guard lock(state_->mutex);
  std::vector<std::uint32_t> members;
  for (const auto& [key, operation] : operations_) {
    if (operation.outcome != &outcome || operation.prepared == nullptr) continue;
    const JobPrepared& prepared = *operation.prepared;
    for (std::uint32_t member = 0; member < prepared.span.node_of.size(); ++member) {
      const NodeIndex node = prepared.span.nodes[prepared.span.node_of[member]];
      const bool other_end = !is_transfer(prepared.collective.op) ||
                             static_cast<std::int32_t>(member) == prepared.collective.root ||
                             static_cast<std::int32_t>(member) == prepared.collective.receiver;
      if (other_end && prepared.peers.contains(node) && !operation.heard.contains(node))
        members.push_back(member);
    }
  }
  return members;
}

}  // namespace muster::transport::test
