// NodeConnection: an engine's connection to the engine of one other node. All groups of the job use it.
#pragma once

#include "api/base/clock.hpp"
#include "transport/endpoint/endpoint.hpp"
#include "transport/span/chunk_room.hpp"
#include "transport/span/message_sums.hpp"
#include "transport/span/wire.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <memory_resource>
#include <string>
#include <vector>

namespace muster::transport::span {

// A node that comes back gets a new connection, of another generation. Each message has the generation in its
// tag, so a later connection never receives a message of an earlier one.
//
// Owns    the endpoint, the receives for the peer's heads, and the heads on their way to it.
// Thread  that of the network.
// Bound   kReceives heads are received at once; fewer in a job of many nodes, down to one. Libraries keep
//         further heads that have come, and copy them once more. kUnsentMax heads wait.
// Fails   with the endpoint; status() says why.
class NodeConnection {
 public:
  static constexpr std::size_t kReceives = 4;
  static constexpr std::size_t kReceivesOfAll = 64;  // from all peers together, unless they are more
  static constexpr std::size_t kUnsentMax = std::size_t{1} << 16;
  // Called by progress() of the network for each head that came, in the order in which the peer has sent
  // them. The bytes are valid during the call.
  using Heard = std::function<void(NodeConnection& from, Bytes message)>;

  // `name`: the node's, for texts. `now`: when the present turn of the network began. `peers`: how many this
  // node has. `memory`: for messages. `failures` counts the failures of this connection and of others. All of
  // them, and all that `heard` uses, outlive it.
  NodeConnection(NodeIndex peer, std::string name, const Instant& now, std::size_t peers, Heard heard,
                 std::pmr::memory_resource* memory, std::size_t& failures);
  ~NodeConnection();

  // Called at most once; until then status() says that it is not connected. The connection outlives the
  // network: libraries keep begun messages until they end, also after a failure.
  Status connect(Network& network, Bytes address, std::uint32_t generation);
  // Gives the connection up for that reason, unless it has failed already.
  void fail(const Status& why);
  // Ends the endpoint, before its network ends.
  void close();
  // Begins the messages for which the library had no room. Call it with each turn.
  void go_on();

  NodeIndex peer() const { return peer_; }
  const std::string& name() const { return name_; }
  std::uint32_t generation() const { return generation_; }
  // It was connected, and may have failed since.
  bool begun() const { return begun_; }
  // OK, or why the connection has failed: kPeerLost, with the node's name.
  const Status& status() const { return status_; }
  // When the last message came, and when the latest send began.
  Instant heard_at() const { return heard_at_; }
  Instant said_at() const { return said_at_; }
  // The library keeps nothing of it any more.
  bool quiet() const;

  // Sends a head with the bytes behind it. It waits if the library has no room, and is lost if the connection
  // has failed.
  void tell(Bytes head, Bytes rest = {});
  // Numbers for so many messages of this node to the peer; no two are the same.
  MessageTag take_tags(std::uint64_t count);
  // Moves one message. `flow` counts it as pending until it has ended; then the memory is free. The flow and
  // the memory live until then. A message of another length than the memory fails with kProtocol, unless it
  // is empty. `is_checked`, on both sides alike: its checksum comes too, and a wrong one fails the
  // connection.
  void send(MessageTag tag, Bytes from, Flow& flow, bool is_checked);
  void receive(MessageTag tag, WritableBytes into, Flow& flow, bool is_checked);
  // For flows that are not urgent. A message that is sent now may go after what was given there.
  ChunkRoom& room() { return room_; }

 private:
  class HeadReceive;
  class HeadSend;
  class Bulk;
  void end(Flow& flow, const Status& why);
  void end_checked(Flow& flow, bool is_right);
  void hear_in_order();
  void hear_sum(Bytes message);
  void begin(Bulk bulk);

  const NodeIndex peer_;
  const std::string name_;
  const Instant& now_;
  const std::size_t receives_max_;  // heads that are received at once
  const Heard heard_;
  std::size_t& failures_;
  std::unique_ptr<Endpoint> endpoint_;
  Status status_;
  bool begun_ = false;
  std::uint32_t generation_ = 0;
  MessageTag first_tag_ = 0;  // of the generation: that of heads
  MessageTag next_tag_ = 1;   // beyond it, of all else
  Instant heard_at_{0};
  Instant said_at_{0};
  std::vector<std::unique_ptr<HeadReceive>> receives_;
  std::uint64_t heads_received_ = 0;  // receives of heads that have begun
  std::uint64_t heads_heard_ = 0;
  std::pmr::list<HeadSend> sends_;
  std::size_t waiting_ = 0;  // heads and receives of heads that have not begun
  std::pmr::list<Bulk> bulk_;
  ChunkRoom room_;
  MessageSums sums_;  // of the peer's messages
};

}  // namespace muster::transport::span
