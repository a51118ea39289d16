#include "tests/support/nodes.hpp"

#include "api/shm/socket.hpp"
#include "daemon/control/packet.hpp"
#include "tests/support/ports.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace muster::test {
namespace {

using control::Json;

constexpr auto kPatience = std::chrono::seconds(30);
constexpr const char* kNames[] = {"east", "west", "north", "south"};

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "the nodes of this test: %s\n", why.c_str());
  std::abort();
}

std::size_t wanted() {
  const char* nodes = std::getenv("MUSTER_TEST_NODES");
  if (nodes == nullptr) return 1;
  const std::string_view said = nodes;
  if (said.size() != 1 || said[0] < '1' || said[0] > '4')
    give_up(fmt::format("MUSTER_TEST_NODES is '{}', not 1 to 4", said));
  return static_cast<std::size_t>(said[0] - '0');
}

Result<control::Packet> answer(const shm::Descriptor& socket, const Json& command, const Clock& clock) {
  const Instant end = clock.now() + kPatience;
  MUSTER_RETURN_IF_ERROR(control::send_packet(socket, shm::MessageKind::kCommand, 1, command));
  return control::receive_packet(socket, end, clock);
}

Result<Json> ask(const shm::Descriptor& socket, const Json& command, const Clock& clock) {
  MUSTER_ASSIGN_OR_RETURN(const auto said, answer(socket, command, clock));
  return control::result_of(said);
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

bool knows_its_peers(const Node& node, const Clock& clock) {
  const Json peers = status(node, clock).at("cluster").at("peers");
  return std::ranges::all_of(peers, [](const Json& peer) { return peer.at("state") == "up"; });
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
supervisor::Roster roster_of(std::size_t nodes) {
  const std::uint16_t port = free_port(nodes);
  supervisor::Roster roster;
  roster.cluster = "all";
  for (std::size_t i = 0; i < nodes; ++i)
    roster.members.push_back({kNames[i], {fmt::format("127.0.0.{}", i + 1), port}});
  roster.network = "ofi";
  roster.trust = supervisor::Roster::Trust::kPlainText;
  return roster;
}

}  // namespace

Nodes::Nodes() {
  for (std::size_t i = 1; i < wanted(); ++i) others_.push_back(std::make_unique<Node>());
}

Nodes::~Nodes() {
  makers_.clear();
}

void Nodes::start() {
  if (!several()) return Node::start();
  options.job_defaults.networks_directory = MUSTER_NETWORKS;
  options.roster = roster_of(count());
  options.roster.here = kNames[0];
  for (std::uint32_t i = 1; i < count(); ++i) {
    supervisor::Options& other = others_[i - 1]->options;
    const supervisor::Options own = other;
    other = options;
    other.runtime_directory = own.runtime_directory;
    other.random_word = own.random_word;
    other.random_hex = own.random_hex;
    other.roster.here = kNames[i];
  }
  Node::start();
  for (const auto& other : others_) other->start();
  const auto all_know = [this] {
    for (std::uint32_t i = 0; i < count(); ++i)
      if (!knows_its_peers(node(i), clock_)) return false;
    return true;
  };
  await(all_know, "they do not hear each other", clock_);
}

pid_t Nodes::fork() const {
  std::vector<const Node*> all;
  for (std::uint32_t i = 0; i < count(); ++i) all.push_back(&node(i));
  return Node::fork(all);
}

int Nodes::ranks_of(std::uint32_t node, int world) const {
  const int nodes = static_cast<int>(count());
  return world / nodes + (static_cast<int>(node) < world % nodes ? 1 : 0);
}

std::uint32_t Nodes::node_of(int rank, int world) const {
  std::uint32_t node = 0;
  for (int before = ranks_of(0, world); rank >= before; before += ranks_of(++node, world)) {
  }
  return node;
}

void Nodes::make_over_all(const std::string& job, int world, const char* mesh) {
  // A child of this process waits for the job, which would end with it.
  if (getpid() != process_)
    return await([&] { return has_job(node(1), job, clock_); }, "nobody makes the job", clock_);
  const std::lock_guard lock(mutex_);
  if (makers_.contains(job)) return;
  Json nodes = Json::array();
  for (std::uint32_t i = 0; i < count(); ++i)
    if (const int ranks = ranks_of(i, world); ranks > 0)
      nodes.push_back({{"node", kNames[i]}, {"ranks", ranks}});
  const Json wish{{"command", "job_create"},
                  {"spec",
                   {{"name", job},
                    {"world", world},
                    {"mesh", mesh == nullptr ? fmt::format("dp_shard={}", world) : mesh},
                    {"claim", "owner"}}},
                  {"nodes", nodes}};
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
  if (!several() || world < 2) return Node::rank(job, rank, world, mesh);
  make_over_all(job, world, mesh);
  return node(node_of(rank, world)).rank(job, rank, world, mesh);
}

std::vector<std::uint64_t> Nodes::counted(const std::string& job, std::string_view group,
                                          shm::GroupCount count) {
  std::vector<std::uint64_t> all;
  for (std::uint32_t i = 0; i < this->count(); ++i) {
    const auto socket = connect(node(i), clock_);
    const auto said = socket ? answer(*socket, {{"command", "counters"}, {"job", job}}, clock_)
                             : Result<control::Packet>(fail(socket.error()));
    if (!said || said->descriptors.empty()) give_up(said ? "no counters" : said.error().text());
    const auto counters = shm::JobCountersReader::attach(said->descriptors.front());
    if (!counters) give_up(counters.error().text());
    all.push_back(0);
    for (std::uint32_t row = 0; row < counters->groups(); ++row)
      if (const auto of = counters->row(row); of && of->name == group) all.back() += of->value(count);
  }
  return all;
}

}  // namespace muster::test
