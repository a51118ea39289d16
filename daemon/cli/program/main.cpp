// muster: the program. Its command line is declared in command_line.cpp.
#include "api/base/variables.hpp"
#include "daemon/cli/program/command_line.hpp"
#include "daemon/control/texts/main_usage.hpp"

#include <algorithm>
#include <sstream>

#include <CLI/CLI.hpp>

namespace {

using namespace muster::cli;

// Our own arguments, last first as CLI11 takes them; those of the program go to `behind` unchanged.
std::vector<std::string> own_arguments(int argc, char** argv, Line& line) {
  std::vector<std::string> own(argv + 1, argv + argc);
  if (!own.empty() && own.front() == "run") {
    const auto separator = std::find(own.begin(), own.end(), "--");
    if (separator != own.end()) {
      line.behind.assign(separator + 1, own.end());
      own.erase(separator, own.end());
    }
  }
  std::reverse(own.begin(), own.end());
  return own;
}

// The innermost command that the user chose.
const CLI::App& chosen(const CLI::App& app) {
  const CLI::App* last = &app;
  while (!last->get_subcommands().empty()) last = last->get_subcommands().front();
  return *last;
}

int refuse(const CLI::App& app, const CLI::ParseError& error) {
  const CLI::App& command = chosen(app);
  std::string path = command.get_name();
  for (const CLI::App* parent = command.get_parent(); parent != nullptr; parent = parent->get_parent())
    path = parent->get_name() + " " + path;
  return complain({kUsage, muster::control::wrong_usage(command, error, path)});
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app;
  Line line;
  declare(app, line);
  try {
    app.parse(own_arguments(argc, argv, line));
  } catch (const CLI::Success& success) {
    std::ostringstream text;
    app.exit(success, text, text);
    return print_text(text.str());
  } catch (const CLI::ParseError& error) {
    return refuse(app, error);
  }
  if (line.run.part.host.empty())  // else the head of the run has set it
    for (const std::string& text : muster::misspelt_variables(muster::process_variables())) warn(text);
  if (const auto trouble = line.fault()) return complain(*trouble);
  return line.command();
}
