#include "transport/span/node_links.hpp"

#include <utility>

namespace muster::transport::span {
namespace {

// A node that has sent nothing for so long sends a hello, to show that it lives.
constexpr Nanos kSilence = std::chrono::milliseconds(150);

}  // namespace

NodeLinks::NodeLinks(const SpanningOptions& options, Network& network, const Clock& clock,
                     NodeConnection::Heard heard, Lost lost, std::pmr::memory_resource* memory)
    : options_(options),
      network_(network),
      clock_(clock),
      now_(clock.now()),
      heard_(std::move(heard)),
      lost_(std::move(lost)),
      memory_(memory),
      connections_(options.nodes.size()),
      greeted_(options.nodes.size()),
      reported_(options.nodes.size(), true) {
  for (std::uint32_t node = 0; node < connections_.size(); ++node)
    if (NodeIndex(node) != options_.here) connections_[node] = connection_to(NodeIndex(node));
}

std::unique_ptr<NodeConnection> NodeLinks::connection_to(NodeIndex node) {
  return std::make_unique<NodeConnection>(
      node, options_.nodes[node.value], now_, options_.nodes.size() - 1,
      [this](NodeConnection& from, Bytes message) { hear(from, message); }, memory_, failures_);
}

void NodeLinks::hear(NodeConnection& from, Bytes message) {
  if (read_head<HeaderKind>(message) != HeaderKind::kHello) return heard_(from, message);
  if (is_present(from)) greeted_[from.peer().value] = true;
}

Status NodeLinks::connect(NodeIndex node, Bytes address, std::uint32_t generation) {
  begin_turn();
  auto& connection = connections_[node.value];
  former_.push_back(std::exchange(connection, connection_to(node)));
  greeted_[node.value] = reported_[node.value] = false;
  return connection->connect(network_, address, generation);
}

void NodeLinks::greet(NodeIndex node) {
  connections_[node.value]->tell(bytes_of_head(HeaderKind::kHello));
}

JobLinks::Link NodeLinks::link(NodeIndex node) const {
  if (!is_other(node)) return {};
  const NodeConnection& connection = *connections_[node.value];
  Status status = connection.status();
  if (status.ok() && !greeted_[node.value])
    status = failure(Code::kPending, "node {} has not said hello", connection.name());
  return {status, connection.generation(), connection.heard_at()};
}

bool NodeLinks::lose(NodeIndex node, const Status& why) {
  if (!is_other(node)) return false;
  connections_[node.value]->fail(why);
  look_for_losses();
  return true;
}

void NodeLinks::look_for_losses() {
  if (!former_.empty()) std::erase_if(former_, [](const auto& each) { return each->quiet(); });
  if (std::exchange(failures_seen_, failures_) == failures_) return;
  for (std::uint32_t node = 0; node < connections_.size(); ++node) {
    if (reported_[node] || connections_[node] == nullptr || connections_[node]->status().ok()) continue;
    reported_[node] = true;
    lost_(NodeIndex(node));
    connections_[node]->close();
    losses_.add({NodeIndex(node), connections_[node]->generation(), connections_[node]->status()});
  }
}

void NodeLinks::take_lost(const std::function<void(const JobLinks::Lost&)>& visit) {
  for (const JobLinks::Lost& link : losses_.take()) visit(link);
}

bool NodeLinks::stay_alive() {
  begin_turn();
  bool told = false;
  for (std::uint32_t node = 0; node < connections_.size(); ++node) {
    const NodeConnection* const connection = connections_[node].get();
    if (connection == nullptr || !connection->status().ok() || !greeted_[node]) continue;
    if (now_ - connection->said_at() < kSilence) continue;
    greet(NodeIndex(node));
    told = true;
  }
  return told;
}

void NodeLinks::tell(NodeIndex node, Bytes message) {
  if (greeted_[node.value]) connections_[node.value]->tell(message);
}

void NodeLinks::go_on() {
  for (auto& connection : connections_)
    if (connection != nullptr) connection->go_on();
}

void NodeLinks::close() {
  for (auto& connection : connections_)
    if (connection != nullptr) connection->close();
}

}  // namespace muster::transport::span
