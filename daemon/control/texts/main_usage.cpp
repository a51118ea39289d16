#include "daemon/control/texts/main_usage.hpp"

#include "api/base/spelling.hpp"
#include "daemon/config/diagnostic.hpp"
#include "daemon/control/texts/main_outline.hpp"

#include <optional>
#include <vector>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace muster::control {
namespace {

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    if (option->get_group() != kHidden)
      for (const std::string& name : option->get_lnames()) names.push_back(name);
  return names;
}

std::string with_suggestion(const std::string& text, const std::string& word,
                            const std::vector<std::string>& names, const std::string& lead = "") {
  auto near = closest(word, names);
  if (near) near->insert(0, lead);
  const std::string suggestion = did_you_mean(near);
  return suggestion.empty() ? text : text + "; " + suggestion;
}

// `word`: as it was written, perhaps with one dash or with its value.
std::string unknown_option(const CLI::App& app, const std::string& word) {
  const std::string name = word.substr(0, word.find('='));
  const std::size_t letters = name.find_first_not_of('-');
  return with_suggestion("unknown option " + name, letters == std::string::npos ? "" : name.substr(letters),
                         option_names(app), "--");
}

// Explains an option before its command, or an unknown one. CLI11 leaves it with the command's parent, and
// names it last.
std::optional<std::string> before_command(const CLI::App& command) {
  for (const CLI::App* parent = command.get_parent(); parent != nullptr; parent = parent->get_parent()) {
    const std::vector<std::string> rest = parent->remaining();
    if (rest.empty()) continue;
    const std::string& word = rest.front();
    const std::string name = word.substr(0, word.find('='));
    if (command.get_option_no_throw(name) != nullptr)
      return fmt::format("{} stands before '{}', whose option it is; write it behind", name,
                         command.get_name());
    return unknown_option(command, word);
  }
  return std::nullopt;
}

std::string fault_of(const CLI::App& command, const CLI::ParseError& error) {
  if (const auto early = before_command(command)) return *early;
  const std::vector<std::string> rest = command.remaining();
  const std::string word = rest.empty() ? "" : rest.front();
  const std::vector<std::string> commands = command_names(command);
  if (word.starts_with("-")) return unknown_option(command, word);
  if (!commands.empty() && !word.empty())
    return with_suggestion(fmt::format("unknown command {}", config::in_quotes(word)), word, commands);
  if (!commands.empty() && error.get_name() == "RequiredError") return "say which command";
  const std::string text = error.what();
  if (error.get_name() == "ArgumentMismatch") {
    if (text.ends_with(" missing")) return text.substr(0, text.find(':')) + " needs a value";
    for (const CLI::Option* option : command.get_options())
      if (option->count() > 1 && option->get_expected_max() == 1)
        return fmt::format("{} given {}", option->get_name(),
                           option->count() == 2 ? "twice" : fmt::format("{} times", option->count()));
  }
  if (!word.empty()) return fmt::format("unexpected argument {}", config::in_quotes(word));
  return text;
}

}  // namespace

std::string wrong_usage(const CLI::App& command, const CLI::ParseError& error, const std::string& path) {
  const std::string fault = fault_of(command, error);
  return fmt::format("{}{} `{} --help` lists the {}", fault, fault.ends_with('?') ? "" : ";", path,
                     command_names(command).empty() ? "options" : "commands");
}

}  // namespace muster::control
