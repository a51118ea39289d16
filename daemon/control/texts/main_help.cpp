#include "daemon/control/texts/main_help.hpp"

#include "api/base/utf8.hpp"

#include <algorithm>
#include <memory>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <CLI/CLI.hpp>

namespace muster::control {
namespace {

constexpr std::size_t kHelpColumns = 80;
constexpr std::size_t kOptionColumns = 30;   // where the sentences of options begin
constexpr std::size_t kCommandColumns = 14;  // and those of commands

std::string blanks(std::size_t count) {
  return std::string(count, ' ');
}

// Breaks a line between words; what does not fit goes on at column `indent`.
std::string wrapped(std::string line, std::size_t indent) {
  std::string out;
  while (utf8_characters(line) > kHelpColumns) {
    const std::size_t end = utf8_offset(line, kHelpColumns + 1);
    std::size_t at = line.rfind(' ', end - 1);
    if (at == std::string::npos || at < indent || line.find_first_not_of(' ') > at) at = line.find(' ', end);
    if (at == std::string::npos) break;  // one long word
    out += line.substr(0, line.find_last_not_of(' ', at) + 1) + "\n";
    line = blanks(indent) + line.substr(at + 1);
  }
  return out + line + "\n";
}

// Where the text of a line begins: behind its margin, and behind its first column if it has two.
std::size_t indent_of(const std::string& line) {
  const std::size_t margin = std::min(line.find_first_not_of(' '), line.size());
  const std::size_t gap = line.find("  ", margin);
  return gap == std::string::npos ? margin : std::min(line.find_first_not_of(' ', gap), line.size());
}

std::string row(const std::string& left, const std::string& right, std::size_t column) {
  if (utf8_characters(left) + 2 > column) return wrapped(left, 6) + wrapped(blanks(column) + right, column);
  return wrapped(left + blanks(column - utf8_characters(left)) + right, column);
}

std::string path_of(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return (parent == nullptr ? "" : path_of(*parent) + " ") + app.get_name();
}

// Owns    the examples.
// Thread  any.
// Bound   none.
// Fails   never.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::vector<Fact> examples) : examples_(std::move(examples)) {}

  std::string make_description(const CLI::App* app) const override {
    return wrapped(app->get_description(), 0);
  }
  std::string make_usage(const CLI::App* app, std::string name) const override {
    if (!app->get_prefix_command()) return CLI::Formatter::make_usage(app, std::move(name));
    return fmt::format("Usage: {} [OPTIONS] -- PROGRAM [ARGS...]\n", name);
  }
  std::string make_option(const CLI::Option* option, bool is_positional) const override {
    return row("  " + make_option_name(option, is_positional) + make_option_opts(option),
               make_option_desc(option), kOptionColumns);
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return row("  " + command->get_name(), command->get_description(), kCommandColumns);
  }
  std::string make_footer(const CLI::App* app) const override {
    std::istringstream text(app->get_footer());
    std::string out;
    for (std::string line; std::getline(text, line);) out += wrapped(line, indent_of(line));
    if (app->get_parent() == nullptr) return out;
    const std::string path = path_of(*app);
    std::string examples;
    for (const Fact& example : examples_)
      if (example.name == path || example.name.starts_with(path + " "))
        examples += wrapped("  " + example.name, 6) + wrapped("      " + example.sentence, 6);
    if (examples.empty()) return out;
    return out + (out.empty() ? "" : "\n") + "Examples:\n" + examples;
  }

 private:
  std::vector<Fact> examples_;
};

void set_formatter(CLI::App& app, const std::shared_ptr<HelpFormatter>& formatter) {
  app.formatter(formatter);
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    set_formatter(*command, formatter);
}

}  // namespace

void format_help(CLI::App& app, const std::vector<Fact>& examples) {
  set_formatter(app, std::make_shared<HelpFormatter>(examples));
}

}  // namespace muster::control
