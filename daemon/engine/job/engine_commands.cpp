#include "daemon/engine/job/engine_commands.hpp"

#include "daemon/control/engine_address.hpp"

#include <utility>

namespace muster::engine {
namespace {

using control::Json;
using shm::MessageKind;

constexpr Nanos kConnectPeriod = std::chrono::milliseconds(2);
constexpr Nanos kConnectTime = std::chrono::seconds(10);

// The asker's name for itself.
std::string asker(const Json& body) {
  constexpr std::size_t kAskerBytesMax = 64;
  return body.value("by", "").substr(0, kAskerBytesMax);
}

}  // namespace

EngineCommands::EngineCommands(control::Loop& loop, const Clock& clock, SupervisorChannel& channel,
                               Engine& engine, shm::Descriptor counters)
    : loop_(loop), clock_(clock), channel_(channel), engine_(engine), descriptor_(std::move(counters)) {}

Json EngineCommands::execute(const std::string& command, const Json& body) {
  if (command == "connect") return connect(body);
  if (command == "lose") return lose(body);
  if (command == "network") return network();
  if (command == "report") return report();
  if (command == "counters") return counters();
  if (command == "groups") return groups();
  if (command == "trace_begin") return trace_begin(body);
  if (command == "trace_end") return trace_end(body);
  if (command == "absent") return absent(body);
  if (command == "flight") return flight();
  if (command == "hang") return control::success(engine_.reports().hang());
  if (command == "snapshot") return control::success(engine_.reports().snapshot());
  if (command == "expect_all") {
    engine_.faults().expect_all();
    return control::success(Json::object());
  }
  return control::failed(failure(Code::kBadArgument, "command '{}' is unknown", command));
}

// The answer says that it has begun. An event for each node says how it ended.
Json EngineCommands::connect(const Json& body) {
  const auto calls = control::calls_in(body, engine_.spec().world.nodes().size());
  if (!calls) return control::failed(calls.error());
  for (const control::EngineCall& call : *calls) {
    engine_.other_nodes().expect(call.node, call.generation);
    const Status begun = engine_.other_nodes().links().connect(call.node, call.address, call.generation);
    if (!begun.ok()) return control::failed(begun);
    const bool waits = connecting_.contains(call.node);
    connecting_[call.node] = {call.generation, clock_.now() + kConnectTime};
    if (!waits) loop_.after(Nanos(0), [this, node = call.node] { await_connected(node); });
  }
  return control::success(Json::object());
}

bool EngineCommands::awaits(NodeIndex node, std::uint32_t generation) const {
  const auto attempt = connecting_.find(node);
  return attempt != connecting_.end() && attempt->second.generation == generation;
}

void EngineCommands::await_connected(NodeIndex node) {
  const Attempt attempt = connecting_.at(node);
  Status status = engine_.other_nodes().links().link(node).status;
  if (status.code() == Code::kPending) {
    if (clock_.now() < attempt.until) {
      loop_.after(kConnectPeriod, [this, node] { await_connected(node); });
      return;
    }
    status =
        failure(Code::kTimeout, "{}, after {} s", status.message(), kConnectTime / std::chrono::seconds(1));
    engine_.other_nodes().lose(node, status, NodeFate::kApart);
  }
  Json event = status.ok() ? Json{{"ok", true}} : control::failed(status);
  event["event"] = "connected";
  event["node"] = node.value;
  event["generation"] = attempt.generation;
  connecting_.erase(node);
  channel_.tell({MessageKind::kCommand, 0, std::move(event), {}});
}

// A supervisor gives a node up. `fate`: why; "dead": its own supervisor says so.
Json EngineCommands::lose(const Json& body) {
  const auto node = body.at("node").get<std::uint32_t>();
  if (node >= engine_.spec().world.nodes().size())
    return control::failed(failure(Code::kBadArgument, "the job has no node {}", node));
  const std::string fate = body.value("fate", "");
  engine_.other_nodes().lose(NodeIndex(node),
                             failure(Code::kPeerLost, "{}", body.at("why").get<std::string>()),
                             fate == "dead"     ? NodeFate::kDead
                             : fate == "silent" ? NodeFate::kSilent
                                                : NodeFate::kApart);
  return control::success(Json::object());
}

// The address of this engine, and its connections to those of the other nodes.
Json EngineCommands::network() const {
  transport::JobLinks& links = engine_.other_nodes().links();
  const Instant now = clock_.now();
  Json shown = Json::array();
  for (std::uint32_t node = 0; node < engine_.spec().world.nodes().size(); ++node) {
    const transport::JobLinks::Link link = links.link(NodeIndex(node));
    shown.push_back({{"connected", link.status.ok()},
                     {"why", link.status.message()},
                     {"generation", link.generation},
                     {"heard_ns", (now - link.heard_at).count()}});
  }
  Json result{{"links", std::move(shown)}};
  control::write_address(links.address(), result);
  return control::success(std::move(result));
}

Json EngineCommands::report() {
  Json ranks = Json::array();
  for (const auto& r : engine_.report()) {
    ranks.push_back({{"rank", r.rank.value},
                     {"attached", r.attached},
                     {"pid", r.pid},
                     {"attachments", r.attachments},
                     {"arena_used_bytes", r.arena_used_bytes},
                     {"arena_reserved_bytes", r.arena_reserved_bytes}});
  }
  return control::success({{"ranks", ranks}});
}

Json EngineCommands::groups() const {
  const mesh::GroupList& list = engine_.meshes().list();
  Json groups = Json::array();
  for (std::uint32_t g = 0; g < list.size(); ++g) {
    const mesh::GroupList::Group group = list.group(GroupId(g));
    std::vector<std::uint32_t> ranks;
    for (const Rank rank : group.ranks) ranks.push_back(rank.value);
    const auto names = list.names(GroupId(g));
    groups.push_back({{"id", g},
                      {"name", std::string(group.name)},
                      {"names", std::vector<std::string>(names.begin(), names.end())},
                      {"ranks", ranks}});
  }
  Json made = Json::array();
  for (const scheduler::Group& group : engine_.groups().made()) {
    std::vector<std::uint32_t> ranks;
    for (const Rank rank : group.ranks) ranks.push_back(rank.value);
    made.push_back({{"name", group.name}, {"ranks", ranks}});
  }
  std::vector<std::size_t> per_rank;
  for (std::uint32_t rank = 0; rank < list.mesh().world(); ++rank)
    per_rank.push_back(list.count_of(Rank(rank)));
  return control::success({{"hash", list.hash().hex()},
                           {"groups", groups},
                           {"made", made},
                           {"per_rank", per_rank},
                           {"total", list.size()}});
}

// Sends the counters again, for a supervisor whose predecessor died before it had them.
Json EngineCommands::counters() {
  auto counters = engine_.reports().counters();
  if (!counters) return control::failed(counters.error());
  descriptor_ = *std::move(counters);
  return control::success(Json::object());
}

// Idempotent for one asker: if a daemon was replaced before it passed the answer on, the asker asks again and
// finds its own recording on.
Json EngineCommands::trace_begin(const Json& body) {
  const std::string by = asker(body);
  if (!by.empty() && engine_.recorder().by() == by) return control::success(Json::object());
  const Status begun = engine_.recorder().begin(by.empty() ? "a program that did not say its name" : by);
  return begun.ok() ? control::success(Json::object()) : control::failed(begun);
}

Json EngineCommands::trace_end(const Json& body) {
  const auto text = engine_.recorder().end(asker(body));
  return text ? with_text(*text) : control::failed(text.error());
}

Json EngineCommands::flight() {
  return with_text(engine_.reports().flight().dump(-1, ' ', false, Json::error_handler_t::replace));
}

Json EngineCommands::with_text(const std::string& json) {
  auto text = control::text_descriptor(json);
  if (!text) return control::failed(text.error());
  descriptor_ = *std::move(text);
  return control::success({{"bytes", json.size()}});
}

// The launcher says that the process of this rank has ended, and that no other will come for it.
Json EngineCommands::absent(const Json& body) {
  const Rank rank(body.at("rank").get<std::uint32_t>());
  engine_.faults().absent(rank, body.at("text").get<std::string>());
  return control::success(Json::object());
}

}  // namespace muster::engine
