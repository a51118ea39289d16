// Hostlists as Slurm writes them: "node[01-16,20],login1" names 18 hosts. Zero padding and order are kept.
// Several brackets in one name multiply; the last one turns fastest.
#pragma once

#include "daemon/config/diagnostic.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace muster::config {

constexpr std::size_t kHostsMax = 65536;

// The hosts, in the order written, each at most once. A list over `limit` is refused before any host is made,
// so that a short text cannot ask for much memory. The complaint's offset is a place in `text`.
tl::expected<std::vector<std::string>, Complaint> expand_hosts(std::string_view text,
                                                               std::size_t limit = kHostsMax);

// The same for the addresses of hosts, which may also be numbers of IPv6: "fd00::[1-4]".
tl::expected<std::vector<std::string>, Complaint> expand_addresses(std::string_view text);

}  // namespace muster::config
