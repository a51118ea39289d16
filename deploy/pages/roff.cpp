#include "deploy/pages/roff.hpp"

#include "api/base/utf8.hpp"
#include "daemon/config/cluster.hpp"
#include "daemon/config/render.hpp"
#include "daemon/config/settings.hpp"
#include "daemon/supervisor/program/startup.hpp"

#include <algorithm>
#include <set>
#include <span>

#include <fmt/format.h>

namespace muster::pages {
namespace {

using control::Fact;

constexpr const char* kGenerated =
    ".\\\" Made from the program's own declarations: cmake --build BUILD --target write-pages\n";
constexpr std::size_t kCommonFrom = 5;  // an option that so many commands have is described once

std::string upper(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](char c) { return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c; });
  return text;
}

std::string head(const std::string& name, int section, const std::string& version, const std::string& about) {
  return kGenerated + fmt::format(".TH {} {} \"\" \"Muster {}\"\n.SH NAME\n{} \\- {}\n", upper(roff(name)),
                                  section, roff(version), roff(name), roff(about));
}

std::string bold(const std::string& text) {
  return "\\fB" + roff(text) + "\\fR";
}

std::string italic(const std::string& text) {
  return "\\fI" + roff(text) + "\\fR";
}

std::string paragraph(const std::string& text) {
  return ".PP\n" + roff(text) + "\n";
}

std::string paragraphs(const char* section, const std::vector<std::string>& texts) {
  std::string out = fmt::format(".SH {}\n{}\n", section, roff(texts.front()));
  for (std::size_t i = 1; i < texts.size(); ++i) out += paragraph(texts[i]);
  return out;
}

std::string item(const std::string& tag, const std::string& text) {
  return ".TP\n" + tag + "\n" + roff(text) + "\n";
}

std::string facts(const char* section, const std::vector<Fact>& all) {
  if (all.empty()) return "";
  std::string out = fmt::format(".SH {}\n", section);
  for (const Fact& fact : all) out += item(bold(fact.name), fact.sentence);
  return out;
}

std::string verbatim(const std::string& text) {
  return ".PP\n.EX\n" + roff(text) + "\n.EE\n";
}

std::string tag_of(const Option& option) {
  std::string tag;
  for (const std::string& name : option.names)
    tag += (tag.empty() ? "" : ", ") + (option.positional ? italic(upper(name)) : bold(name));
  if (!option.positional && !option.value.empty()) tag += " " + italic(option.value);
  if (option.positional && option.value != upper(option.names.front()))
    tag += " (" + italic(option.value) + ")";
  return tag;
}

std::string described(const Option& option) {
  std::string text = option.sentence + ".";
  if (!option.fallback.empty()) text += fmt::format(" Default {}.", option.fallback);
  if (option.required && !option.positional) text += " Required.";
  return item(tag_of(option), text);
}

std::string key_of(const Option& option) {
  return tag_of(option) + option.sentence;
}

// Those that many commands have, by their words.
std::set<std::string> common_options(const Command& program) {
  std::multiset<std::string> all;
  const auto count = [&all](const auto& self, const Command& command) -> void {
    for (const Option& option : command.options) all.insert(key_of(option));
    for (const Command& below : command.commands) self(self, below);
  };
  count(count, program);
  std::set<std::string> common;
  for (const std::string& key : all)
    if (all.count(key) >= kCommonFrom) common.insert(key);
  return common;
}

std::string usage_of(const Command& command) {
  std::string out = bold(command.path);
  out +=
      command.takes_program ? " [OPTIONS] \\-\\- " + italic("PROGRAM") + " [" + italic("ARGS") + "...]" : "";
  for (const Option& option : command.options)
    if (option.positional) out += " " + italic(upper(option.names.front())) + (option.repeated ? "..." : "");
  return out + (command.takes_program ? "" : " [OPTIONS]");
}

std::string command_section(const Command& command, const std::set<std::string>& common) {
  if (!command.commands.empty()) {
    std::string out;
    for (const Command& below : command.commands) out += command_section(below, common);
    return out;
  }
  std::string out = fmt::format(".SS {}\n{}.\n", usage_of(command), roff(command.sentence));
  for (const Option& option : command.options)
    if (!common.contains(key_of(option))) out += described(option);
  if (command.footer.find('\n') != std::string::npos)
    out += verbatim(command.footer);
  else if (!command.footer.empty())
    out += paragraph(command.footer);
  if (!command.examples.empty()) out += paragraph(command.examples.size() == 1 ? "Example:" : "Examples:");
  for (const Fact& example : command.examples) out += item(bold(example.name), example.sentence);
  return out;
}

std::string references(const std::vector<std::string>& pages) {
  std::string out = ".SH SEE ALSO\n";
  for (std::size_t i = 0; i < pages.size(); ++i) {
    const std::size_t open = pages[i].find('(');
    out += fmt::format(".BR {} {}{}\n", roff(pages[i].substr(0, open)), pages[i].substr(open),
                       i + 1 < pages.size() ? " ," : "");
  }
  return out;
}

// ---- musterd.yaml(5)

std::string keys_text(std::span<const config::Key> keys, bool settings) {
  std::string out;
  for (const config::Key& key : keys) {
    const std::string path(key.path), sentence(key.sentence);
    if (key.kind == config::Key::Kind::kSection && path.find('.') == std::string::npos) {
      out += fmt::format(".SS {}\n{}\n", roff(path), roff(sentence));
      continue;
    }
    std::string text =
        sentence + " " + upper(config::type_text(key).substr(0, 1)) + config::type_text(key).substr(1);
    if (key.presence == config::Key::Presence::kRequired)
      text += "; required";
    else if (key.leaf())
      text += key.fallback.empty() ? "" : fmt::format("; default {}", key.fallback);
    text += ".";
    if (settings && key.leaf()) text += fmt::format(" In the environment: {}.", config::variable_of(path));
    out += item(bold(path), text);
  }
  return out;
}

}  // namespace

std::string roff(std::string_view text) {
  std::string out;
  bool line_begins = true;
  for (std::size_t i = 0; i < text.size();) {
    const std::size_t length = std::max<std::size_t>(utf8_length(text, i), 1);
    const char c = text[i];
    if (line_begins && (c == '.' || c == '\'')) out += "\\&";
    if (length > 1) {
      unsigned point = static_cast<unsigned char>(c) & (0xFFu >> (length + 1));
      for (std::size_t k = 1; k < length; ++k)
        point = point << 6 | (static_cast<unsigned char>(text[i + k]) & 0x3Fu);
      out += fmt::format("\\[u{:04X}]", point);
    } else if (c == '\\') {
      out += "\\e";
    } else if (c == '-') {
      out += "\\-";
    } else if (c == '\'') {
      out += "\\(aq";
    } else if (c == '`') {
      out += "\\(ga";
    } else if (c == '^') {
      out += "\\(ha";
    } else if (c == '~') {
      out += "\\(ti";
    } else if (c == '"') {
      out += "\\(dq";
    } else {
      out += c;
    }
    line_begins = c == '\n';
    i += length;
  }
  return out;
}

std::string program_page(const Program& program, int section) {
  const Command& command = program.command;
  std::string about = command.sentence;
  if (about.ends_with('.')) about.pop_back();
  about.front() = static_cast<char>(std::tolower(about.front()));
  std::string out = head(command.name, section, program.version, about);
  out += ".SH SYNOPSIS\n" + bold(command.name) + " " + roff(program.manual.synopsis) + "\n";
  for (const Command& below : command.commands)
    if (below.takes_program) out += ".br\n" + usage_of(below) + "\n";
  out += paragraphs("DESCRIPTION", program.manual.description);
  const std::set<std::string> common = common_options(command);
  if (!command.commands.empty()) {
    out += ".SH COMMANDS\n";
    for (const Command& below : command.commands) out += command_section(below, common);
  }
  out += command.commands.empty() ? ".SH OPTIONS\n" : ".SH COMMON OPTIONS\nCommands that have them:\n";
  std::set<std::string> told;
  const auto tell = [&](const auto& self, const Command& each) -> void {
    for (const Option& option : each.options) {
      const bool here = &each == &command || common.contains(key_of(option));
      if (here && told.insert(key_of(option)).second) out += described(option);
    }
    for (const Command& below : each.commands) self(self, below);
  };
  tell(tell, command);
  out += facts("EXIT STATUS", program.manual.exit_codes);
  out += facts("ENVIRONMENT", program.manual.environment);
  out += facts("FILES", program.manual.files);
  out += ".SH EXAMPLES\n";
  for (const Fact& example : program.manual.examples)
    out += fmt::format(".TP\n{}\n{}\n", bold(example.name), roff(example.sentence));
  return out + references(program.manual.see_also);
}

std::string settings_page(const std::string& version) {
  std::string out = head("musterd.yaml", 5, version, "settings of the muster daemon, and the cluster file");
  out += ".SH SYNOPSIS\n" + bold(supervisor::kDefaultConfig) + "\n";
  out += paragraphs(
      "DESCRIPTION",
      {"The settings of one node's musterd(8), as YAML. Every key may be left out: it has its default then. "
       "Sizes "
       "and durations carry their unit, as 64MiB and 60s do.",
       "The file is read strictly. An unknown key, a key given twice, a number without its unit, an alias "
       "or a "
       "value out of range stops the daemon before it touches a device, and all errors are told at once, "
       "with "
       "line and column. The file belongs to root or to the daemon's user, and nobody else may write it.",
       "A flag --set KEY=VALUE is stronger than the environment, and that than this file. In the name of a "
       "variable two underscores stand for a dot: MUSTER_SET_node__workers=4 is node.workers.",
       "muster config check says what is wrong, muster config show what is in force and why, muster config "
       "explain KEY what a key means, and muster config schema musterd prints a JSON Schema for editors."});
  out += ".SH SETTINGS\n" + keys_text(config::settings_keys(), true);
  out += ".SH THE CLUSTER FILE\n" +
         roff(
             "jobs_from names a file with nodes and jobs, the same on all nodes. It is read as strictly. "
             "[] stands for an item of a list, * for a name that you choose.") +
         "\n" + keys_text(config::cluster_keys(), false);
  out += ".SH EXAMPLES\nFour workers an engine, few jobs, samples compared, and a cluster file:\n";
  out += verbatim(
      "node:\n  workers: 4\nlimits:\n  jobs_max: 4\n  arena_per_rank_max: 2GiB\ndefaults:\n"
      "  deadline: 5m\n  digests: 64\njobs_from: /etc/muster/cluster.yaml");
  return out + references({"muster(1)", "musterd(8)"});
}

}  // namespace muster::pages
