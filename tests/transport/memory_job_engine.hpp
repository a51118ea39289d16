// The engine of one node of a MemoryJob, and the packets between them.
#pragma once

#include "tests/kernels/math/values.hpp"
#include "tests/transport/memory_job.hpp"

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <utility>
#include <vector>

namespace muster::transport::test {

// An operation as all of its nodes name it.
struct JobKey {
  PlaceKey place;
  std::uint32_t tag = 0;
  std::uint64_t epoch = 0, number = 0;
  friend auto operator<=>(const JobKey&, const JobKey&) = default;
};

// A node's half of an operation.
struct JobRequest {
  Hash128 common, balance;
};

struct JobPacket {
  enum class Kind : std::uint8_t { kHello, kAlive, kMessage, kEnd, kRequest, kRefusal, kBroken, kDone };
  Kind kind = Kind::kAlive;
  JobKey key;                    // kRequest, kRefusal, kDone
  JobRequest request;            // kRequest
  EpochEnd end;                  // kEnd
  Status why;                    // kRefusal, kBroken
  std::vector<std::byte> bytes;  // kMessage
  // Set by State::send().
  NodeIndex from;
  std::uint32_t generation = 0;
  std::uint64_t number = 0;
  Instant at{0};
};

struct JobPrepared final : Communicator::Prepared {
  JobPrepared(const Collective& all, Span of) : collective(all), span(std::move(of)) {}
  bool by_pairs() const { return has_faces(collective.op); }

  const Collective& collective;
  const Span span;
  std::set<NodeIndex> peers;  // nodes that it needs, beside its own
  JobRequest own;
  std::map<NodeIndex, Hash128> balances;  // of an EXCHANGE, for each peer
};

struct JobOperation {
  // All of its peers have come to it.
  bool has_agreed() const { return prepared != nullptr && heard.size() == prepared->peers.size(); }

  std::shared_ptr<JobPrepared> prepared;  // nullptr: it was not launched here
  std::vector<LocalMember> members;
  StepOutcome* outcome = nullptr;
  std::map<NodeIndex, JobRequest> heard;
  std::set<NodeIndex> moved;  // of an EXCHANGE
  std::optional<Status> refused;
  bool done = false;  // its outcome ends by a packet that is under way
};
inline Status cause_of_end(const EpochEnd& end) {
  return {end.code, end.text, end.culprit};
}

class MemoryJobEngine;

// Owns    the packets and the time of each pair of nodes. Thread  by its mutex. Bound  none. Fails  never.
class MemoryJob::State {
 public:
  State(std::uint32_t nodes, const Clock& clock, JobFaults faults)
      : clock(clock), engines(nodes), queues_(nodes), faults_(faults), random_(faults.seed) {}

  void send(NodeIndex from, NodeIndex to, std::uint32_t generation, JobPacket packet);
  // The first packet that has come by now.
  std::optional<JobPacket> take(NodeIndex to) {
    auto& queue = queues_[to.value];
    const auto first = std::ranges::min_element(
        queue, {}, [](const JobPacket& each) { return std::pair(each.at, each.number); });
    if (first == queue.end() || first->at > clock.now()) return std::nullopt;
    std::optional<JobPacket> packet = std::move(*first);
    queue.erase(first);
    return packet;
  }
  void drop_all(NodeIndex to) { queues_[to.value].clear(); }
  bool is_empty(NodeIndex to) const { return queues_[to.value].empty(); }
  std::optional<Instant> next() const {
    std::optional<Instant> first;
    for (const auto& queue : queues_)
      for (const JobPacket& packet : queue) first = std::min(first.value_or(packet.at), packet.at);
    return first;
  }

  mutable std::mutex mutex;
  const Clock& clock;
  std::vector<MemoryJobEngine*> engines;  // by NodeIndex; nullptr: it has ended, or was never there

 private:
  std::vector<std::deque<JobPacket>> queues_;  // by receiver
  const JobFaults faults_;
  math::test::Random random_;
  std::map<std::pair<NodeIndex, NodeIndex>, Instant> latest_;  // of a pair: its last packet comes then
  std::uint64_t sent_ = 0;
};

// One node.
//
// Owns    the state of its links and operations. Thread  any, by the mutex of the job. Bound  none.
// Fails   as the seams say.
class MemoryJobEngine final : public JobLinks, public CommunicatorFactory {
 public:
  MemoryJobEngine(std::shared_ptr<MemoryJob::State> state, NodeIndex here)
      : state_(std::move(state)), here_(here), links_(state_->engines.size()) {}
  ~MemoryJobEngine() override;

  // ---- JobLinks -----------------------------------------------------------------------------
  std::vector<std::byte> address() const override { return {std::byte{1}}; }
  Status connect(NodeIndex node, std::span<const std::byte> address, std::uint32_t generation) override;
  JobLinks::Link link(NodeIndex node) override;
  void lose(NodeIndex node, const Status& why) override;
  void take_lost(const std::function<void(const JobLinks::Lost&)>& visit) override { take(lost_, visit); }
  void stay_alive() override;
  void tell(NodeIndex node, std::span<const std::byte> message) override;
  void take_messages(const Messages& visit) override;
  bool in_use(std::uint64_t group) override;
  void end(const EpochEnd& end) override;
  void take_ended(const std::function<void(const EpochEnd&)>& visit) override { take(ended_, visit); }

  // ---- CommunicatorFactory ---------------------------------------------------------------------
  void use(std::function<void()> wake) override { wake_ = std::move(wake); }
  bool takes(const Span& span, Devices) const override { return !span.is_local(); }
  Result<std::unique_ptr<Communicator>> open(const Span& span, Devices devices) override;
  std::size_t progress() override;
  bool arm() override;

  // ---- for its communicators and the other nodes -----------------------------------------------
  MemoryJob::State& state() { return *state_; }
  void launch(const JobKey& key, std::shared_ptr<JobPrepared> prepared, std::span<const LocalMember> members,
              StepOutcome& outcome);
  void cancel(const StepOutcome& outcome);
  std::vector<std::uint32_t> awaited(const StepOutcome& outcome) const;
  std::uint64_t present_epoch(std::uint64_t group) const;
  void lost(NodeIndex node, const Status& why);
  JobOperation* find(const JobKey& key);
  void done(const JobKey& key, JobOperation& operation);
  void wake() const {
    if (wake_) wake_();
  }

 private:
  struct Link {
    bool begun = false, connected = false;
    std::uint32_t generation = 0;
    Status status = failure(Code::kPeerLost, "it is not connected");
    Instant heard_at{0}, said_at{0};
    std::vector<JobPacket> early;  // of a connection that has not begun here
    bool is_up() const { return begun && status.ok(); }
  };
  struct Come {
    NodeIndex from;
    std::uint32_t generation = 0;
    std::vector<std::byte> bytes;
  };
  template<class Each, class Visit>
  void take(std::vector<Each>& all, const Visit& visit) {
    std::vector<Each> taken;
    {
      const std::lock_guard lock(state_->mutex);
      taken.swap(all);
    }
    for (const Each& each : taken) visit(each);
  }
  void send(NodeIndex to, JobPacket packet);
  void hear(JobPacket packet);
  void heard_end(NodeIndex from, const EpochEnd& end);
  void apply_end(const EpochEnd& end, std::optional<NodeIndex> teller);
  void move(const JobKey& key, JobOperation& operation);
  bool differs(const JobOperation& operation) const;
  void move_row(const JobKey& key, JobOperation& operation);
  void move_pairs(const JobKey& key, JobOperation& operation);
  void fail(const JobKey& key, const Status& why);

  const std::shared_ptr<MemoryJob::State> state_;
  const NodeIndex here_;
  std::function<void()> wake_;
  std::vector<Link> links_;  // by NodeIndex
  std::vector<JobLinks::Lost> lost_;
  std::vector<Come> come_;
  std::vector<EpochEnd> ended_;                   // reported and not taken yet
  std::map<std::uint64_t, EpochEnd> latest_end_;  // by group
  std::map<std::uint64_t, Span> spans_;           // by group
  std::map<std::uint64_t, std::uint64_t> used_;   // by group: the latest epoch in which nodes agreed
  std::map<JobKey, JobOperation> operations_;
};
}  // namespace muster::transport::test
