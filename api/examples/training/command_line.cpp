#include "api/examples/training/command_line.hpp"

#include "api/examples/training/errors.hpp"

#include <algorithm>
#include <iostream>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace training {
namespace {

// How many letters differ: those to add, to leave out or to replace.
std::size_t edits(const std::string& a, const std::string& b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::size_t{0});
  for (std::size_t i = 0; i < a.size(); ++i) {
    std::size_t diagonal = std::exchange(row[0], i + 1);
    for (std::size_t j = 0; j < b.size(); ++j) {
      const std::size_t least = std::min({row[j + 1] + 1, row[j] + 1, diagonal + (a[i] == b[j] ? 0 : 1)});
      diagonal = std::exchange(row[j + 1], least);
    }
  }
  return row.back();
}

// The option that was probably meant.
std::string suggestion(const CLI::App& app, const std::string& word) {
  constexpr std::size_t kEditsMax = 2;
  std::string best;
  std::size_t least = kEditsMax + 1;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames())
      if (const std::size_t n = edits(word.substr(0, word.find('=')), "--" + name); n < least) {
        best = "; did you mean --" + name + "?";
        least = n;
      }
  return best;
}

// Whether the word is an option of the launcher that has been put behind its "--".
bool is_of_muster_run(const std::string& word) {
  static const std::set<std::string> names{"--check",   "--config", "--endpoint", "--env",  "--flatten",
                                           "--grace",   "--hosts",  "--job",      "--mesh", "--no-prefix",
                                           "--private", "--ranks",  "--timeout"};
  return word.starts_with("-n") || names.contains(word.substr(0, word.find('=')));
}

std::string unknown_text(const CLI::App& app, const std::string& word) {
  if (!word.starts_with("-")) return "unexpected argument " + word;
  if (is_of_muster_run(word))
    return word.substr(0, word.find('=')) +
           " is an option of muster run, which starts the ranks: `muster run -n 4 --mesh dp_shard=4 -- " +
           app.get_name() + "`";
  return "unknown option " + word + suggestion(app, word);
}

// The text of a parse error: CLI11's own where it is plain.
std::string in_words(const CLI::App& app, const CLI::ParseError& error) {
  const std::vector<std::string> unknown = app.remaining();  // in their order; CLI11 names the last one first
  if (!unknown.empty()) return unknown_text(app, unknown.front());
  const std::string text = error.what();
  if (error.get_name() == "ArgumentMismatch") {
    if (text.ends_with(" missing")) return text.substr(0, text.find(':')) + " needs a value";
    for (const CLI::Option* option : app.get_options())
      if (option->count() > 1 && option->get_expected_max() == 1)
        return option->get_name() + " given " +
               (option->count() == 2 ? "twice" : std::to_string(option->count()) + " times");
  }
  return text;
}

}  // namespace

std::string empty_fault(const std::string& text) {
  return text.empty() ? "the value is empty; give one, or leave the option out" : "";
}

bool parse(CLI::App& app, int argc, const char* const* argv) {
  try {
    app.parse(argc, argv);
    return true;
  } catch (const CLI::CallForHelp&) {
    std::cout << app.help();
    return false;
  } catch (const CLI::ParseError& error) {
    const std::string fault = in_words(app, error);
    throw UsageError(fault + (fault.ends_with("?") ? "" : ";") + " " + app.get_name() +
                     " --help lists the options");
  }
}

}  // namespace training
