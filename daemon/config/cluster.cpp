#include "daemon/config/cluster.hpp"

#include "api/base/assert.hpp"
#include "api/base/network/interface_choice.hpp"
#include "daemon/config/check.hpp"
#include "daemon/config/hostlist.hpp"
#include "daemon/config/scalar.hpp"
#include "daemon/config/shape.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <unordered_map>
#include <utility>

namespace muster::config {
namespace {

constexpr std::int64_t kRanksMax = 65536;  // mesh::kRankCountMax: a job may span many nodes
constexpr std::int64_t kEntriesMax = 4096;
constexpr std::int64_t kMillisecond = 1000 * 1000;
constexpr std::int64_t kDay = 24 * 3600 * 1000 * kMillisecond;
constexpr std::string_view kDims = "pp|dp_replicate|dp_shard|cp|domain|tp|ep";

constexpr auto kOptional = Key::Presence::kOptional;
constexpr auto kRequired = Key::Presence::kRequired;

constexpr std::array kKeys{
    Key{"cluster", Key::Kind::kSection, kOptional, "", 0, 0, "", "The cluster as a whole."},
    Key{"cluster.name", Key::Kind::kName, kOptional, "muster", 1, 63, "",
        "Its name. The nodes' certificates carry it (`muster certs init --cluster`), and a node of another "
        "name is refused."},
    Key{"cluster.port", Key::Kind::kInteger, kOptional, "7733", 1, 65535, "",
        "The port, of TCP and of UDP, on which the daemons of all nodes listen for each other."},
    Key{"cluster.network", Key::Kind::kChoice, kOptional, "ucx", 0, 0, "ucx|ofi|none",
        "The library that moves the bytes of jobs between nodes: UCX or libfabric; `muster doctor` tries "
        "both. "
        "none: no operation spans nodes."},
    Key{"cluster.link", Key::Kind::kSection, kOptional, "", 0, 0, "",
        "What the links between nodes cost, by which the nodes of a job choose algorithms. Measure both "
        "between two of your nodes; the defaults are those of a virtual link on one machine."},
    Key{"cluster.link.trip", Key::Kind::kDuration, kOptional, "20us", 100, 1000 * kMillisecond, "",
        "Until the first byte of a message has come: half a round trip."},
    Key{"cluster.link.rate", Key::Kind::kBytes, kOptional, "3000000000B", 1'000'000, std::int64_t{900} << 30,
        "", "Bytes a second that a node sends, or receives."},
    Key{"cluster.interfaces", Key::Kind::kList, kOptional, "", 1, 64, "",
        "By which interfaces nodes exchange data; unset: by that which has the node's address. RDMA devices "
        "are used unless they are excluded, or others are named."},
    Key{"cluster.interfaces[]", Key::Kind::kText, kRequired, "", 1, 64, "",
        "A name, the beginning of names, =NAME or a subnet; with '^' before it, it excludes."},
    Key{"cluster.tie_breaker", Key::Kind::kName, kOptional, "", 1, 253, "",
        "A host of `nodes`. If nodes are silent and each side has half of a group's members, those on the "
        "side of this host may shrink the group; unset: neither side may."},
    Key{"nodes", Key::Kind::kList, kRequired, "", 1, kEntriesMax, "",
        "The nodes; ranks are numbered in this order."},
    Key{"nodes[]", Key::Kind::kSection, kRequired, "", 0, 0, "", "Nodes that are alike."},
    Key{"nodes[].host", Key::Kind::kHosts, kRequired, "", 1, 65536, "",
        "Their names. Each may stand in one entry only."},
    Key{"nodes[].address", Key::Kind::kHosts, kOptional, "", 1, 65536, "",
        "Where other nodes reach them, in the same order: names, or numbers of IPv4 or IPv6; unset: their "
        "names."},
    Key{"nodes[].interfaces", Key::Kind::kList, kOptional, "", 1, 64, "",
        "As cluster.interfaces, in its place for these nodes."},
    Key{"nodes[].interfaces[]", Key::Kind::kText, kRequired, "", 1, 64, "", "As cluster.interfaces[]."},
    Key{"nodes[].devices", Key::Kind::kSection, kRequired, "", 0, 0, "", "What each of them has."},
    Key{"nodes[].devices.kind", Key::Kind::kChoice, kOptional, "auto", 0, 0, "host|cuda|auto",
        "host: a share of the cores; cuda: a GPU; auto: cuda where there is one, else host."},
    Key{"nodes[].devices.count", Key::Kind::kInteger, kRequired, "", 1, 1024, "", "Devices on each node."},
    Key{"jobs", Key::Kind::kList, kOptional, "", 0, 1024, "", "The jobs that are created at start."},
    Key{"jobs[]", Key::Kind::kSection, kRequired, "", 0, 0, "", "A job: a world of ranks with its mesh."},
    Key{"jobs[].name", Key::Kind::kName, kRequired, "", 1, 63, "", "The name under which its ranks attach."},
    Key{"jobs[].ranks", Key::Kind::kInteger, kOptional, "", 1, kRanksMax, "",
        "The size of its world; unset: one rank on each device of the nodes."},
    Key{"jobs[].claim", Key::Kind::kChoice, kOptional, "owner", 0, 0, "owner|token",
        "Who may take a rank. owner: processes of the user that owns the job; token: the holder of a token "
        "for it."},
    Key{"jobs[].mesh", Key::Kind::kSection, kRequired, "", 0, 0, "", "How its ranks are arranged."},
    Key{"jobs[].mesh.dims", Key::Kind::kSection, kRequired, "", 0, 0, "",
        "Degrees, in any order: pp is outermost, then dp_replicate, dp_shard, cp, domain, and tp. All but ep "
        "multiply to the world."},
    Key{"jobs[].mesh.dims.pp", Key::Kind::kInteger, kOptional, "1", 1, kRanksMax, "", "Pipeline stages."},
    Key{"jobs[].mesh.dims.dp_replicate", Key::Kind::kInteger, kOptional, "1", 1, kRanksMax, "",
        "Replicas of all parameters."},
    Key{"jobs[].mesh.dims.dp_shard", Key::Kind::kInteger, kOptional, "1", -1, kRanksMax, "",
        "Ranks that share one copy of the parameters; -1: what the other degrees leave over."},
    Key{"jobs[].mesh.dims.cp", Key::Kind::kInteger, kOptional, "1", 1, kRanksMax, "",
        "Ranks that split a sequence."},
    Key{"jobs[].mesh.dims.domain", Key::Kind::kInteger, kOptional, "1", 1, kRanksMax, "",
        "Ranks that split a field in space."},
    Key{"jobs[].mesh.dims.tp", Key::Kind::kInteger, kOptional, "1", 1, kRanksMax, "",
        "Ranks that split each matrix."},
    Key{"jobs[].mesh.dims.ep", Key::Kind::kInteger, kOptional, "1", 1, kRanksMax, "",
        "Ranks that share the experts; divides dp_shard x cp x tp, adds no ranks."},
    Key{"jobs[].mesh.flatten", Key::Kind::kNames, kOptional, "", 0, 64, "",
        "More dims, each made of several under one name."},
    Key{"jobs[].mesh.flatten.*", Key::Kind::kList, kRequired, "", 1, 7, "",
        "The dims that it joins, outermost first."},
    Key{"jobs[].mesh.flatten.*[]", Key::Kind::kChoice, kRequired, "", 0, 0, kDims, "A dim."},
    Key{"jobs[].lanes", Key::Kind::kSection, kOptional, "", 0, 0, "", "How its operations are scheduled."},
    Key{"jobs[].lanes.deadline", Key::Kind::kDuration, kOptional, "", 100 * kMillisecond, kDay, "",
        "An operation that has waited so long for a member fails on every rank; unset: defaults.deadline of "
        "musterd.yaml."},
    Key{"jobs[].digests", Key::Kind::kInteger, kOptional, "", 0, kDigestsMax, "",
        "Every so many runs of a group whose result all members share, they compare digests of it; 0: never; "
        "unset: defaults.digests of musterd.yaml."},
    Key{"jobs[].reproducible", Key::Kind::kFlag, kOptional, "false", 0, 0, "",
        "Whether results are the same bits whatever node a rank is on. That sends more between nodes."},
};

const Key& key_at(std::string_view path) {
  const Key* key = find_key(kKeys, path);
  MUSTER_ASSERT(key != nullptr);
  return *key;
}

// Turns a checked tree into a Cluster. Values that check() has refused stay at their defaults: the result is
// then dropped, but the rest is still checked, so that all faults show at once.
//
// Owns    the cluster until taken.
// Thread  one.
// Bound   kHostsMax hosts in all entries together.
// Fails   never; it reports.
class Extractor {
 public:
  Extractor(Cluster* cluster, Diagnostics* diagnostics) : cluster_(*cluster), diagnostics_(*diagnostics) {}

  void run(const Node& root) {
    const Node* cluster = root.find("cluster");
    cluster_.name = text(cluster, "name", "cluster.name");
    cluster_.port = static_cast<std::uint16_t>(number(cluster, "port", "cluster.port"));
    const std::string network = text(cluster, "network", "cluster.network");
    if (network != "none") cluster_.network = network;
    const Node* link = cluster != nullptr ? cluster->find("link") : nullptr;
    cluster_.link.trip_ns = static_cast<std::uint32_t>(number(link, "trip", "cluster.link.trip"));
    cluster_.link.bytes_per_us =
        static_cast<std::uint32_t>(number(link, "rate", "cluster.link.rate") / 1'000'000);
    if (cluster != nullptr)
      read_interfaces(cluster->find("interfaces"), "cluster.interfaces", &cluster_.interfaces);
    if (const Node* nodes = root.find("nodes"))
      for (std::size_t i = 0; i < nodes->items.size(); ++i)
        read_node(nodes->items[i], fmt::format("nodes[{}]", i));
    if (const Node* tie_breaker = leaf(cluster, "tie_breaker")) read_tie_breaker(*tie_breaker);
    if (const Node* jobs = root.find("jobs"))
      for (std::size_t i = 0; i < jobs->items.size(); ++i)
        read_job(jobs->items[i], fmt::format("jobs[{}]", i));
  }

 private:
  static const Node* leaf(const Node* parent, std::string_view name) {
    const Node* node = parent == nullptr ? nullptr : parent->find(name);
    return node != nullptr && node->value ? node : nullptr;
  }
  static Value value(const Node* parent, std::string_view name, std::string_view path) {
    if (const Node* node = leaf(parent, name)) return *node->value;
    const Key& key = key_at(path);
    if (key.fallback.empty()) return {};
    return read_scalar(key, key.fallback, Spelling::kGiven).value();
  }
  static std::string text(const Node* parent, std::string_view name, std::string_view path) {
    return value(parent, name, path).text;
  }
  static std::int64_t number(const Node* parent, std::string_view name, std::string_view path) {
    return value(parent, name, path).number;
  }

  void read_node(const Node& node, const std::string& path) {
    Cluster::NodeEntry entry;
    if (const Node* host = leaf(&node, "host")) read_hosts(*host, path + ".host", &entry);
    if (const Node* address = leaf(&node, "address")) read_addresses(*address, path + ".address", &entry);
    read_interfaces(node.find("interfaces"), path + ".interfaces", &entry.interfaces);
    const Node* devices = node.find("devices");
    const std::string kind = text(devices, "kind", "nodes[].devices.kind");
    entry.device_kind = kind == "host"   ? Cluster::DeviceKind::kHost
                        : kind == "cuda" ? Cluster::DeviceKind::kCuda
                                         : Cluster::DeviceKind::kAuto;
    if (const Node* count = leaf(devices, "count"))
      entry.device_count = {static_cast<std::uint32_t>(count->value->number), count->mark,
                            path + ".devices.count"};
    cluster_.nodes.push_back(std::move(entry));
  }

  void read_hosts(const Node& host, const std::string& path, Cluster::NodeEntry* entry) {
    if (diagnostics_.full() || hosts_full_) return;
    auto hosts = expand_hosts(host.value->text, kHostsMax - hosts_seen_.size());
    if (!hosts) {
      // Good alone, but not after the entries above: reported once, not for every later entry.
      hosts_full_ = !hosts_seen_.empty() && expand_hosts(host.value->text);
      if (hosts_full_) {
        add(host.mark, path,
            {fmt::format("more than {} hosts in all entries together", kHostsMax), "name fewer"});
        return;
      }
      Complaint complaint = std::move(hosts).error();
      const std::size_t begin = host.offset + (host.quoted ? 1 : 0);
      const bool literal = cluster_.source.text().compare(begin, host.text.size(), host.text) == 0;
      const Mark mark = literal ? cluster_.source.mark(begin + complaint.offset) : host.mark;
      add(mark, path, std::move(complaint));
      return;
    }
    for (const std::string& name : *hosts) {
      const auto [first, fresh] = hosts_seen_.emplace(name, host.mark);
      if (fresh) continue;
      add(host.mark, path,
          {fmt::format("host {} is named twice", in_quotes(name)),
           fmt::format("line {} names it already", first->second.line)});
      break;  // an overlap of a thousand hosts is one fault
    }
    entry->hosts = {std::move(*hosts), host.mark, path};
  }

  void read_interfaces(const Node* list, const std::string& path, std::vector<std::string>* patterns) {
    if (list == nullptr) return;
    for (std::size_t i = 0; i < list->items.size(); ++i) {
      const Node& item = list->items[i];
      if (!item.value) continue;
      const Status good = check_interface_pattern(item.value->text);
      if (!good.ok()) add(item.mark, fmt::format("{}[{}]", path, i), {good.message(), ""});
      patterns->push_back(item.value->text);
    }
  }

  // After the nodes.
  void read_tie_breaker(const Node& node) {
    cluster_.tie_breaker = node.value->text;
    if (hosts_full_ || hosts_seen_.contains(cluster_.tie_breaker)) return;
    add(node.mark, "cluster.tie_breaker",
        {fmt::format("{} is no host of `nodes`", in_quotes(cluster_.tie_breaker)), "name one of the hosts"});
  }

  void read_addresses(const Node& address, const std::string& path, Cluster::NodeEntry* entry) {
    auto addresses = expand_addresses(address.value->text);
    if (!addresses) return add(address.mark, path, std::move(addresses).error());
    const std::size_t hosts = entry->hosts.value.size();
    if (hosts != 0 && addresses->size() != hosts)
      return add(address.mark, path,
                 {fmt::format("{} addresses for {} hosts", addresses->size(), hosts), "write one for each"});
    check_versions(*addresses, address.mark, path);
    entry->addresses = {*std::move(addresses), address.mark, path};
  }

  // Data moves over one version of IP, so a node with an address of the other version would never be
  // connected.
  void check_versions(const std::vector<std::string>& addresses, Mark mark, const std::string& path) {
    if (cluster_.network.empty()) return;
    for (const std::string& text : addresses) {
      const auto address = IpAddress::parse(text);
      if (!address) continue;
      if (!first_number_) first_number_ = {text, mark, path};
      if (IpAddress::parse(first_number_->value)->six == address->six) continue;
      return add(mark, path,
                 {fmt::format("{} is an address of {}, and {} in line {} one of {}", text,
                              address->six ? "IPv6" : "IPv4", first_number_->value, first_number_->mark.line,
                              address->six ? "IPv4" : "IPv6"),
                  "give all nodes addresses of one version, or set cluster.network: none"});
    }
  }

  void read_job(const Node& node, const std::string& path) {
    Cluster::JobEntry job;
    if (const Node* name = leaf(&node, "name")) {
      job.name = {name->value->text, name->mark, path + ".name"};
      const auto [first, fresh] = jobs_seen_.emplace(job.name.value, name->mark);
      if (!fresh)
        add(name->mark, job.name.path,
            {fmt::format("job {} is named twice", in_quotes(job.name.value)),
             fmt::format("line {} names it already", first->second.line)});
    }
    if (const Node* ranks = leaf(&node, "ranks"))
      job.ranks = {static_cast<std::uint32_t>(ranks->value->number), ranks->mark, path + ".ranks"};
    job.claim = text(&node, "claim", "jobs[].claim") == "token" ? ClaimRule::kToken : ClaimRule::kOwner;
    if (const Node* mesh = node.find("mesh")) read_mesh(*mesh, path + ".mesh", &job.mesh);
    if (const Node* deadline = leaf(node.find("lanes"), "deadline"))
      job.deadline = Nanos(deadline->value->number);
    if (const Node* digests = leaf(&node, "digests"))
      job.digests = static_cast<std::uint32_t>(digests->value->number);
    job.reproducible = number(&node, "reproducible", "jobs[].reproducible") != 0;
    cluster_.jobs.push_back(std::move(job));
  }

  void read_mesh(const Node& mesh, const std::string& path, Cluster::MeshEntry* entry) {
    entry->mark = mesh.mark;
    if (const Node* dims = mesh.find("dims")) {
      for (const Node::Field& field : dims->fields) {
        if (!field.value.value) continue;
        const std::string below = fmt::format("{}.dims.{}", path, field.name);
        const std::int64_t size = field.value.value->number;
        // The range of dp_shard starts at -1, so 0 needs its own check.
        if (size == 0)
          add(field.value.mark, below,
              {"must be at least 1, or -1, is 0", "write -1 to use what is left over"});
        entry->dims.push_back({{field.name, size}, field.value.mark, below});
      }
    }
    if (const Node* flatten = mesh.find("flatten"))
      for (const Node::Field& field : flatten->fields)
        read_flatten(field, path + ".flatten." + field.name, entry);
  }

  void read_flatten(const Node::Field& field, const std::string& path, Cluster::MeshEntry* entry) {
    Cluster::FlattenEntry flatten{{field.name, field.mark, path}, {}};
    for (std::size_t i = 0; i < field.value.items.size(); ++i) {
      const Node& item = field.value.items[i];
      if (!item.value) continue;
      const std::string below = fmt::format("{}[{}]", path, i);
      const auto same = [&](const Marked<std::string>& other) { return other.value == item.value->text; };
      if (std::any_of(flatten.dims.begin(), flatten.dims.end(), same))
        add(item.mark, below,
            {fmt::format("dim {} is named twice", in_quotes(item.value->text)), "remove one of them"});
      flatten.dims.push_back({item.value->text, item.mark, below});
    }
    entry->flatten.push_back(std::move(flatten));
  }

  void add(Mark mark, const std::string& path, Complaint complaint) {
    if (!diagnostics_.full()) diagnostics_.add(cluster_.diagnostic(mark, path, std::move(complaint)));
  }

  Cluster& cluster_;
  Diagnostics& diagnostics_;
  std::unordered_map<std::string, Mark> hosts_seen_;
  bool hosts_full_ = false;
  std::optional<Marked<std::string>> first_number_;  // of all addresses
  std::map<std::string, Mark> jobs_seen_;
};

}  // namespace

std::vector<Cluster::Host> Cluster::hosts() const {
  std::vector<Host> all;
  for (const NodeEntry& entry : nodes)
    for (std::size_t i = 0; i < entry.hosts.value.size(); ++i) {
      const std::string& host = entry.hosts.value[i];
      const bool given = !entry.addresses.value.empty();
      const bool own = !entry.interfaces.empty();
      all.push_back(
          {host, given ? entry.addresses.value[i] : host, entry.device_count.value,
           own ? entry.interfaces : interfaces,
           own ? fmt::format("nodes[{}].interfaces", &entry - nodes.data()) : "cluster.interfaces"});
    }
  return all;
}

std::uint64_t Cluster::devices() const {
  std::uint64_t sum = 0;
  for (const NodeEntry& entry : nodes)
    sum += entry.hosts.value.size() * std::uint64_t{entry.device_count.value};
  return sum;
}

std::uint64_t Cluster::ranks(const JobEntry& job) const {
  return job.ranks ? job.ranks->value : devices();
}

Diagnostic Cluster::diagnostic(Mark mark, std::string path, Complaint complaint) const {
  return diagnostic_at(source, mark, std::move(path), std::move(complaint));
}

std::span<const Key> cluster_keys() {
  return kKeys;
}

tl::expected<Cluster, Diagnostics> parse_cluster(Source source) {
  Diagnostics diagnostics;
  auto root = read_document(source, &diagnostics);
  if (!root) return tl::unexpected(std::move(diagnostics));
  check(source, kKeys, &*root, &diagnostics);
  Cluster cluster;
  cluster.source = std::move(source);
  Extractor(&cluster, &diagnostics).run(*root);
  if (!diagnostics.empty()) return tl::unexpected(std::move(diagnostics));
  return cluster;
}

}  // namespace muster::config
