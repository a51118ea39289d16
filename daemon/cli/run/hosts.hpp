// The hosts of `muster run --hosts`, and the words that start a part of the run on one of them.
#pragma once

#include "daemon/cli/outcome.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster::cli {

struct HostShare {
  std::string name;  // of the node
  std::uint32_t ranks = 1;
  friend bool operator==(const HostShare&, const HostShare&) = default;
};

// "node[01-04]:2,login1": a name or several as in a cluster file, and ranks on each, else one. kUsage for
// what is none, for a host that stands twice, and for more than a job can have.
OrTrouble<std::vector<HostShare>> parse_hosts(std::string_view text);
// As it was written, each host by itself.
std::string hosts_text(std::span<const HostShare> hosts);

// The words of a launcher, as a shell splits them: at blanks outside of quotes. kUsage if there are none, or
// if a quote does not end.
OrTrouble<std::vector<std::string>> parse_launcher(std::string_view text);
// The command line that the launcher runs for a host. {host} is the host's name, and {command} the whole
// `command` in one word, quoted for a shell. If no word has {command}, the command's words follow as they
// are.
std::vector<std::string> launcher_words(const std::vector<std::string>& launcher, const std::string& host,
                                        const std::vector<std::string>& command);
// The launcher for a host without the command, for messages.
std::string launcher_text(const std::vector<std::string>& launcher, const std::string& host);

// The variables of `environment` that the ranks of other hosts get too: settings, and those that are named.
// kUsage for a name that is not set.
OrTrouble<std::vector<std::string>> passed_on(const std::vector<std::string>& environment,
                                              const std::vector<std::string>& names);

}  // namespace muster::cli
