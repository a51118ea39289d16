// `muster config …`: shows, checks and explains the configuration.
#pragma once

#include "daemon/cli/outcome.hpp"

#include <string>
#include <vector>

namespace muster::cli {

// A file with one of the keys cluster, nodes, jobs is a cluster file; else it is a musterd.yaml, of which
// this finds what a musterd that reads it would refuse. Reports every fault in all files; kUsage if there is
// any.
int run_config_check(const std::vector<std::string>& files, Output output);

// The settings with which a musterd would start, given the same file, settings ("key=value") and environment.
int run_config_show(const std::string& file, const std::vector<std::string>& settings,
                    const std::vector<std::string>& environment, Output output);

int run_config_explain(const std::string& key, Output output);  // kNoObject for an unknown key

// The JSON Schema of "musterd" or "cluster".
int run_config_schema(const std::string& which);

}  // namespace muster::cli
