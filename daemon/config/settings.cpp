#include "daemon/config/settings.hpp"

#include "api/base/assert.hpp"
#include "api/base/node_limits.hpp"
#include "api/base/spelling.hpp"
#include "api/base/variables.hpp"
#include "daemon/config/check.hpp"
#include "daemon/config/job_rules.hpp"
#include "daemon/config/scalar.hpp"
#include "daemon/config/shape.hpp"

#include <array>
#include <map>
#include <type_traits>
#include <utility>
#include <variant>

namespace muster::config {
namespace {

constexpr std::int64_t kKiB = 1024;
constexpr std::int64_t kMiB = 1024 * kKiB;
constexpr std::int64_t kGiB = 1024 * kMiB;
constexpr std::int64_t kTiB = 1024 * kGiB;
constexpr std::int64_t kMs = 1000 * 1000;
constexpr std::int64_t kSecond = 1000 * kMs;
constexpr std::int64_t kHour = 3600 * kSecond;
constexpr std::int64_t kSlotsMax = 65535;          // a Handle has 16 bits for its slot
constexpr std::int64_t kSocketPathMax = 107;       // sockaddr_un.sun_path, less its final zero
constexpr std::int64_t kRuntimeDirectoryMax = 88;  // less the socket's folder and name
constexpr std::int64_t kPathMax = 4095;

struct Declaration {
  // Where a value is stored.
  using Slot = std::variant<std::string*, bool*, std::uint32_t*, std::uint64_t*, Nanos*>;
  Key key;
  Slot (*slot)(Settings&) = nullptr;  // null for a section
};

constexpr Declaration section(std::string_view path, std::string_view sentence) {
  return {{path, Key::Kind::kSection, Key::Presence::kOptional, "", 0, 0, "", sentence}};
}
constexpr Declaration leaf(std::string_view path, Key::Kind kind, std::string_view fallback, std::int64_t low,
                           std::int64_t high, Declaration::Slot (*slot)(Settings&), std::string_view sentence,
                           std::string_view choices = "") {
  return {{path, kind, Key::Presence::kOptional, fallback, low, high, choices, sentence}, slot};
}

#define MUSTER_SLOT(member) [](Settings& s) -> Declaration::Slot { return &s.member; }

constexpr std::array kDeclarations{
    section("node", "This node and the door to it."),
    leaf("node.name", Key::Kind::kName, "", 0, 253, MUSTER_SLOT(node.name),
         "The name by which the cluster file knows this node; empty: the host's name, or its first label."),
    leaf("node.runtime_directory", Key::Kind::kPath, "/run/muster", 1, kRuntimeDirectoryMax,
         MUSTER_SLOT(node.runtime_directory),
         "The daemon's own directory, which it makes at start. It has control.sock for who governs, and "
         "ranks/musterd.sock for training processes; a container mounts the folder `ranks`."),
    leaf("node.socket_path", Key::Kind::kPath, "", 0, kSocketPathMax, MUSTER_SLOT(node.socket_path),
         "The socket for training processes, where it is to lie at another place; empty: ranks/musterd.sock "
         "in "
         "the runtime directory."),
    leaf("node.directory_mode", Key::Kind::kMode, "0750", 0700, 0777, MUSTER_SLOT(node.directory_mode),
         "Permissions of the runtime directory: whoever may pass through it may connect. 0755: everybody on "
         "this node. Who may do what is decided by user besides."),
    leaf("node.group", Key::Kind::kName, "", 0, 32, MUSTER_SLOT(node.group),
         "The group of the users, to which the runtime directory belongs; empty: the group of the daemon."),
    leaf(
        "node.engine_user", Key::Kind::kName, "nobody", 1, 32, MUSTER_SLOT(node.engine_user),
        "The user as whom the engines of a container's root run. A name, or a number. Engines of other users "
        "run as those."),
    leaf(
        "node.program_folders", Key::Kind::kPath, "", 0, kPathMax, MUSTER_SLOT(node.program_folders),
        "Folders from which `muster upgrade --program` takes programs, with ':' between them; empty: that of "
        "the running program. Only root or the daemon's user may be able to write there."),
    leaf("node.workers", Key::Kind::kInteger, "0", 0, kWorkersMax, MUSTER_SLOT(node.workers),
         "Worker threads of an engine; 0: as many as the cores granted to it. Where its ranks use fewer "
         "cores, only as many work."),
    leaf("node.cores", Key::Kind::kChoice, "ranks", 0, 0, MUSTER_SLOT(node.cores),
         "On which cores an engine runs. ranks: on those that its ranks may use, looked up as each of them "
         "attaches, and on none that the daemon may not use. daemon: on all that the daemon may use.",
         "ranks|daemon"),
    section("peers",
            "How this node and the others of its cluster file know each other: by certificates, else by a "
            "secret, else not at all. Read if the file in jobs_from names several hosts."),
    leaf("peers.certificates", Key::Kind::kPath, "/etc/muster/certs", 1, kPathMax,
         MUSTER_SLOT(peers.certificates),
         "The folder with authority.pem, NAME.pem and NAME-key.pem, as `muster certs` writes them. SIGHUP "
         "reads them again."),
    leaf("peers.secret_file", Key::Kind::kPath, "", 0, kPathMax, MUSTER_SLOT(peers.secret_file),
         "A file whose text all nodes have and nobody else, used in place of certificates: nodes are told "
         "from strangers, but not from each other. Empty: certificates."),
    leaf("peers.plaintext", Key::Kind::kFlag, "false", 0, 0, MUSTER_SLOT(peers.plaintext),
         "Whether nodes talk without proof and in the clear. For tests: whoever reaches the port can pose as "
         "a node."),
    section("log", "What the daemon says on standard error."),
    leaf("log.level", Key::Kind::kChoice, "info", 0, 0, MUSTER_SLOT(log.level),
         "The least severe line that is written.", "debug|info|warning|error|off"),
    leaf("log.format", Key::Kind::kChoice, "auto", 0, 0, MUSTER_SLOT(log.format),
         "auto: journal where the journal reads standard error, else text.", "text|json|journal|auto"),
    leaf("log.reports_directory", Key::Kind::kPath, "", 0, kPathMax, MUSTER_SLOT(log.reports_directory),
         "Where a passed deadline leaves its report and what each rank had run, as files of the job's user; "
         "empty: nowhere."),
    section(
        "limits",
        "Everything is bounded, and the bounds are these. A refusal names the limit. To give one ordinary "
        "user the node, set jobs_per_user_max: 1024, sessions_per_user_max: 65535 and "
        "memory_per_user_max: 16TiB. That user may then have all but the eighth that is reserved for root. "
        "The user who runs the daemon may always have all."),
    leaf("limits.jobs_max", Key::Kind::kInteger, "16", 1, 1024, MUSTER_SLOT(limits.jobs_max),
         "Jobs on this node. An eighth, rounded up but never all, is reserved for root and the daemon's own "
         "user."),
    leaf("limits.jobs_per_user_max", Key::Kind::kInteger, "0", 0, 1024, MUSTER_SLOT(limits.jobs_per_user_max),
         "Jobs of one user other than root and the daemon's own; 0: half of what is not reserved for those, "
         "at least 1."),
    leaf("limits.sessions_max", Key::Kind::kInteger, "256", 1, kSlotsMax, MUSTER_SLOT(limits.sessions_max),
         "Sessions of all jobs together, attached or waiting for their job. An eighth is reserved for root "
         "and the daemon's own user."),
    leaf("limits.sessions_per_user_max", Key::Kind::kInteger, "0", 0, kSlotsMax,
         MUSTER_SLOT(limits.sessions_per_user_max),
         "Sessions of one user other than root and the daemon's own; 0: half of what is not reserved for "
         "those, at least 1. A job of more ranks is refused."),
    leaf("limits.ranks_per_job_max", Key::Kind::kInteger, "256", 1, kRanksOnNodeMax,
         MUSTER_SLOT(limits.ranks_per_job_max),
         "Ranks of one job on this node, each of which has a session at most. Their shared memory is made "
         "with the job."),
    leaf("limits.buffers_per_rank_max", Key::Kind::kInteger, "4096", 1, kSlotsMax,
         MUSTER_SLOT(limits.buffers_per_rank_max), "Buffers of one rank."),
    leaf("limits.plans_per_rank_max", Key::Kind::kInteger, "16384", 1, kSlotsMax,
         MUSTER_SLOT(limits.plans_per_rank_max), "Plans of one rank, those of one-shot calls included."),
    leaf("limits.starts_per_lane_max", Key::Kind::kInteger, "1024", 1, kStartsPerLaneMax,
         MUSTER_SLOT(limits.starts_per_lane_max),
         "Starts of one lane of a rank that may be without a verdict: a client that is further ahead is told "
         "to wait."),
    leaf("limits.groups_made_max", Key::Kind::kInteger, "64", 0, kGroupsMadeMax,
         MUSTER_SLOT(limits.groups_made_max),
         "Made groups that a rank holds at once, those of meshes that it has made among them, beside the "
         "groups of its job's mesh: after a rank was lost, say."),
    leaf("limits.memory_max", Key::Kind::kBytes, "0B", 0, 16 * kTiB, MUSTER_SLOT(limits.memory_max),
         "Bytes that all jobs hold together: what they are made of, and their buffers. An eighth is "
         "reserved for root and the daemon's own user. 0B: three quarters of the machine's memory, or of "
         "what the daemon's cgroup may have."),
    leaf("limits.memory_per_user_max", Key::Kind::kBytes, "0B", 0, 16 * kTiB,
         MUSTER_SLOT(limits.memory_per_user_max),
         "Bytes that the jobs of one user other than root and the daemon's own hold; 0B: half of what is not "
         "reserved for those."),
    leaf("limits.arena_per_rank_max", Key::Kind::kBytes, "8GiB", kMiB, 16 * kTiB,
         MUSTER_SLOT(limits.arena_per_rank_max), "Bytes of all buffers of one rank."),
    leaf("limits.arena_segment", Key::Kind::kBytes, "64MiB", kMiB, 64 * kGiB,
         MUSTER_SLOT(limits.arena_segment),
         "An arena grows by what it has already, from 2MiB on, up to segments of this size; by more where "
         "one buffer needs it. At most limits.arena_per_rank_max."),
    leaf(
        "limits.made_job_linger", Key::Kind::kDuration, "60s", 0, 24 * kHour,
        MUSTER_SLOT(limits.made_job_linger),
        "A job that its ranks have created ends this long after no node has a rank of it, or at once if its "
        "owner needs the room; 0s: at once. A node that is away counts as empty after the same time. Jobs of "
        "the cluster file and of `muster run --keep` stay."),
    section("liveness", "How long the daemon waits before it gives up a core or a client."),
    leaf("liveness.idle_spin", Key::Kind::kDuration, "50us", 0, 10 * kMs, MUSTER_SLOT(liveness.idle_spin),
         "A worker without work looks again for this long before it sleeps; 0s: it sleeps at once. 10us at "
         "most in a job of several nodes that has more than one rank for two cores of this node."),
    leaf("liveness.drain_timeout", Key::Kind::kDuration, "10s", 0, kHour, MUSTER_SLOT(liveness.drain_timeout),
         "At the end, running operations get this long to finish; 0s: none."),
    section("costs",
            "What parts of a collective cost on this node. By these ranks choose algorithms. The first job "
            "measures what is not given, and the runtime directory keeps "
            "it."),
    leaf("costs.meeting", Key::Kind::kDuration, "0s", 0, kMs, MUSTER_SLOT(costs.meeting),
         "Until ranks with a core each have seen that all have come; 0s: measured."),
    leaf("costs.turn", Key::Kind::kDuration, "0s", 0, kMs, MUSTER_SLOT(costs.turn),
         "Until a core has gone from one rank to another; 0s: measured."),
    leaf("costs.cached_rate", Key::Kind::kBytes, "0B", 0, 900 * kGiB, MUSTER_SLOT(costs.cached_rate),
         "Bytes a second that a core reads and writes within its caches; 0B: measured."),
    leaf("costs.memory_rate", Key::Kind::kBytes, "0B", 0, 900 * kGiB, MUSTER_SLOT(costs.memory_rate),
         "The same beyond its caches; 0B: a quarter of the rate within them."),
    section("defaults", "Used where a job or a client does not say."),
    leaf("defaults.deadline", Key::Kind::kDuration, "60s", 100 * kMs, 24 * kHour,
         MUSTER_SLOT(defaults.deadline),
         "An operation that has waited so long for a member fails on every rank, with a report that names "
         "those at "
         "fault."),
    leaf("defaults.digests", Key::Kind::kInteger, "0", 0, kDigestsMax, MUSTER_SLOT(defaults.digests),
         "On host devices: after every Nth run whose result is the same on all members, they compare "
         "digests of it; with three members or more a rank that computes or keeps wrong bits is named. "
         "0: never. What is started, not run, is left to muster_compare."),
    leaf(
        "jobs_from", Key::Kind::kPath, "", 0, kPathMax, MUSTER_SLOT(jobs_from),
        "The cluster file: the nodes of the cluster, and jobs. A job is made as soon as all of its nodes are "
        "up. Empty: no cluster."),
    leaf("auto_create_jobs", Key::Kind::kFlag, "true", 0, 0, MUSTER_SLOT(auto_create_jobs),
         "Whether a client that names an unknown job creates it."),
};

#undef MUSTER_SLOT

void store(const Declaration& declaration, const Value& value, Settings* settings) {
  std::visit(
      [&](auto* target) {
        using Target = std::remove_pointer_t<decltype(target)>;
        if constexpr (std::is_same_v<Target, std::string>)
          *target = value.text;
        else if constexpr (std::is_same_v<Target, bool>)
          *target = value.number != 0;
        else
          *target = Target(static_cast<std::uint64_t>(value.number));
      },
      declaration.slot(*settings));
}

const Declaration* find_leaf(std::string_view path) {
  for (const Declaration& declaration : kDeclarations)
    if (declaration.slot != nullptr && declaration.key.path == path) return &declaration;
  return nullptr;
}

std::optional<std::string> near_leaf(std::string_view path) {
  std::vector<Key> leaves;
  for (const Declaration& declaration : kDeclarations)
    if (declaration.slot != nullptr) leaves.push_back(declaration.key);
  return closest_path(leaves, path);
}

// "MUSTER_SET_node__workers" names node.workers.
std::string path_of(std::string_view variable) {
  std::string path;
  for (std::size_t i = kSettingPrefix.size(); i < variable.size(); ++i) {
    if (variable.substr(i, 2) == "__") {
      path += '.';
      ++i;
    } else {
      path += variable[i];
    }
  }
  return path;
}

// One underscore instead of two is the most common mistake, so whole names are compared too.
std::optional<std::string> near_variable(const std::string& variable) {
  if (const auto near = near_leaf(path_of(variable))) return variable_of(*near);
  std::vector<std::string> all;
  for (const Declaration& declaration : kDeclarations)
    if (declaration.slot != nullptr) all.push_back(variable_of(declaration.key.path));
  return closest(variable, all);
}

// Collects the sources from the weakest to the strongest.
//
// Owns    the values chosen so far.
// Thread  one.
// Bound   one value for each declared key.
// Fails   never; it reports.
class Resolver {
 public:
  Resolver() {
    for (std::size_t i = 0; i < kDeclarations.size(); ++i) {
      if (kDeclarations[i].slot == nullptr) continue;
      auto value = read_scalar(kDeclarations[i].key, kDeclarations[i].key.fallback, Spelling::kGiven);
      MUSTER_ASSERT(value);  // a default outside its own range
      chosen_[i] = {std::move(*value), {Resolved::Origin::Kind::kDefault, "default"}, {}};
    }
  }

  void read_file(const Source& source) {
    auto root = read_document(source, &diagnostics_);
    if (!root) return;
    check(source, settings_keys(), &*root, &diagnostics_);
    for (std::size_t i = 0; i < kDeclarations.size(); ++i) {
      const Node* node = find_node(*root, kDeclarations[i].key.path);
      if (kDeclarations[i].slot == nullptr || node == nullptr || !node->value) continue;
      const Resolved::Origin origin{Resolved::Origin::Kind::kFile,
                                    fmt::format("{}:{}", source.name(), node->mark.line)};
      chosen_[i] = {*node->value, origin,
                    diagnostic_at(source, node->mark, std::string(kDeclarations[i].key.path), {})};
    }
  }

  void read_environment(const std::vector<std::string>& environment) {
    for (const std::string& entry : environment) {
      const std::size_t equals = entry.find('=');
      if (!entry.starts_with(kSettingPrefix) || equals == std::string::npos) continue;
      const std::string variable = entry.substr(0, equals);
      const std::string path = path_of(variable);
      assign(path, entry.substr(equals + 1), {Resolved::Origin::Kind::kEnvironment, variable},
             did_you_mean(near_variable(variable)));
    }
  }

  void read_flags(const std::vector<Inputs::Flag>& flags) {
    std::map<std::string_view, const Inputs::Flag*> given;
    for (const Inputs::Flag& flag : flags) {
      if (const auto [first, is_new] = given.emplace(flag.key, &flag); !is_new) {
        refuse_second(*first->second, flag);
        continue;
      }
      assign(flag.key, flag.value, {Resolved::Origin::Kind::kFlag, flag.spelled},
             did_you_mean(near_leaf(flag.key)));
    }
  }

  // Checks that concern several keys.
  void check_together() {
    const Chosen& segment = at("limits.arena_segment");
    const Chosen& arena = at("limits.arena_per_rank_max");
    if (segment.value.number <= arena.value.number) return;
    const bool blame_segment = segment.origin.kind >= arena.origin.kind;
    Diagnostic diagnostic = blame_segment ? segment.place : arena.place;
    diagnostic.message =
        fmt::format("limits.arena_segment ({}) is larger than limits.arena_per_rank_max ({})",
                    written(find_leaf("limits.arena_segment")->key, segment.value),
                    written(find_leaf("limits.arena_per_rank_max")->key, arena.value));
    diagnostic.suggestion =
        blame_segment ? "write a smaller segment" : "write a smaller limits.arena_segment too";
    diagnostics_.add(std::move(diagnostic));
  }

  tl::expected<Resolved, Diagnostics> finish() {
    check_together();
    if (!diagnostics_.empty()) return tl::unexpected(std::move(diagnostics_));
    Resolved resolved;
    for (std::size_t i = 0; i < kDeclarations.size(); ++i) {
      const Declaration& declaration = kDeclarations[i];
      if (declaration.slot == nullptr) continue;
      store(declaration, chosen_[i].value, &resolved.settings);
      resolved.in_force.push_back(
          {std::string(declaration.key.path), written(declaration.key, chosen_[i].value), chosen_[i].origin});
    }
    return resolved;
  }

 private:
  // A value, its origin, and the place for a diagnostic about it.
  struct Chosen {
    Value value;
    Resolved::Origin origin;
    Diagnostic place;  // everything but the message
  };

  static const Node* find_node(const Node& root, std::string_view path) {
    const Node* node = &root;
    while (node != nullptr && !path.empty()) {
      const std::size_t dot = std::min(path.find('.'), path.size());
      node = node->find(path.substr(0, dot));
      path.remove_prefix(std::min(dot + 1, path.size()));
    }
    return node;
  }

  void refuse_second(const Inputs::Flag& first, const Inputs::Flag& second) {
    Diagnostic place;
    place.file = second.spelled;
    place.path = second.key;
    place.message = fmt::format("it is set to {} here, and to {} by {} before", in_quotes(second.value),
                                in_quotes(first.value), first.spelled);
    place.suggestion = "set it once";
    diagnostics_.add(std::move(place));
  }

  Chosen& at(std::string_view path) {
    const Declaration* declaration = find_leaf(path);
    MUSTER_ASSERT(declaration != nullptr);
    return chosen_[static_cast<std::size_t>(declaration - kDeclarations.data())];
  }

  void assign(const std::string& path, const std::string& text, Resolved::Origin origin,
              std::string suggestion) {
    Diagnostic place;
    place.file = origin.text;
    place.path = path;
    const Declaration* declaration = find_leaf(path);
    if (declaration == nullptr) {
      place.message = "unknown key";
      place.suggestion = std::move(suggestion);
      diagnostics_.add(std::move(place));
      return;
    }
    auto value = read_scalar(declaration->key, text, Spelling::kGiven);
    if (!value) {
      place.message = std::move(value.error().message);
      place.suggestion = std::move(value.error().suggestion);
      diagnostics_.add(std::move(place));
      return;
    }
    at(path) = {std::move(*value), std::move(origin), std::move(place)};
  }

  std::array<Chosen, kDeclarations.size()> chosen_;
  Diagnostics diagnostics_;
};

}  // namespace

std::span<const Key> settings_keys() {
  static const std::vector<Key> keys = [] {
    std::vector<Key> all;
    for (const Declaration& declaration : kDeclarations) all.push_back(declaration.key);
    return all;
  }();
  return keys;
}

std::string variable_of(std::string_view path) {
  std::string variable(kSettingPrefix);
  for (const char c : path) variable += c == '.' ? std::string("__") : std::string(1, c);
  return variable;
}

tl::expected<Resolved, Diagnostics> resolve(const Inputs& inputs) {
  Resolver resolver;
  if (inputs.file) resolver.read_file(*inputs.file);
  resolver.read_environment(inputs.environment);
  resolver.read_flags(inputs.flags);
  return resolver.finish();
}

}  // namespace muster::config
