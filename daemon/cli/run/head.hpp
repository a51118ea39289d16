// The head of a run over several hosts: its hosts, whether the daemon can serve them, and how its parts are
// started.
#pragma once

#include "daemon/cli/run/hosts.hpp"
#include "daemon/cli/run/ranks.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace muster::cli {

struct RunHead {
  // As the command line has it; without hosts the run is no head.
  struct Request {
    std::string hosts;
    std::string launcher;                // of parts on other hosts; empty: ssh
    std::vector<std::string> variables;  // names of those that these parts get
  };
  // The facts of the run that its parts need.
  struct PartFacts {
    std::string job;
    std::string node;      // of this machine, whose part needs no launcher
    std::string endpoint;  // of this machine's daemon
    Nanos timeout{};
    Nanos grace{};
    bool elastic = false;
    bool check = false;
    Ranks::Prefix prefix = Ranks::Prefix::kRank;
    std::vector<std::string> command;  // the ranks' program
    std::vector<std::string> environment;
  };
  std::vector<HostShare> hosts;
  std::vector<std::string> launcher;
  std::vector<std::string> variables;  // "NAME=value"
  std::uint32_t ranks() const;
};

// Nothing for a run that is no head. kUsage: the request is wrong by itself, or with `ranks`, the number that
// was asked for (0: none).
OrTrouble<std::optional<RunHead>> plan_head(const RunHead::Request& request, std::int64_t ranks,
                                            const std::vector<std::string>& environment);

// The place of a part, as its head has given it.
struct PartFolder {
  std::string host;    // its node
  std::string folder;  // in which the run was started
};

std::optional<Trouble> enter_folder(const PartFolder& part);
// Trouble if the daemon that a part has found is not that of its host.
std::optional<Trouble> part_trouble(const PartFolder& part, const std::string& node,
                                    const std::string& endpoint);
// "no daemon at /x: it is not a socket; name the socket of a musterd": an alternative may follow.
std::string absence_text(const std::string& endpoint);
// For a head, if `part` has no host.
Trouble no_daemon(const PartFolder& part, const std::string& endpoint);
std::string headless_text(const PartFolder& part);

// The node of the daemon whose status this is; empty: it belongs to no cluster.
std::string node_of(const Json& status);
// Why that daemon cannot make a job on the hosts, as far as its status shows.
std::optional<Trouble> hosts_trouble(const RunHead& head, const Json& status, const std::string& endpoint);
// Why the parts cannot join a job that is there already: it has other ranks on the hosts.
std::optional<Trouble> places_trouble(const RunHead& head, const Json& job);
// Has `job_create` make the job on the hosts, and give the reason of a failure before the head stops waiting.
void ask_on_hosts(const RunHead& head, Nanos timeout, Json& job_create);

// Why that job is not there yet, if it is one of the cluster file; empty: it waits for nothing.
std::string awaited(const Json& status, const std::string& job);

Ranks::Options parts_of(const RunHead& head, const RunHead::PartFacts& facts);

}  // namespace muster::cli
