// The environment variables that Muster reads, declared once: for readers, manual pages, and for who
// misspells one.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace muster {

struct Variable {
  std::string_view name;
  std::string_view sentence;
};

// Those that say which rank a process is. A launcher sets them, and takes those of another away.
std::span<const Variable> rank_variables();

// MUSTER_SET_section__key sets section.key of musterd.yaml.
inline constexpr std::string_view kSettingPrefix = "MUSTER_SET_";

// What is to be said of each variable whose name begins with MUSTER_, is none of ours, and looks like one
// that is. `environment`: "NAME=value". Of settings the daemon says itself which it does not know.
std::vector<std::string> misspelt_variables(std::span<const std::string> environment);

// "NAME=value", all of this process.
std::vector<std::string> process_variables();

}  // namespace muster
