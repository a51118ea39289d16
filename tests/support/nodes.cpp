#include "tests/support/nodes.hpp"

#include "api/shm/socket.hpp"
#include "daemon/control/link/tcp.hpp"
#include "daemon/control/packet.hpp"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>

#include <fmt/format.h>
#include <unistd.h>

namespace muster::test {
namespace {

using control::Json;

constexpr auto kPatience = std::chrono::seconds(30);
constexpr const char* kNames[] = {"east", "west"};

bool wants_several() {
  const char* nodes = std::getenv("MUSTER_TEST_NODES");
  return nodes != nullptr && std::string_view(nodes) == "2";
}

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "the nodes of this test: %s\n", why.c_str());
  std::abort();
}

Result<Json> ask(const shm::Descriptor& socket, const Json& command, const Clock& clock) {
  const Instant end = clock.now() + kPatience;
  MUSTER_RETURN_IF_ERROR(control::send_packet(socket, shm::MessageKind::kCommand, 1, command));
  MUSTER_ASSIGN_OR_RETURN(const auto answer, control::receive_packet(socket, end, clock));
  return control::result_of(answer);
}

Result<shm::Descriptor> connect(const Node& node, const Clock& clock) {
  return shm::connect_to(node.door(), clock.now() + kPatience, clock);
}

Json status(const Node& node, const Clock& clock) {
  const auto socket = connect(node, clock);
  auto said = socket ? ask(*socket, {{"command", "status"}}, clock) : Result<Json>(fail(socket.error()));
  if (!said) give_up(said.error().text());
  return *std::move(said);
}

// Whether the node hears its only peer.
bool knows_its_peer(const Node& node, const Clock& clock) {
  return status(node, clock).at("cluster").at("peers").at(0).at("state") == "up";
}

bool has_job(const Node& node, const std::string& job, const Clock& clock) {
  const Json all = status(node, clock);
  for (const Json& entry : all.at("jobs"))
    if (entry.at("name") == job && entry.at("state") == "ready") return true;
  return false;
}

template<class So>
void await(So so, const char* what, const Clock& clock) {
  for (const Instant end = clock.now() + kPatience; !so();) {
    if (clock.now() > end) give_up(what);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Nodes of one process, at loopback addresses. They use no authentication: other tests cover it.
supervisor::Roster roster_of_both() {
  const auto free = control::TcpListener::open({"127.0.0.1", 0});
  if (!free) give_up(free.error().text());
  supervisor::Roster roster;
  roster.cluster = "both";
  roster.members = {{kNames[0], {"127.0.0.1", free->port()}}, {kNames[1], {"127.0.0.2", free->port()}}};
  roster.network = "ofi";
  roster.trust = supervisor::Roster::Trust::kPlainText;
  return roster;
}

}  // namespace

Nodes::Nodes() {
  if (wants_several()) second_ = std::make_unique<Node>();
}

Nodes::~Nodes() {
  makers_.clear();
}

void Nodes::start() {
  if (second_ == nullptr) return Node::start();
  options.job_defaults.networks_directory = MUSTER_NETWORKS;
  options.roster = roster_of_both();
  options.roster.here = kNames[0];
  supervisor::Options& other = second_->options;
  const supervisor::Options own = other;
  other = options;
  other.runtime_directory = own.runtime_directory;
  other.random_word = own.random_word;
  other.random_hex = own.random_hex;
  other.roster.here = kNames[1];
  Node::start();
  second_->start();
  await([this] { return knows_its_peer(*this, clock_) && knows_its_peer(*second_, clock_); },
        "they do not hear each other", clock_);
}

pid_t Nodes::fork() const {
  if (second_ == nullptr) return Node::fork();
  const Node* const both[] = {this, second_.get()};
  return Node::fork(both);
}

void Nodes::make_over_both(const std::string& job, int world, const char* mesh) {
  // A child of this process waits for the job, which would end with it.
  if (getpid() != process_)
    return await([&] { return has_job(*second_, job, clock_); }, "nobody makes the job", clock_);
  const std::lock_guard lock(mutex_);
  if (makers_.contains(job)) return;
  const int here = (world + 1) / 2;
  const Json wish{
      {"command", "job_create"},
      {"spec",
       {{"name", job},
        {"world", world},
        {"mesh", mesh == nullptr ? fmt::format("dp_shard={}", world) : mesh},
        {"claim", "owner"}}},
      {"nodes", {{{"node", kNames[0]}, {"ranks", here}}, {{"node", kNames[1]}, {"ranks", world - here}}}}};
  await(
      [&] {
        auto maker = connect(*this, clock_);
        const auto made = maker ? ask(*maker, wish, clock_) : Result<Json>(fail(maker.error()));
        if (made) makers_.emplace(job, *std::move(maker));
        const Code code = made ? Code::kOk : made.error().code();
        const bool is_refused = code == Code::kBadArgument || code == Code::kConfig;
        const bool still_ends =
            code == Code::kBusy || code == Code::kDuplicate;  // an earlier one of its name
        if (!made && !is_refused && !still_ends) give_up(made.error().text());
        return !still_ends;
      },
      "a job cannot be made", clock_);
}

muster_open_options Nodes::rank(const char* job, int rank, int world, const char* mesh) {
  if (second_ == nullptr || world < 2) return Node::rank(job, rank, world, mesh);
  make_over_both(job, world, mesh);
  return (rank < (world + 1) / 2 ? static_cast<const Node&>(*this) : *second_).rank(job, rank, world, mesh);
}

}  // namespace muster::test
