#include "tests/transport/memory_network.hpp"

#include "tests/kernels/math/values.hpp"
#include "tests/transport/memory_node.hpp"
#include "transport/endpoint/envelope.hpp"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <set>
#include <tuple>
#include <utility>

#include <sys/eventfd.h>

namespace muster::transport::test {
namespace {

constexpr std::uint64_t kMemoryAddressKind = 0x315244444d454d4dULL;
constexpr std::uint64_t kMemoryKeyKind = 0x3159454b4d454d4dULL;

std::vector<std::byte> numbered_envelope(Envelope head, std::uint64_t number) {
  return seal_envelope(head, std::as_bytes(std::span(&number, 1)));
}

Result<std::pair<Envelope, std::uint64_t>> open_numbered(Bytes bytes, std::uint64_t kind, const char* what) {
  MUSTER_ASSIGN_OR_RETURN(const Envelope head, open_envelope(bytes, kind, what));
  const Bytes body = body_of_envelope(bytes);
  std::uint64_t number = 0;
  if (body.size() != sizeof number) return fail(Code::kBadArgument, "a {} of {} bytes", what, bytes.size());
  std::memcpy(&number, body.data(), sizeof number);
  return std::pair(head, number);
}

}  // namespace

// The shared state of a hub's nodes: all nodes, past ones included, and the traffic between them.
//
// Owns    the nodes. A node's number, which is its address, is its place among them.
// Thread  any: each public function takes the lock.
// Bound   none.
// Fails   functions that begin an operation: as Endpoint says.
class MemoryLinks {
 public:
  explicit MemoryLinks(MemoryFaults faults) : faults_(faults), random_(faults.seed) {}

  std::pair<MemoryNode*, std::uint64_t> open(NodeIndex index);
  void lose(NodeIndex index);
  void lose(MemoryNode& node);
  void cut(NodeIndex from, NodeIndex to);
  void hold(NodeIndex one, NodeIndex other);
  void restore(NodeIndex one, NodeIndex other);
  MemoryHub::Unmatched unmatched(NodeIndex from, NodeIndex to);

  Result<MemoryConnectionRef> connect(MemoryNode& here, NodeIndex peer, std::uint64_t number);
  void close(const MemoryConnectionRef& connection);
  Status status(const MemoryConnection& connection);
  std::uint64_t add_memory(MemoryNode& node, WritableBytes memory);
  void remove_memory(MemoryNode& node, std::uint64_t generation);

  // Something for the peer, with what is the operation's own memory.
  Status launch(MemoryPacket packet, Bytes memory, Transfer& transfer);
  Status receive(const MemoryConnectionRef& connection, MessageTag tag, WritableBytes into,
                 Transfer& transfer);

  std::size_t progress(MemoryNode& node);
  bool arm(MemoryNode& node);
  std::size_t keeps_below() const { return faults_.keeps_below; }

 private:
  bool draw(std::uint32_t percent) { return percent > 0 && random_.below(100) < percent; }
  // The call of progress() by which something comes to the node, or is told there.
  std::uint64_t due(const MemoryNode& node, std::uint32_t percent);
  void lose_locked(MemoryNode& node);
  void recall_between(NodeIndex one, NodeIndex other);

  Result<MemoryOperationRef> begin(MemoryConnection& connection, Bytes memory, Transfer& transfer);
  void fly(MemoryPacket packet);
  void notice(MemoryNode& node);
  bool notices(const MemoryNode& node, const MemoryConnection& connection) const;
  void arrive(MemoryNode& node);
  void take(MemoryNode& node, MemoryPacket packet);
  void hand(const MemoryOperationRef& receive, const MemoryPacket& packet);
  void end(MemoryOperationRef operation, Status status);
  void fail_connection(MemoryConnection& connection, const Status& why);

  const MemoryFaults faults_;
  std::mutex mutex_;
  math::test::Random random_;
  std::vector<std::unique_ptr<MemoryNode>> nodes_;
  MemoryPaths paths_;
  std::uint64_t numbers_ = 0;      // of operations and packets
  std::uint64_t generations_ = 0;  // of memories
};

// ---- nodes and the paths between them ----------------------------------------------------------

std::pair<MemoryNode*, std::uint64_t> MemoryLinks::open(NodeIndex index) {
  lose(index);
  const std::lock_guard lock(mutex_);
  nodes_.push_back(std::make_unique<MemoryNode>(index));
  return {nodes_.back().get(), nodes_.size() - 1};
}

void MemoryLinks::lose(NodeIndex index) {
  const std::lock_guard lock(mutex_);
  for (const auto& node : nodes_)
    if (node->index == index) lose_locked(*node);
}

void MemoryLinks::lose(MemoryNode& node) {
  const std::lock_guard lock(mutex_);
  lose_locked(node);
  node.ended.clear();  // nobody is left to tell
}

void MemoryLinks::lose_locked(MemoryNode& node) {
  if (std::exchange(node.lost, true)) return;
  node.flying.clear();
  node.arrived.clear();
  node.posted.clear();
  for (const auto& other : nodes_) {
    std::erase_if(other->flying,
                  [&](const MemoryPacket& packet) { return packet.connection->here == &node; });
    for (auto& [key, packets] : other->arrived)
      std::erase_if(packets, [&](const MemoryPacket& packet) {
        return packet.operation && packet.connection->here == &node;
      });
    other->ring();
  }
}

void MemoryLinks::cut(NodeIndex from, NodeIndex to) {
  const std::lock_guard lock(mutex_);
  paths_.set(from, to, MemoryPaths::State::kCut);
  recall_between(from, to);
  for (const auto& node : nodes_) {
    for (const MemoryPacket& packet : node->flying)
      if (paths_.of(packet) == MemoryPaths::State::kCut) packet.connection->torn = true;
    std::erase_if(node->flying, [](const MemoryPacket& packet) { return packet.connection->torn; });
  }
}

void MemoryLinks::hold(NodeIndex one, NodeIndex other) {
  const std::lock_guard lock(mutex_);
  paths_.set(one, other, MemoryPaths::State::kHeld);
  paths_.set(other, one, MemoryPaths::State::kHeld);
  recall_between(one, other);
}

void MemoryLinks::restore(NodeIndex one, NodeIndex other) {
  const std::lock_guard lock(mutex_);
  paths_.restore(one, other);
  paths_.restore(other, one);
  for (const auto& node : nodes_) node->ring();
}

MemoryHub::Unmatched MemoryLinks::unmatched(NodeIndex from, NodeIndex to) {
  const std::lock_guard lock(mutex_);
  MemoryHub::Unmatched found;
  const auto is_of_pair = [&](std::uint64_t key) { return key >> 48 == from.value; };
  for (const auto& node : nodes_) {
    if (node->index != to || node->lost) continue;
    for (const MemoryPacket& packet : node->flying)
      found.messages += packet.kind == MemoryPacket::Kind::kMessage && is_of_pair(packet.key) ? 1 : 0;
    for (const auto& [key, packets] : node->arrived)
      if (is_of_pair(key)) found.messages += packets.size();
    for (const auto& [key, receives] : node->posted)
      if (is_of_pair(key))
        found.receives += static_cast<std::size_t>(
            std::ranges::count_if(receives, [](const MemoryOperationRef& each) { return !each->over; }));
  }
  return found;
}

void MemoryLinks::recall_between(NodeIndex one, NodeIndex other) {
  for (const auto& node : nodes_) {
    if (node->index == one) node->recall(other);
    if (node->index == other) node->recall(one);
    node->ring();
  }
}

std::uint64_t MemoryLinks::due(const MemoryNode& node, std::uint32_t percent) {
  return draw(percent) ? node.calls + 2 + random_.below(faults_.calls_max) : node.calls;
}

// ---- connections -------------------------------------------------------------------------------

Result<MemoryConnectionRef> MemoryLinks::connect(MemoryNode& here, NodeIndex peer, std::uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (number >= nodes_.size() || nodes_[number]->index != peer)
    return fail(Code::kBadArgument, "node {} does not have this address", peer.value);
  auto connection = std::make_shared<MemoryConnection>();
  connection->here = &here;
  connection->there = nodes_[number].get();
  here.connections.push_back(connection.get());
  here.ring();
  return connection;
}

void MemoryLinks::close(const MemoryConnectionRef& connection) {
  const std::lock_guard lock(mutex_);
  std::erase(connection->here->connections, connection.get());
  fail_connection(*connection, failure(Code::kAborted, "the connection was closed"));
}

Status MemoryLinks::status(const MemoryConnection& connection) {
  const std::lock_guard lock(mutex_);
  return connection.failed;
}

std::uint64_t MemoryLinks::add_memory(MemoryNode& node, WritableBytes memory) {
  const std::lock_guard lock(mutex_);
  node.memories[++generations_] = memory;
  return generations_;
}

void MemoryLinks::remove_memory(MemoryNode& node, std::uint64_t generation) {
  const std::lock_guard lock(mutex_);
  node.memories.erase(generation);
}

Result<MemoryOperationRef> MemoryLinks::begin(MemoryConnection& connection, Bytes memory,
                                              Transfer& transfer) {
  MUSTER_RETURN_IF_ERROR(connection.failed);
  if (draw(faults_.refuse_percent)) return fail(Code::kNoResource, "the network has no room");
  auto operation = std::make_shared<MemoryOperation>();
  operation->number = ++numbers_;
  operation->connection = &connection;
  operation->transfer = &transfer;
  operation->data = const_cast<std::byte*>(memory.data());
  operation->bytes = memory.size();
  connection.open.emplace(operation->number, operation);
  return operation;
}

Status MemoryLinks::launch(MemoryPacket packet, Bytes memory, Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  MUSTER_ASSIGN_OR_RETURN(packet.operation, begin(*packet.connection, memory, transfer));
  const bool carries = packet.kind == MemoryPacket::Kind::kMessage || packet.kind == MemoryPacket::Kind::kPut;
  if (carries && memory.size() <= kMemoryKept) {
    packet.kept.assign(memory.begin(), memory.end());
    end(std::exchange(packet.operation, nullptr), {});
  }
  fly(std::move(packet));
  return {};
}

void MemoryLinks::fly(MemoryPacket packet) {
  MemoryNode& to = *packet.connection->there;
  if (to.lost || packet.connection->here->lost) return;
  if (paths_.of(packet) == MemoryPaths::State::kCut) packet.connection->torn = true;
  if (packet.connection->torn) return;
  packet.number = ++numbers_;
  packet.due = due(to, faults_.delay_percent);
  auto place = to.flying.end();
  if (draw(faults_.reorder_percent)) {
    const auto may_overtake = [&](const MemoryPacket& other) {
      return packet.kind != MemoryPacket::Kind::kMessage || other.kind != packet.kind ||
             other.key != packet.key;
    };
    for (auto steps = random_.below(to.flying.size() + 1); steps > 0; --steps, --place)
      if (!may_overtake(*std::prev(place))) break;
  }
  to.flying.insert(place, std::move(packet));
  to.ring();
}

Status MemoryLinks::receive(const MemoryConnectionRef& connection, MessageTag tag, WritableBytes into,
                            Transfer& transfer) {
  const std::lock_guard lock(mutex_);
  MUSTER_ASSIGN_OR_RETURN(MemoryOperationRef operation, begin(*connection, into, transfer));
  operation->receives = true;
  MemoryNode& here = *connection->here;
  const std::uint64_t key = whole_tag(connection->there->index, tag);
  auto& packets = here.arrived[key];
  while (!packets.empty() && packets.front().withdrawn()) packets.pop_front();
  if (packets.empty()) {
    here.posted[key].push_back(std::move(operation));
  } else {
    hand(operation, packets.front());
    packets.pop_front();
  }
  return {};
}

void MemoryLinks::end(MemoryOperationRef operation, Status status) {
  if (std::exchange(operation->over, true)) return;
  MemoryConnection& connection = *std::exchange(operation->connection, nullptr);
  connection.open.erase(operation->number);
  operation->status = std::move(status);
  operation->due = due(*connection.here, faults_.late_percent);
  connection.here->ended.push_back(std::move(operation));
  connection.here->ring();
}

void MemoryLinks::fail_connection(MemoryConnection& connection, const Status& why) {
  if (!connection.failed.ok()) return;
  connection.failed = why;
  while (!connection.open.empty()) {
    const MemoryOperationRef operation = connection.open.begin()->second;
    if (operation->receives && operation->bytes < faults_.keeps_below) {
      operation->over = true;
      connection.open.erase(operation->number);
    } else {
      end(operation, why);
    }
  }
}

// ---- progress ----------------------------------------------------------------------------------

std::size_t MemoryLinks::progress(MemoryNode& node) {
  std::vector<MemoryOperationRef> told;
  {
    const std::lock_guard lock(mutex_);
    ++node.calls;
    notice(node);
    arrive(node);
    for (auto it = node.ended.begin(); it != node.ended.end();) {
      const auto operation = it++;
      if ((*operation)->due > node.calls) continue;
      told.push_back(std::move(*operation));
      node.ended.erase(operation);
    }
  }
  for (const MemoryOperationRef& operation : told)
    operation->transfer->done(operation->status, operation->status.ok() ? operation->bytes : 0);
  return told.size();
}

bool MemoryLinks::arm(MemoryNode& node) {
  const std::lock_guard lock(mutex_);
  eventfd_t rung = 0;
  eventfd_read(node.bell, &rung);
  if (!node.ended.empty()) return false;
  const auto open = [&](const MemoryPacket& packet) {
    return packet.withdrawn() || paths_.of(packet) == MemoryPaths::State::kOpen;
  };
  const auto noticed = [&](const MemoryConnection* connection) { return notices(node, *connection); };
  return std::ranges::none_of(node.flying, open) && std::ranges::none_of(node.connections, noticed);
}

bool MemoryLinks::notices(const MemoryNode& node, const MemoryConnection& connection) const {
  if (!connection.failed.ok()) return false;
  return node.lost || (connection.there->lost &&
                       paths_.of(connection.there->index, node.index) == MemoryPaths::State::kOpen);
}

void MemoryLinks::notice(MemoryNode& node) {
  for (MemoryConnection* connection : node.connections) {
    if (!notices(node, *connection)) continue;
    if (!connection->noticed) connection->noticed = due(node, faults_.delay_percent);
    if (*connection->noticed > node.calls) continue;
    fail_connection(*connection, failure(Code::kPeerLost, "node {} is gone", connection->there->index.value));
  }
}

void MemoryLinks::arrive(MemoryNode& node) {
  std::set<std::uint64_t> waiting;  // tags of which an earlier message is still under way
  const auto put_before = [&](const MemoryPacket& flush) {
    return std::ranges::any_of(node.flying, [&](const MemoryPacket& packet) {
      return packet.kind == MemoryPacket::Kind::kPut && packet.connection == flush.connection &&
             packet.number < flush.number && !packet.withdrawn();
    });
  };
  for (auto it = node.flying.begin(); it != node.flying.end();) {
    const auto packet = it++;
    const bool is_message = packet->kind == MemoryPacket::Kind::kMessage;
    if (!packet->withdrawn()) {
      const bool waits = packet->due > node.calls || paths_.of(*packet) != MemoryPaths::State::kOpen ||
                         (is_message && waiting.contains(packet->key)) ||
                         (packet->kind == MemoryPacket::Kind::kFlush && put_before(*packet));
      if (waits && is_message) waiting.insert(packet->key);
      if (waits) continue;
      take(node, std::move(*packet));
    }
    node.flying.erase(packet);
  }
}

void MemoryLinks::take(MemoryNode& node, MemoryPacket packet) {
  if (packet.kind == MemoryPacket::Kind::kMessage) {
    auto& receives = node.posted[packet.key];
    while (!receives.empty() && receives.front()->over) receives.pop_front();
    if (receives.empty()) {
      node.arrived[packet.key].push_back(std::move(packet));
    } else {
      hand(receives.front(), packet);
      receives.pop_front();
    }
    return;
  }
  if (packet.kind != MemoryPacket::Kind::kFlush) {
    const auto memory = node.memories.find(packet.generation);
    if (memory == node.memories.end())
      return fail_connection(*packet.connection,
                             failure(Code::kPeerLost, "node {} has withdrawn its memory", node.index.value));
    const WritableBytes place = memory->second.subspan(packet.offset, packet.bytes().size());
    if (packet.kind == MemoryPacket::Kind::kPut)
      std::ranges::copy(packet.bytes(), place.begin());
    else
      std::ranges::copy(place, packet.operation->data);
  }
  if (packet.operation) end(packet.operation, {});
}

void MemoryLinks::hand(const MemoryOperationRef& receive, const MemoryPacket& packet) {
  const Bytes bytes = packet.bytes();
  if (bytes.size() > receive->bytes)
    return end(receive, failure(Code::kProtocol, "a message of {} bytes came where there is room for {}",
                                bytes.size(), receive->bytes));
  std::ranges::copy(bytes, receive->data);
  receive->bytes = bytes.size();
  end(receive, {});
  if (packet.operation) end(packet.operation, {});
}

// ---- the seam ----------------------------------------------------------------------------------

class MemoryRegistration final : public RegisteredMemory {
 public:
  MemoryRegistration(MemoryLinks& links, MemoryNode& node, std::uint64_t number, WritableBytes memory)
      : links_(links), node_(node), generation_(links.add_memory(node, memory)) {
    Envelope head;
    head.kind = kMemoryKeyKind;
    head.generation = generation_;
    head.bytes = memory.size();
    key_ = numbered_envelope(head, number);
  }
  ~MemoryRegistration() override { links_.remove_memory(node_, generation_); }
  MemoryRegistration(const MemoryRegistration&) = delete;
  MemoryRegistration& operator=(const MemoryRegistration&) = delete;
  Bytes key() const noexcept override { return key_; }

 private:
  MemoryLinks& links_;
  MemoryNode& node_;
  const std::uint64_t generation_;
  std::vector<std::byte> key_;
};

class MemoryOfPeer final : public RemoteMemory {
 public:
  explicit MemoryOfPeer(const Envelope& head) : head_(head) {}
  std::uint64_t bytes() const noexcept override { return head_.bytes; }
  const Envelope& head() const { return head_; }

 private:
  const Envelope head_;
};

class MemoryEndpoint final : public Endpoint {
 public:
  MemoryEndpoint(MemoryLinks& links, MemoryConnectionRef connection, std::uint64_t peer_number)
      : links_(links), connection_(std::move(connection)), peer_number_(peer_number) {}
  ~MemoryEndpoint() override { links_.close(connection_); }
  MemoryEndpoint(const MemoryEndpoint&) = delete;
  MemoryEndpoint& operator=(const MemoryEndpoint&) = delete;

  NodeIndex peer() const noexcept override { return connection_->there->index; }
  Status status() const override { return links_.status(*connection_); }
  Status send(MessageTag tag, Bytes from, Transfer& transfer) override {
    MUSTER_RETURN_IF_ERROR(check_tag(tag));
    MemoryPacket packet = packet_of(MemoryPacket::Kind::kMessage);
    packet.key = whole_tag(connection_->here->index, tag);
    return links_.launch(std::move(packet), from, transfer);
  }
  Status receive(MessageTag tag, WritableBytes into, Transfer& transfer) override {
    MUSTER_RETURN_IF_ERROR(check_tag(tag));
    return links_.receive(connection_, tag, into, transfer);
  }
  Result<std::unique_ptr<RemoteMemory>> open_memory(Bytes key) override {
    MUSTER_RETURN_IF_ERROR(status());
    MUSTER_ASSIGN_OR_RETURN(const auto opened, open_numbered(key, kMemoryKeyKind, "key of this process"));
    if (opened.second != peer_number_) return fail(Code::kBadArgument, "a key of another node");
    return std::make_unique<MemoryOfPeer>(opened.first);
  }
  Status put(Bytes from, const RemoteMemory& memory, std::uint64_t offset, Transfer& transfer) override {
    return launch_at(MemoryPacket::Kind::kPut, from, memory, offset, transfer);
  }
  Status get(WritableBytes into, const RemoteMemory& memory, std::uint64_t offset,
             Transfer& transfer) override {
    return launch_at(MemoryPacket::Kind::kGet, into, memory, offset, transfer);
  }
  Status flush(Transfer& transfer) override {
    return links_.launch(packet_of(MemoryPacket::Kind::kFlush), {}, transfer);
  }

 private:
  MemoryPacket packet_of(MemoryPacket::Kind kind) const {
    MemoryPacket packet;
    packet.kind = kind;
    packet.connection = connection_;
    return packet;
  }
  Status launch_at(MemoryPacket::Kind kind, Bytes own, const RemoteMemory& memory, std::uint64_t offset,
                   Transfer& transfer) {
    const Envelope& head = static_cast<const MemoryOfPeer&>(memory).head();
    MUSTER_RETURN_IF_ERROR(check_within(head, offset, own.size()));
    MemoryPacket packet = packet_of(kind);
    packet.generation = head.generation;
    packet.offset = offset;
    return links_.launch(std::move(packet), own, transfer);
  }

  MemoryLinks& links_;
  const MemoryConnectionRef connection_;
  const std::uint64_t peer_number_;
};

class MemoryNetwork final : public Network {
 public:
  MemoryNetwork(std::shared_ptr<MemoryLinks> links, NodeIndex here) : links_(std::move(links)) {
    std::tie(node_, number_) = links_->open(here);
    Envelope head;
    head.kind = kMemoryAddressKind;
    address_ = numbered_envelope(head, number_);
  }
  ~MemoryNetwork() override { links_->lose(*node_); }
  MemoryNetwork(const MemoryNetwork&) = delete;
  MemoryNetwork& operator=(const MemoryNetwork&) = delete;

  Bytes address() const noexcept override { return address_; }
  Result<std::unique_ptr<Endpoint>> connect(NodeIndex peer, Bytes address) override {
    MUSTER_RETURN_IF_ERROR(check_index(peer));
    MUSTER_ASSIGN_OR_RETURN(const auto opened,
                            open_numbered(address, kMemoryAddressKind, "address of this process"));
    MUSTER_ASSIGN_OR_RETURN(MemoryConnectionRef connection, links_->connect(*node_, peer, opened.second));
    return std::make_unique<MemoryEndpoint>(*links_, std::move(connection), opened.second);
  }
  Result<std::unique_ptr<RegisteredMemory>> register_memory(WritableBytes memory) override {
    return std::make_unique<MemoryRegistration>(*links_, *node_, number_, memory);
  }
  std::size_t progress() override { return links_->progress(*node_); }
  bool arm() override { return links_->arm(*node_); }
  int descriptor() const noexcept override { return node_->bell; }
  std::size_t freed_on_close_from() const noexcept override { return links_->keeps_below(); }
  std::string describe() const override { return fmt::format("memory of this process, node {}", number_); }

 private:
  const std::shared_ptr<MemoryLinks> links_;
  MemoryNode* node_ = nullptr;
  std::uint64_t number_ = 0;
  std::vector<std::byte> address_;
};

MemoryHub::MemoryHub(MemoryFaults faults) : links_(std::make_shared<MemoryLinks>(faults)) {}

std::unique_ptr<Network> MemoryHub::open(NodeIndex node) {
  return std::make_unique<MemoryNetwork>(links_, node);
}

void MemoryHub::lose(NodeIndex node) {
  links_->lose(node);
}

void MemoryHub::cut(NodeIndex from, NodeIndex to) {
  links_->cut(from, to);
}

void MemoryHub::hold(NodeIndex one, NodeIndex other) {
  links_->hold(one, other);
}

void MemoryHub::restore(NodeIndex one, NodeIndex other) {
  links_->restore(one, other);
}

MemoryHub::Unmatched MemoryHub::unmatched(NodeIndex from, NodeIndex to) {
  return links_->unmatched(from, to);
}

std::vector<std::unique_ptr<Network>> memory_networks(std::uint32_t count, MemoryFaults faults) {
  MemoryHub hub(faults);
  std::vector<std::unique_ptr<Network>> networks;
  for (std::uint32_t node = 0; node < count; ++node) networks.push_back(hub.open(NodeIndex(node)));
  return networks;
}

}  // namespace muster::transport::test
