#include "daemon/control/job.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <string_view>

#include <nlohmann/json.hpp>

namespace muster::control {
namespace {

constexpr std::size_t kJobNameBytesMax = 63;

constexpr std::pair<const char*, std::uint32_t NodeCosts::*> kCostFields[] = {
    {"meeting_ns", &NodeCosts::meeting_ns},
    {"turn_ns", &NodeCosts::turn_ns},
    {"cached_bytes_per_us", &NodeCosts::cached_bytes_per_us},
    {"memory_bytes_per_us", &NodeCosts::memory_bytes_per_us},
};

// Reads fields of the expected type and range, and keeps the first fault.
class SpecReader {
 public:
  explicit SpecReader(const Json& json) : json_(json) {}

  template<class T>
  void number(const char* name, T& target, std::uint64_t low, std::uint64_t high) {
    const Json* field = find(name);
    const bool good = field != nullptr && field->is_number_unsigned() && field->get<std::uint64_t>() >= low &&
                      field->get<std::uint64_t>() <= high;
    if (!good)
      return fail(failure(Code::kBadArgument, "job: {} must be a whole number in {}..{}", name, low, high));
    target = static_cast<T>(field->get<std::uint64_t>());
  }
  void text(const char* name, std::string& target) {
    const Json* field = find(name);
    if (field == nullptr || !field->is_string())
      return fail(failure(Code::kBadArgument, "job: {} must be a text", name));
    target = field->get<std::string>();
  }
  void flag(const char* name, bool& target) {
    const Json* field = find(name);
    if (field == nullptr || !field->is_boolean())
      return fail(failure(Code::kBadArgument, "job: {} must be true or false", name));
    target = field->get<bool>();
  }
  void nanos(const char* name, Nanos& target) {
    std::uint64_t value = 0;
    number(name, value, 0, static_cast<std::uint64_t>(kJobDurationMax.count()));
    target = Nanos(static_cast<std::int64_t>(value));
  }
  void fail(Status status) {
    if (status_.ok()) status_ = std::move(status);
  }
  const Status& status() const { return status_; }

 private:
  const Json* find(const char* name) const {
    const auto it = json_.find(name);
    return it == json_.end() ? nullptr : &*it;
  }

  const Json& json_;
  Status status_;
};

void read_flatten(const Json& json, JobSpec& spec, SpecReader& fields) {
  const auto it = json.find("flatten");
  if (it == json.end() || !it->is_array())
    return fields.fail(failure(Code::kBadArgument, "job: flatten must be a list"));
  for (const Json& entry : *it) {
    const bool well_formed = entry.is_object() && entry.contains("name") && entry["name"].is_string() &&
                             entry.contains("dims") && entry["dims"].is_array();
    if (!well_formed)
      return fields.fail(failure(Code::kBadArgument, "job: each flatten needs a name and dims"));
    std::vector<std::string> dims;
    for (const Json& dim : entry["dims"]) {
      if (!dim.is_string())
        return fields.fail(failure(Code::kBadArgument, "job: flatten dims must be names"));
      dims.push_back(dim.get<std::string>());
    }
    spec.flatten.emplace_back(entry["name"].get<std::string>(), std::move(dims));
  }
}

Json interfaces_json(const InterfaceRule& rule) {
  return {{"addresses", rule.addresses}, {"patterns", rule.patterns}, {"setting", rule.setting}};
}

void read_interfaces(const Json& json, InterfaceRule& rule, SpecReader& fields) {
  const auto bad = [&fields](const char* what) {
    fields.fail(failure(Code::kBadArgument, "job: interfaces: {}", what));
  };
  const auto setting = json.find("setting");
  if (setting == json.end() || !setting->is_string()) return bad("setting: not a text");
  rule.setting = setting->get<std::string>();
  for (auto& [name, list] :
       {std::pair{"addresses", &rule.addresses}, std::pair{"patterns", &rule.patterns}}) {
    const auto it = json.find(name);
    if (it == json.end() || !it->is_array() || it->size() > kInterfacesMax) return bad("not lists of texts");
    for (const Json& item : *it) {
      if (!item.is_string()) return bad("not lists of texts");
      list->push_back(item.get<std::string>());
    }
  }
}

// By its name a program's code is loaded, so only the known ones are good.
void read_network(const Json& json, JobSpec& spec, SpecReader& fields) {
  if (json.contains("network")) fields.text("network", spec.network);
  if (json.contains("networks_directory")) fields.text("networks_directory", spec.networks_directory);
  if (json.contains("asked_on")) fields.text("asked_on", spec.asked_on);
  if (json.contains("tie_breaker")) fields.text("tie_breaker", spec.tie_breaker);
  if (json.contains("gathered")) fields.flag("gathered", spec.gathered);
  if (json.contains("reproducible")) fields.flag("reproducible", spec.reproducible);
  if (json.contains("link_trip_ns")) fields.number("link_trip_ns", spec.link.trip_ns, 1, LinkCosts::kMax);
  if (json.contains("link_bytes_per_us"))
    fields.number("link_bytes_per_us", spec.link.bytes_per_us, 1, LinkCosts::kMax);
  if (const auto it = json.find("interfaces"); it != json.end())
    read_interfaces(*it, spec.interfaces, fields);
  const bool known =
      std::find(config::kNetworks.begin(), config::kNetworks.end(), spec.network) != config::kNetworks.end();
  if (!spec.network.empty() && !known)
    fields.fail(failure(Code::kBadArgument, "job: network must be one of {}, or empty",
                        fmt::join(config::kNetworks, ", ")));
  const std::string& folder = spec.networks_directory;
  const bool absolute = !folder.empty() && folder.front() == '/';
  if (folder.size() > kPathBytesMax || (!absolute && !(folder.empty() && spec.network.empty())))
    fields.fail(failure(Code::kBadArgument, "job: networks_directory must be absolute, of at most {} bytes",
                        kPathBytesMax));
}

}  // namespace

Status check_job_name(const std::string& name) {
  const bool length_good = !name.empty() && name.size() <= kJobNameBytesMax;
  const bool letters_good =
      name.find_first_not_of("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-") ==
      std::string::npos;
  if (length_good && letters_good) return {};
  return failure(Code::kBadArgument, "job name '{}' must be 1 to {} letters, digits, '.', '_' or '-'",
                 name.substr(0, kJobNameBytesMax), kJobNameBytesMax);
}

Json to_json(const NodeCosts& costs) {
  Json json = Json::object();
  for (const auto& [name, cost] : kCostFields) json[name] = costs.*cost;
  return json;
}

Result<NodeCosts> costs_from_json(const Json& json) {
  if (!json.is_object()) return fail(Code::kBadArgument, "costs: not an object");
  NodeCosts costs;
  SpecReader fields(json);
  for (const auto& [name, cost] : kCostFields) fields.number(name, costs.*cost, 1, NodeCosts::kMax);
  if (!fields.status().ok()) return fail(fields.status());
  return costs;
}

namespace {

// Nothing for a job whose ranks are all on one node without a name.
void write_nodes(const World& world, Json& json) {
  if (world.nodes().size() == 1 && world.nodes().front().empty()) return;
  Json of = Json::array();
  for (std::uint32_t rank = 0; rank < world.size(); ++rank) of.push_back(world.node_of(Rank(rank)).value);
  json["nodes"] = {{"names", world.nodes()}, {"of", std::move(of)}, {"here", world.here().value}};
}

Result<World> world_from_json(const Json& json, std::uint32_t ranks) {
  const auto bad = [](const char* what) { return fail(Code::kBadArgument, "job: nodes: {}", what); };
  if (!json.is_object()) return bad("not an object");
  const auto names = json.find("names");
  const auto of = json.find("of");
  const auto here = json.find("here");
  if (names == json.end() || !names->is_array() || names->size() > kNodesMax)
    return bad("names: not a list of at most 4096 names");
  if (of == json.end() || !of->is_array() || of->size() != ranks)
    return bad("of: not a list with the number of a node for each rank");
  if (here == json.end() || !here->is_number_unsigned() || *here >= names->size())
    return bad("here: not the number of a node");
  std::vector<std::string> nodes;
  for (const Json& name : *names) {
    if (!name.is_string() || name.get_ref<const std::string&>().size() > kNodeNameBytesMax)
      return bad("names: a name is no text of at most 253 bytes");
    nodes.push_back(name);
  }
  std::vector<std::uint32_t> node_of;
  for (const Json& number : *of) {
    if (!number.is_number_unsigned() || number >= nodes.size()) return bad("of: not the number of a node");
    node_of.push_back(number);
  }
  return World::build(std::move(nodes), node_of, NodeIndex(here->get<std::uint32_t>()));
}

}  // namespace

Json to_json(const JobSpec& spec) {
  Json flatten = Json::array();
  for (const auto& [name, dims] : spec.flatten) flatten.push_back({{"name", name}, {"dims", dims}});
  Json json{{"name", spec.name},
            {"world", spec.world.size()},
            {"mesh", spec.mesh},
            {"flatten", flatten},
            {"scope", spec.scope},
            {"claim", spec.claim == ClaimRule::kToken ? "token" : "owner"},
            {"epoch", spec.epoch},
            {"deadline_ns", static_cast<std::uint64_t>(spec.deadline.count())},
            {"workers", spec.workers},
            {"cores", spec.cores == CoreRule::kDaemon ? "daemon" : "ranks"},
            {"idle_spin_ns", static_cast<std::uint64_t>(spec.idle_spin.count())},
            {"arena_bytes_max", spec.arena_bytes_max},
            {"segment_bytes", spec.segment_bytes},
            {"buffers_max", spec.buffers_max},
            {"plans_max", spec.plans_max},
            {"groups_made_max", spec.groups_made_max},
            {"starts_per_lane_max", spec.starts_per_lane_max},
            {"costs", to_json(spec.costs)},
            {"digests", spec.digests},
            {"reports_directory", spec.reports_directory},
            {"network", spec.network},
            {"networks_directory", spec.networks_directory},
            {"asked_on", spec.asked_on},
            {"link_trip_ns", spec.link.trip_ns},
            {"link_bytes_per_us", spec.link.bytes_per_us},
            {"interfaces", interfaces_json(spec.interfaces)},
            {"tie_breaker", spec.tie_breaker},
            {"endpoint", spec.endpoint},
            {"ends_with_run", spec.ends_with_run},
            {"gathered", spec.gathered},
            {"reproducible", spec.reproducible}};
  write_identity(spec.owner, json);
  write_nodes(spec.world, json);
  return json;
}

// The required fields are those of the first release. A newer field may be missing, or older states could not
// be read.
Result<JobSpec> job_from_json(const Json& json) {
  if (!json.is_object()) return fail(Code::kBadArgument, "job: not an object");
  JobSpec spec;
  SpecReader fields(json);
  std::string claim, cores = "ranks";
  constexpr std::uint64_t kAny64 = std::numeric_limits<std::uint64_t>::max();
  fields.text("name", spec.name);
  std::uint32_t ranks = 1;
  fields.number("world", ranks, 1, json.contains("nodes") ? kWorldMax : kRanksOnNodeMax);
  fields.text("mesh", spec.mesh);
  if (json.contains("scope")) fields.text("scope", spec.scope);
  fields.text("claim", claim);
  fields.number("epoch", spec.epoch, 1, kAny64);
  fields.nanos("deadline_ns", spec.deadline);
  fields.number("workers", spec.workers, 0, config::kWorkersMax);
  if (json.contains("cores")) fields.text("cores", cores);
  fields.nanos("idle_spin_ns", spec.idle_spin);
  fields.number("arena_bytes_max", spec.arena_bytes_max, 4096, kJobBytesMax);
  fields.number("segment_bytes", spec.segment_bytes, 4096, kJobBytesMax);
  fields.number("buffers_max", spec.buffers_max, 1, 65536);
  fields.number("plans_max", spec.plans_max, 1, 65536);
  fields.number("groups_made_max", spec.groups_made_max, 0, config::kGroupsMadeMax);
  fields.number("starts_per_lane_max", spec.starts_per_lane_max, 1, config::kStartsPerLaneMax);
  fields.number("digests", spec.digests, 0, config::kDigestsMax);
  fields.text("reports_directory", spec.reports_directory);
  if (const auto it = json.find("costs"); it != json.end()) {
    MUSTER_ASSIGN_OR_RETURN(spec.costs, costs_from_json(*it));
  }
  if (json.contains("endpoint")) fields.text("endpoint", spec.endpoint);
  if (json.contains("ends_with_run")) fields.flag("ends_with_run", spec.ends_with_run);
  read_network(json, spec, fields);
  read_flatten(json, spec, fields);
  if (!fields.status().ok()) return fail(fields.status());
  MUSTER_ASSIGN_OR_RETURN(spec.owner, read_identity(json));
  if (claim != "owner" && claim != "token")
    return fail(Code::kBadArgument, "job: claim must be 'owner' or 'token'");
  spec.claim = claim == "token" ? ClaimRule::kToken : ClaimRule::kOwner;
  if (cores != "ranks" && cores != "daemon")
    return fail(Code::kBadArgument, "job: cores must be 'ranks' or 'daemon'");
  spec.cores = cores == "daemon" ? CoreRule::kDaemon : CoreRule::kRanks;
  MUSTER_RETURN_IF_ERROR(check_job_name(spec.name));
  spec.world = ranks;
  if (const auto it = json.find("nodes"); it != json.end()) {
    MUSTER_ASSIGN_OR_RETURN(spec.world, world_from_json(*it, ranks));
  }
  if (spec.world.local_count() > kRanksOnNodeMax)
    return fail(Code::kBadArgument, "job: {} of its ranks are on this node, and a node takes {}",
                spec.world.local_count(), kRanksOnNodeMax);
  return spec;
}

Result<JobSpec> job_asked_for(const Json& asked, const JobSpec& defaults, const Actor& owner,
                              const World* world) {
  constexpr std::array<std::string_view, 5> kOfUsers{"name", "world", "mesh", "flatten", "claim"};
  if (!asked.is_object()) return fail(Code::kBadArgument, "job: not an object");
  if (owner.key.empty()) MUSTER_RETURN_IF_ERROR(check_known(owner.who));
  Json json = to_json(defaults);
  for (const auto& [field, value] : asked.items()) {
    if (std::find(kOfUsers.begin(), kOfUsers.end(), field) == kOfUsers.end())
      return fail(Code::kBadArgument,
                  "job: {} is not for the one who starts a job to say; limits and times are the "
                  "administrator's (musterd.yaml)",
                  field.substr(0, kJobNameBytesMax));
    json[field] = value;
  }
  if (world != nullptr) {
    if (json["world"] != world->size())
      return fail(Code::kBadArgument, "job: its nodes have {} ranks together, and world says another number",
                  world->size());
    write_nodes(*world, json);
  }
  json["epoch"] = 1u;  // the supervisor draws the real one
  MUSTER_ASSIGN_OR_RETURN(JobSpec spec, job_from_json(json));
  spec.scope = scope_of(owner, defaults.owner.uid);
  spec.owner = owner.who;
  return spec;
}

}  // namespace muster::control
