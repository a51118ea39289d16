// Help and examples of all commands, as they are declared.
#include "daemon/cli/program/command_line.hpp"

#include "api/base/utf8.hpp"
#include "daemon/control/texts/main_manual.hpp"
#include "daemon/control/texts/main_outline.hpp"

#include <algorithm>
#include <sstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <CLI/CLI.hpp>

namespace muster::cli {
namespace {

using ::testing::HasSubstr;

// The --help texts of a program and of each of its commands, by their paths.
std::vector<std::pair<std::string, std::string>> all_help(CLI::App& app, const std::string& parent = "") {
  const std::string path = parent + (parent.empty() ? "" : " ") + app.get_name();
  std::vector<std::pair<std::string, std::string>> all{{path, app.help(parent)}};
  for (CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    for (auto& each : all_help(*command, path)) all.push_back(std::move(each));
  return all;
}

// Goal:   help can be read in the narrowest usual window, and each command can be tried at once.
TEST(CommandManual, HelpOfEachCommandFitsEightyColumnsAndHasAnExample) {
  CLI::App app;
  Line line;
  declare(app, line);
  const auto all = all_help(app);
  EXPECT_GT(all.size(), 30u);
  for (const auto& [path, help] : all) {
    std::istringstream text(help);
    for (std::string row; std::getline(text, row);)
      EXPECT_LE(utf8_characters(row), 80u) << path << ": " << row;
    EXPECT_THAT(help, HasSubstr("Examples:\n  " + path)) << "of " << path;
    EXPECT_THAT(help, HasSubstr("Usage: " + path)) << "of " << path;
  }
}

// Goal:   an example that is typed as it stands is no wrong usage.
TEST(CommandManual, ExamplesAreLinesThatTheProgramTakes) {
  for (const control::Fact& example : command_examples()) {
    std::istringstream text(example.name);
    std::vector<std::string> words;
    for (std::string word; text >> word && word != "--" && word != ">";) words.insert(words.begin(), word);
    ASSERT_EQ(words.back(), "muster");
    words.pop_back();
    CLI::App app;
    Line line;
    declare(app, line);
    EXPECT_NO_THROW(app.parse(words)) << example.name;
    EXPECT_TRUE(line.command) << example.name;
  }
}

// Goal:   nothing is lost where a line is broken.
TEST(CommandManual, HelpHasEachSentenceWhole) {
  const auto words = [](const std::string& text) {
    std::istringstream stream(text);
    std::string all;
    for (std::string word; stream >> word;) all += word + " ";
    return all;
  };
  CLI::App app;
  Line line;
  declare(app, line);
  for (const auto& [path, help] : all_help(app)) {
    const CLI::App* at = &app;
    std::istringstream names(path);
    std::string name;
    names >> name;
    while (names >> name) at = at->get_subcommand(name);
    EXPECT_THAT(words(help), HasSubstr(words(at->get_description()))) << path;
    EXPECT_THAT(words(help), HasSubstr(words(at->get_footer()))) << path;
    for (const CLI::Option* option : at->get_options())
      if (!option->get_group().empty())
        EXPECT_THAT(words(help), HasSubstr(words(option->get_description()))) << path;
  }
}

}  // namespace
}  // namespace muster::cli
