#include "daemon/cli/run/hosts.hpp"

#include "api/base/node_limits.hpp"
#include "api/base/variables.hpp"
#include "api/base/words.hpp"
#include "daemon/cli/option_checks.hpp"
#include "daemon/config/hostlist.hpp"
#include "daemon/control/job.hpp"

#include <algorithm>
#include <set>

#include <fmt/ranges.h>

namespace muster::cli {
namespace {

constexpr std::string_view kHostWord = "{host}";
constexpr std::string_view kCommandWord = "{command}";

// The entries between commas, but for commas in brackets.
std::vector<std::string_view> entries_of(std::string_view text) {
  std::vector<std::string_view> entries;
  std::size_t begin = 0;
  bool in_brackets = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size() && text[i] == '[') in_brackets = true;
    if (i < text.size() && text[i] == ']') in_brackets = false;
    if (i < text.size() && (text[i] != ',' || in_brackets)) continue;
    entries.push_back(text.substr(begin, i - begin));
    begin = i + 1;
  }
  return entries;
}

std::string replaced(std::string text, std::string_view what, std::string_view with) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += with.size())
    text.replace(at, what.size(), with);
  return text;
}

bool has_command(const std::string& word) {
  return word.find(kCommandWord) != std::string::npos;
}

}  // namespace

OrTrouble<std::vector<HostShare>> parse_hosts(std::string_view text) {
  std::vector<HostShare> hosts;
  std::set<std::string> seen;
  std::uint64_t ranks = 0;
  for (const std::string_view entry : entries_of(text)) {
    const std::size_t colon = std::min(entry.rfind(':'), entry.size());
    const std::string number(colon == entry.size() ? "1" : entry.substr(colon + 1));
    if (const std::string fault = whole_number_fault(number, 1, kRanksOnNodeMax); !fault.empty())
      return usage(fmt::format("run: --hosts: ranks of '{}': {}", entry, fault));
    const auto names = config::expand_hosts(entry.substr(0, colon), control::kNodesMax);
    if (!names)
      return usage(fmt::format("run: --hosts: '{}': {}{}{}", entry, names.error().message,
                               names.error().suggestion.empty() ? "" : "; ", names.error().suggestion));
    for (const std::string& name : *names) {
      if (!seen.insert(name).second)
        return usage(fmt::format("run: --hosts: host {} is named twice; give it all its ranks once", name));
      hosts.push_back({name, static_cast<std::uint32_t>(std::stoul(number))});
      ranks += hosts.back().ranks;
    }
  }
  if (hosts.size() > control::kNodesMax || ranks > control::kWorldMax)
    return usage(fmt::format("run: --hosts: {} hosts with {} ranks; a job has {} and {} at most",
                             hosts.size(), ranks, control::kNodesMax, control::kWorldMax));
  return hosts;
}

std::string hosts_text(std::span<const HostShare> hosts) {
  std::vector<std::string> all;
  for (const HostShare& host : hosts) all.push_back(fmt::format("{}:{}", host.name, host.ranks));
  return fmt::format("{}", fmt::join(all, ","));
}

OrTrouble<std::vector<std::string>> parse_launcher(std::string_view text) {
  std::vector<std::string> words;
  std::string word;
  bool begun = false;
  char quote = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0 && c == quote) {
      quote = 0;
    } else if (quote == 0 && (c == '\'' || c == '"')) {
      quote = c;
      begun = true;
    } else if (quote != '\'' && c == '\\' && i + 1 < text.size()) {
      word += text[++i];
      begun = true;
    } else if (quote == 0 && (c == ' ' || c == '\t' || c == '\n')) {
      if (begun) words.push_back(std::exchange(word, {}));
      begun = false;
    } else {
      word += c;
      begun = true;
    }
  }
  if (quote != 0) return usage(fmt::format("run: --launcher: a {} is not closed in: {}", quote, text));
  if (begun) words.push_back(word);
  if (words.empty()) return usage("run: --launcher names no program; the default is: ssh {host} {command}");
  return words;
}

std::vector<std::string> launcher_words(const std::vector<std::string>& launcher, const std::string& host,
                                        const std::vector<std::string>& command) {
  std::vector<std::string> parts;
  for (const std::string& word : command) parts.push_back(shell_word(word));
  const std::string whole = fmt::format("{}", fmt::join(parts, " "));
  std::vector<std::string> words;
  for (const std::string& word : launcher)
    words.push_back(replaced(replaced(word, kHostWord, host), kCommandWord, whole));
  if (std::none_of(launcher.begin(), launcher.end(), has_command))
    words.insert(words.end(), command.begin(), command.end());
  return words;
}

std::string launcher_text(const std::vector<std::string>& launcher, const std::string& host) {
  std::vector<std::string> words;
  for (const std::string& word : launcher)
    words.push_back(has_command(word) ? "…" : shell_word(replaced(word, kHostWord, host)));
  if (std::none_of(launcher.begin(), launcher.end(), has_command)) words.emplace_back("…");
  return fmt::format("{}", fmt::join(words, " "));
}

OrTrouble<std::vector<std::string>> passed_on(const std::vector<std::string>& environment,
                                              const std::vector<std::string>& names) {
  std::vector<std::string> all;
  for (const std::string& entry : environment)
    if (entry.starts_with(kSettingPrefix)) all.push_back(entry);
  for (const std::string& name : names) {
    const auto entry =
        std::find_if(environment.begin(), environment.end(),
                     [start = name + "="](const std::string& each) { return each.starts_with(start); });
    if (entry == environment.end())
      return usage(fmt::format("run: --env {}: there is no such variable; export it, or leave it out", name));
    if (std::find(all.begin(), all.end(), *entry) == all.end()) all.push_back(*entry);
  }
  return all;
}

}  // namespace muster::cli
