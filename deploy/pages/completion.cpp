#include "deploy/pages/completion.hpp"

#include <algorithm>
#include <set>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace muster::pages {
namespace {

using Kind = control::Values::Kind;

constexpr const char* kGenerated =
    "# Made from the program's own declarations: cmake --build BUILD --target write-pages\n";
// Long enough for a daemon that answers, and short enough for one that does not.
constexpr const char* kJobs =
    "jobs --json --timeout 0.5 2>/dev/null | grep -o '\"name\":\"[^\"]*\"' | cut -d '\"' -f 4";

void each_command(const Command& command, const auto& visit) {
  visit(command);
  for (const Command& below : command.commands) each_command(below, visit);
}

std::vector<std::string> names_of(const std::vector<Command>& commands) {
  std::vector<std::string> names;
  for (const Command& command : commands) names.push_back(command.name);
  return names;
}

// The kind of an option's value, if completion can list such values; else "NONE".
std::string kind_of(const Option& option) {
  return control::values_named(option.value) ? option.value : "NONE";
}

// All options except those behind words of any number: a shell cannot tell which word that is, and completes
// it as one of these.
std::vector<Option> completed(const Command& command) {
  std::vector<Option> options;
  bool any_number = false;
  for (const Option& option : command.options) {
    if (!option.positional || !any_number) options.push_back(option);
    any_number = any_number || (option.positional && option.repeated);
  }
  return options;
}

// ---- bash

constexpr const char* kBash = R"bash(
_muster() {
  local cur=${COMP_WORDS[COMP_CWORD]} path=${COMP_WORDS[0]##*/} option= word positional=0 program= i
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    word=${COMP_WORDS[i]}
    if [[ -n $option ]]; then
      [[ $word == = ]] || option=
    elif [[ $word == -- && $path == 'muster run' ]]; then
      program=$((i + 1))
      break
    elif [[ $word == -* ]]; then
      [[ -z $(_muster_kind "$path $word") ]] || option=$word
    elif [[ " $(_muster_commands "$path") " == *" $word "* ]]; then
      path+=" $word"
    elif [[ $path == 'muster run' ]]; then
      program=$i
      break
    else
      positional=$((positional + 1))
    fi
  done
  if [[ -n $program ]]; then
    _muster_program "$program"
    return
  fi
  [[ $cur != = ]] || cur=
  if [[ -n $option ]]; then
    _muster_values "$(_muster_kind "$path $option")"
  elif [[ $cur == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_muster_options "$path")" -- "$cur")
  elif [[ -n $(_muster_commands "$path") ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_muster_commands "$path")" -- "$cur")
  else
    _muster_values "$(_muster_kind "$path $positional")"
  fi
}

# Of the program behind `muster run`, whose first word is number $1, and of its arguments.
_muster_program() {
  compopt -o filenames 2>/dev/null
  if [[ $COMP_CWORD -gt $1 ]]; then
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
  else
    mapfile -t COMPREPLY < <(compgen -A command -A file -- "$cur")
  fi
}

# Into COMPREPLY: the values of kind $1 that begin with $cur.
_muster_values() {
  case $1 in
  FILE)
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -f -- "$cur")
    ;;
  FOLDER)
    compopt -o filenames 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -d -- "$cur")
    ;;
  JOB)
    mapfile -t COMPREPLY < <(compgen -W "$("${COMP_WORDS[0]}" @JOBS@)" -- "$cur")
    ;;
  *)
    [[ $1 != *=* ]] || compopt -o nospace 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -W "$(_muster_words "$1")" -- "$cur")
    ;;
  esac
}

complete -F _muster muster musterd
)bash";

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += by.size())
    text.replace(at, what.size(), by);
  return text;
}

// In single quotes of a shell of the Bourne kind.
std::string in_quotes(const std::string& text) {
  return "'" + replaced(text, "'", "'\\''") + "'";
}

std::string bash_case(const std::string& pattern, const std::string& words) {
  return fmt::format("  {}) echo {} ;;\n", pattern, in_quotes(words));
}

// The pattern of words that are no options, which are counted: every one, or that of this number.
std::string bash_positional(const Command& command, const Option& option, int number) {
  return option.repeated ? in_quotes(command.path + " ") + "[0-9]*"
                         : in_quotes(fmt::format("{} {}", command.path, number));
}

// ---- zsh and fish

// As fish has it: a backslash escapes in single quotes.
std::string fish_quoted(const std::string& text) {
  return "'" + replaced(replaced(text, "\\", "\\\\"), "'", "\\'") + "'";
}

// A text of an _arguments specification.
std::string zsh_text(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == ':' || c == '[' || c == ']' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_action(const Option& option) {
  const auto values = control::values_named(option.value);
  if (!values) return " ";
  switch (values->kind) {
    case Kind::kFile:
      return "_files";
    case Kind::kFolder:
      return "_files -/";
    case Kind::kJob:
      return "_muster_job_names";
    case Kind::kWords:
      return fmt::format("({})", zsh_text(fmt::format("{}", fmt::join(values->words, " "))));
  }
  return " ";
}

std::string zsh_option(const Option& option) {
  const std::string value = fmt::format(":{}:{}", zsh_text(option.value), zsh_action(option));
  if (option.positional)
    return in_quotes(fmt::format("{}:{}:{}", option.repeated ? "*" : "", zsh_text(option.names.front()),
                                 zsh_action(option)));
  const std::string rest =
      fmt::format("[{}]{}", zsh_text(option.sentence), option.value.empty() ? "" : value);
  if (option.repeated) return in_quotes("*" + option.names.back() + rest);
  if (option.names.size() == 1) return in_quotes(option.names.front() + rest);
  const std::string all = fmt::format("{}", fmt::join(option.names, " "));
  return fmt::format("'({})'{{{}}}{}", all, fmt::join(option.names, ","), in_quotes(rest));
}

std::string zsh_name(const Command& command) {
  std::string name = "_" + command.path;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name == "_muster" ? "_muster_itself" : name;
}

std::string zsh_function(const Command& command) {
  std::string out = fmt::format("\n{}() {{\n", zsh_name(command));
  std::string options;
  for (const Option& option : completed(command)) options += " \\\n    " + zsh_option(option);
  if (command.takes_program) options += " \\\n    '*::program: _normal'";
  if (command.commands.empty()) return out + "  _arguments -s -S" + options + "\n}\n";
  out += "  local context state line\n  typeset -A opt_args\n";
  out += "  _arguments -C" + options +
         " \\\n    '1: :->command' \\\n    '*:: :->rest'\n  case $state in\n  command)\n";
  out += "    local -a commands=(\n";
  for (const Command& below : command.commands)
    out += "      " + in_quotes(below.name + ":" + zsh_text(below.sentence)) + "\n";
  out += "    )\n    _describe command commands\n    ;;\n  rest)\n    case $line[1] in\n";
  for (const Command& below : command.commands)
    out += fmt::format("    {}) {} ;;\n", below.name, zsh_name(below));
  return out + "    esac\n    ;;\n  esac\n}\n";
}

// That the words so far name this command and none below it.
std::string fish_condition(const Command& command) {
  std::string out;
  std::size_t at = command.path.find(' ');
  while (at != std::string::npos) {
    const std::size_t end = std::min(command.path.find(' ', at + 1), command.path.size());
    out += fmt::format("{}__fish_seen_subcommand_from {}", out.empty() ? "" : "; and ",
                       command.path.substr(at + 1, end - at - 1));
    at = end < command.path.size() ? end : std::string::npos;
  }
  if (!command.commands.empty())
    out += fmt::format("{}not __fish_seen_subcommand_from {}", out.empty() ? "" : "; and ",
                       fmt::join(names_of(command.commands), " "));
  return out;
}

std::string fish_value(const Option& option, const std::string& program) {
  const auto values = control::values_named(option.value);
  if (!values) return "-x";
  switch (values->kind) {
    case Kind::kFile:
      return "-r -F";
    case Kind::kFolder:
      return "-x -a '(__fish_complete_directories)'";
    case Kind::kJob:
      return "-x -a " + fish_quoted(fmt::format("({} {})", program, kJobs));
    case Kind::kWords:
      return fmt::format("-x -a '{}'", fmt::join(values->words, " "));
  }
  return "-x";
}

std::string fish_lines(const Command& command, const std::string& program) {
  const std::string condition = fish_condition(command);
  const std::string begin =
      fmt::format("complete -c {}{}", program, condition.empty() ? "" : " -n " + fish_quoted(condition));
  std::string out;
  for (const Command& below : command.commands)
    out += fmt::format("{} -f -a {} -d {}\n", begin, below.name, fish_quoted(below.sentence));
  for (const Option& option : completed(command)) {
    std::string line = begin;
    if (!option.positional)
      for (const std::string& name : option.names)
        line += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
    if (option.positional || !option.value.empty()) line += " " + fish_value(option, program);
    out += line + " -d " + fish_quoted(option.sentence) + "\n";
  }
  if (command.takes_program) out += begin + " -a '(__fish_complete_subcommand)'\n";
  return out;
}

}  // namespace

std::string bash_completion(const std::vector<Command>& programs) {
  std::string commands, options, kinds;
  std::set<std::string> values;
  for (const Command& program : programs)
    each_command(program, [&](const Command& command) {
      if (!command.commands.empty())
        commands +=
            bash_case(in_quotes(command.path), fmt::format("{}", fmt::join(names_of(command.commands), " ")));
      std::string words;
      int positional = 0;
      for (const Option& option : completed(command)) {
        if (!option.positional)
          words += (words.empty() ? "" : " ") + fmt::format("{}", fmt::join(option.names, " "));
        if (!option.positional && option.value.empty()) continue;
        values.insert(option.value);
        if (option.positional)
          kinds += bash_case(bash_positional(command, option, positional++), kind_of(option));
        else
          for (const std::string& name : option.names)
            kinds += bash_case(in_quotes(command.path + " " + name), kind_of(option));
      }
      options += bash_case(in_quotes(command.path), words);
    });
  std::string words;
  for (const std::string& value : values)
    if (const auto known = control::values_named(value); known && known->kind == Kind::kWords)
      words += bash_case(in_quotes(value), fmt::format("{}", fmt::join(known->words, " ")));
  const auto function = [](const char* name, const char* about, const std::string& cases) {
    return fmt::format("\n# {}\n{}() {{\n  case $1 in\n{}  esac\n}}\n", about, name, cases);
  };
  return std::string(kGenerated) +
         function("_muster_commands", "Of the commands so far, $1, those that may follow.", commands) +
         function("_muster_options", "The options of the command $1.", options) +
         function("_muster_kind",
                  "What the value of an option is, or a word that is none, counted from 0: $1 is command and "
                  "option.",
                  kinds) +
         function("_muster_words", "All values of kind $1.", words) + replaced(kBash, "@JOBS@", kJobs);
}

std::string zsh_completion(const std::vector<Command>& programs) {
  std::string out = "#compdef";
  for (const Command& program : programs) out += " " + program.name;
  out += fmt::format(
      "\n{}\n_muster_job_names() {{\n  local -a jobs=(${{(f)\"$(muster {})\"}})\n  compadd -a jobs\n}}\n",
      kGenerated, kJobs);
  std::string cases;
  for (const Command& program : programs) {
    each_command(program, [&](const Command& command) { out += zsh_function(command); });
    cases += fmt::format("{}) {} ;;\n", program.name, zsh_name(program));
  }
  return out + "\ncase $service in\n" + cases + "esac\n";
}

std::string fish_completion(const std::vector<Command>& programs) {
  std::string out = kGenerated;
  for (const Command& program : programs)
    each_command(program, [&](const Command& command) { out += fish_lines(command, program.name); });
  return out;
}

}  // namespace muster::pages
