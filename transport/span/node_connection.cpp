#include "transport/span/node_connection.hpp"

#include <algorithm>
#include <cstring>
#include <iterator>
#include <memory>
#include <optional>
#include <utility>

namespace muster::transport::span {
namespace {

// The highest bits of a tag are the generation's.
constexpr int kGenerationShift = 36;
constexpr std::uint32_t kGenerationMask = (1U << 12) - 1;
static_assert((MessageTag{kGenerationMask} << kGenerationShift) < kMessageTagMax);

}  // namespace

// Owns    the memory of one head that may come. Thread  the network's. Bound  one at a time.
// Fails   with its connection.
class NodeConnection::HeadReceive final : public Transfer {
 public:
  explicit HeadReceive(NodeConnection& connection)
      : connection_(connection), memory_(std::make_unique_for_overwrite<std::byte[]>(kMessageBytesMax)) {}
  // Tries to begin, if it has not begun.
  void begin() {
    if (begun_ || came_ || !connection_.status_.ok()) return;
    const Status posted =
        connection_.endpoint_->receive(connection_.first_tag_, {memory_.get(), kMessageBytesMax}, *this);
    begun_ = posted.ok();
    if (begun_) number_ = connection_.heads_received_++;
    if (!begun_ && posted.code() != Code::kNoResource) connection_.fail(posted);
  }
  bool begun() const { return begun_; }
  bool waits_to_begin() const { return !begun_ && !came_; }
  bool came_as(std::uint64_t number) const { return came_ && number_ == number; }
  void done(const Status& status, std::size_t bytes) override {
    begun_ = false;
    if (!status.ok()) return connection_.fail(status);
    connection_.heard_at_ = connection_.now_;
    came_ = bytes;
    connection_.hear_in_order();
  }
  void hear() {
    const auto message = unseal({memory_.get(), *std::exchange(came_, std::nullopt)});
    if (!message) return connection_.fail(failure(Code::kProtocol, "a message of it came damaged"));
    if (read_head<HeaderKind>(*message) == HeaderKind::kSum)
      connection_.hear_sum(*message);
    else
      connection_.heard_(connection_, *message);
    begin();
    if (!begun_) ++connection_.waiting_;
  }

 private:
  NodeConnection& connection_;
  const std::unique_ptr<std::byte[]> memory_;  // only received bytes touch it
  bool begun_ = false;
  std::uint64_t number_ = 0;         // among all that have begun
  std::optional<std::size_t> came_;  // bytes of a message that is not handled yet
};

// Owns    a head on its way. Thread  the network's. Bound  one message. Fails  with its connection.
class NodeConnection::HeadSend final : public Transfer {
 public:
  HeadSend(NodeConnection& connection, Bytes head, Bytes rest, std::pmr::memory_resource* memory)
      : connection_(connection), message_(head.size() + rest.size() + sizeof(WireSum), memory) {
    std::memcpy(message_.data(), head.data(), head.size());
    if (!rest.empty()) std::memcpy(message_.data() + head.size(), rest.data(), rest.size());
    seal(message_);
  }
  void begin() {
    if (begun_ || !connection_.status_.ok()) return;
    const Status sent = connection_.endpoint_->send(connection_.first_tag_, message_, *this);
    begun_ = sent.ok();
    if (!begun_ && sent.code() != Code::kNoResource) connection_.fail(sent);
  }
  bool begun() const { return begun_; }
  void done(const Status& status, std::size_t) override {
    if (!status.ok()) connection_.fail(status);
    connection_.sends_.erase(place);
  }
  std::pmr::list<HeadSend>::iterator place;  // among the connection's sends

 private:
  NodeConnection& connection_;
  std::pmr::vector<std::byte> message_;
  bool begun_ = false;
};

// Owns    nothing: one message of a flow. Thread  the network's. Bound  one message. Fails  by its flow.
class NodeConnection::Bulk final : public Transfer {
 public:
  Bulk(NodeConnection& connection, Flow& flow, MessageTag tag, WritableBytes memory, bool sends,
       bool is_checked)
      : connection_(connection),
        flow_(flow),
        tag_(tag),
        memory_(memory),
        sends_(sends),
        is_checked_(is_checked) {}
  Flow& flow() const { return flow_; }
  bool sends() const { return sends_; }
  std::size_t bytes() const { return memory_.size(); }
  // Tries to begin, if it has not begun. It may end by that.
  void begin() {
    if (begun_) return;
    Status status = connection_.status_;
    if (status.ok())
      status = sends_ ? connection_.endpoint_->send(tag_, memory_, *this)
                      : connection_.endpoint_->receive(tag_, memory_, *this);
    begun_ = status.ok();
    if (!begun_ && status.code() != Code::kNoResource) done(status, 0);
  }
  bool begun() const { return begun_; }
  void done(const Status& status, std::size_t bytes) override {
    // The other end might wait for ever for a message that has failed only here.
    if (!status.ok()) connection_.fail(status);
    if (status.ok() && !sends_) connection_.heard_at_ = connection_.now_;
    const bool is_empty = status.ok() && bytes == 0 && !memory_.empty();
    flow_.abandoned = flow_.abandoned || is_empty;
    const Status length = status.ok() && bytes != memory_.size() && !is_empty
                              ? failure(Code::kProtocol, "node {} sent {} bytes where {} were due",
                                        connection_.name_, bytes, memory_.size())
                              : Status();
    if (sends_) flow_.sending -= memory_.size();
    if (sends_ && !flow_.urgent) connection_.room_.ended(memory_.size());
    if (is_checked_ && !sends_ && status.ok() && length.ok() && !is_empty) {
      if (connection_.endpoint_ == nullptr)  // its sum will not come any more
        connection_.end(flow_, connection_.status_);
      else if (const auto is_right = connection_.sums_.came(tag_, sum_of(memory_), flow_))
        connection_.end_checked(flow_, *is_right);
    } else {
      connection_.end(flow_, status.ok() ? length : status);
    }
    connection_.bulk_.erase(place);
  }
  std::pmr::list<Bulk>::iterator place;  // among the connection's

 private:
  NodeConnection& connection_;
  Flow& flow_;
  const MessageTag tag_;
  const WritableBytes memory_;
  const bool sends_;
  const bool is_checked_;
  bool begun_ = false;
};

NodeConnection::NodeConnection(NodeIndex peer, std::string name, const Instant& now, std::size_t peers,
                               Heard heard, std::pmr::memory_resource* memory, std::size_t& failures)
    : peer_(peer),
      name_(std::move(name)),
      now_(now),
      receives_max_(std::clamp<std::size_t>(kReceivesOfAll / peers, 1, kReceives)),
      heard_(std::move(heard)),
      failures_(failures),
      status_(failure(Code::kPeerLost, "node {} is not connected", name_)),
      sends_(memory),
      bulk_(memory),
      room_(now, memory),
      sums_(memory) {}

NodeConnection::~NodeConnection() = default;

Status NodeConnection::connect(Network& network, Bytes address, std::uint32_t generation) {
  begun_ = true;
  generation_ = generation;
  first_tag_ = MessageTag{generation & kGenerationMask} << kGenerationShift;
  status_ = {};
  heard_at_ = said_at_ = now_;
  auto endpoint = network.connect(peer_, address);
  if (!endpoint) {
    fail(endpoint.error());
    return status_;
  }
  endpoint_ = *std::move(endpoint);
  for (std::size_t i = 0; i < receives_max_; ++i)
    receives_.emplace_back(std::make_unique<HeadReceive>(*this));
  waiting_ = receives_max_;
  go_on();
  return status_;
}

void NodeConnection::close() {
  if (status_.ok()) status_ = failure(Code::kAborted, "the connection to node {} is closed", name_);
  endpoint_.reset();
  sends_.remove_if([](const HeadSend& each) { return !each.begun(); });
  waiting_ = 0;
  // Messages that had not begun end now; no library will end them.
  for (auto each = bulk_.begin(); each != bulk_.end();) (each++)->begin();
  while (Flow* const flow = sums_.give_up_one()) end(*flow, status_);
}

bool NodeConnection::quiet() const {
  const auto idle = [](const auto& receive) { return !receive->begun(); };
  return endpoint_ == nullptr && sends_.empty() && bulk_.empty() && !sums_.any_waits() &&
         std::all_of(receives_.begin(), receives_.end(), idle);
}

void NodeConnection::go_on() {
  if (waiting_ == 0) return;
  for (const auto& receive : receives_) receive->begin();
  // In order, so that none overtakes another.
  for (HeadSend& send : sends_) {
    send.begin();
    if (!send.begun()) break;
  }
  for (auto each = bulk_.begin(); each != bulk_.end();) (each++)->begin();
  const auto count = [](const auto& all, auto waits) { return std::count_if(all.begin(), all.end(), waits); };
  waiting_ =
      static_cast<std::size_t>(count(receives_, [](const auto& each) { return each->waits_to_begin(); }) +
                               count(sends_, [](const auto& each) { return !each.begun(); }) +
                               count(bulk_, [](const auto& each) { return !each.begun(); }));
}

void NodeConnection::fail(const Status& why) {
  if (!status_.ok()) return;
  status_ = failure(Code::kPeerLost, "node {}: {}", name_, why.message());
  ++failures_;
}

void NodeConnection::end(Flow& flow, const Status& why) {
  --flow.pending;
  if (!why.ok() && flow.failure.ok()) flow.failure = status_.ok() ? why : status_;
}

void NodeConnection::tell(Bytes head, Bytes rest) {
  if (!status_.ok()) return;
  if (sends_.size() == kUnsentMax) return fail(failure(Code::kNoResource, "it takes no messages"));
  said_at_ = now_;
  HeadSend& send = sends_.emplace_back(*this, head, rest, sends_.get_allocator().resource());
  send.place = std::prev(sends_.end());
  const bool others_wait = waiting_++ > 0;
  if (others_wait) return go_on();  // in order
  send.begin();
  if (send.begun()) waiting_ = 0;
}

MessageTag NodeConnection::take_tags(std::uint64_t count) {
  constexpr MessageTag kNumbers = (MessageTag{1} << kGenerationShift) - 1;
  const MessageTag first = next_tag_ + count <= kNumbers ? next_tag_ : 1;
  next_tag_ = first + count;
  return first_tag_ + first;
}

void NodeConnection::send(MessageTag tag, Bytes from, Flow& flow, bool is_checked) {
  if (is_checked) tell(bytes_of_head(SumHeader{.tag = tag, .sum = sum_of(from)}));
  said_at_ = now_;
  // A send does not write the memory.
  begin(Bulk(*this, flow, tag, {const_cast<std::byte*>(from.data()), from.size()}, true, is_checked));
}

void NodeConnection::receive(MessageTag tag, WritableBytes into, Flow& flow, bool is_checked) {
  begin(Bulk(*this, flow, tag, into, false, is_checked));
}

void NodeConnection::begin(Bulk bulk) {
  Bulk& begun = bulk_.emplace_back(std::move(bulk));
  begun.place = std::prev(bulk_.end());
  Flow& flow = begun.flow();
  const std::uint32_t pending = ++flow.pending;
  if (begun.sends()) {
    flow.sending += begun.bytes();
    if (!flow.urgent) room_.began(begun.bytes());
  }
  begun.begin();
  if (flow.pending == pending && !begun.begun()) ++waiting_;
}

// Messages go to receives in order, but a library may report their ends in another order.
void NodeConnection::hear_in_order() {
  const auto next = [this] {
    return std::ranges::find_if(receives_, [this](const auto& each) { return each->came_as(heads_heard_); });
  };
  for (auto found = next(); found != receives_.end(); found = next()) {
    ++heads_heard_;
    (*found)->hear();
  }
}

void NodeConnection::hear_sum(Bytes message) {
  const auto head = read_head<SumHeader>(message);
  if (!head) return;
  if (const auto waited = sums_.said(head->tag, head->sum)) end_checked(*waited->first, waited->second);
}

void NodeConnection::end_checked(Flow& flow, bool is_right) {
  if (!is_right) fail(failure(Code::kProtocol, "a message of it came damaged"));
  end(flow, is_right ? Status() : status_);
}

}  // namespace muster::transport::span
