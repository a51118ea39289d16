// The environment variables that Muster reads, declared once: for readers, manual pages and warnings of
// misspelt ones.
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

// Variables that say which rank a process is. A launcher sets its own and unsets those of other launchers.
std::span<const Variable> rank_variables();

// Every program that opens a session reads it.
inline constexpr std::string_view kCheckVariable = "MUSTER_CHECK";

// Variables that say how a rank's session works; a launcher passes them on.
std::span<const Variable> session_variables();

// MUSTER_SET_section__key sets section.key of musterd.yaml.
inline constexpr std::string_view kSettingPrefix = "MUSTER_SET_";

// A warning for each variable that begins with MUSTER_, is none of ours, and looks like one of ours.
// `environment`: "NAME=value". The daemon itself reports MUSTER_SET_ settings that it does not know.
std::vector<std::string> misspelt_variables(std::span<const std::string> environment);

// "NAME=value", all of this process.
std::vector<std::string> process_variables();

}  // namespace muster
