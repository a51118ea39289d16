// Renders the daemon's answers as text for people, in tables of `columns` columns. Pure; a missing field
// throws Json::exception.
#pragma once

#include "daemon/cli/outcome.hpp"
#include "daemon/config/table.hpp"

#include <string>

namespace muster::cli {

std::string version_text(const Json& versions);  // of this program and of the daemon, or why there is none
// `at`: DaemonAddress::option() of the daemon that has answered.
std::string status_text(const Json& status, std::size_t columns, const std::string& at = "");
std::string jobs_text(const Json& result, std::size_t columns, const std::string& at = "");
std::string groups_text(const Json& result, std::size_t columns);

// The table of groups that `muster groups` and `muster mesh` share.
std::string group_table(const Json& groups, std::size_t columns);

}  // namespace muster::cli
