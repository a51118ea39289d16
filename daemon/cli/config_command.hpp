// `muster config …`: what the configuration says, whether it is right, and what may stand in it.
#pragma once

#include "daemon/cli/outcome.hpp"

#include <string>
#include <vector>

namespace muster::cli {

// Each file is a cluster file if it has one of the keys cluster, nodes, jobs; else a musterd.yaml. All that
// is wrong in all files is told; kUsage if anything is.
int run_config_check(const std::vector<std::string>& files, Output output);

// What a musterd would start with, given the same file, settings ("key=value") and environment.
int run_config_show(const std::string& file, const std::vector<std::string>& settings,
                    const std::vector<std::string>& environment, Output output);

int run_config_explain(const std::string& key, Output output);  // kNoObject for an unknown key

// The JSON Schema of "musterd" or "cluster".
int run_config_schema(const std::string& which);

}  // namespace muster::cli
