#include "daemon/supervisor/program/main_flags.hpp"

#include "api/base/utf8.hpp"
#include "daemon/control/own_version.hpp"
#include "daemon/control/texts/main_help.hpp"
#include "daemon/control/texts/main_manual.hpp"
#include "daemon/control/texts/main_outline.hpp"
#include "daemon/control/texts/main_usage.hpp"

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <iostream>

#include <unistd.h>
#include <CLI/CLI.hpp>

namespace muster::supervisor {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

// Splits the "key=value" of --set.
std::optional<config::Inputs::Flag> assignment_of(const std::string& text) {
  const std::size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0) return std::nullopt;
  const std::string key = text.substr(0, equals);
  return config::Inputs::Flag{key, text.substr(equals + 1), "--set " + key};
}

// Why the engine's program cannot be run; empty if it can. Asked at the start of the daemon.
std::string engine_fault(const std::string& program) {
  std::error_code ignored;
  if (std::filesystem::is_directory(program, ignored)) return "it is a directory";
  return access(program.c_str(), X_OK) == 0 ? "" : std::strerror(errno);
}

// For CLI11: it would take an empty path for none, and use the default.
std::string empty_fault(const std::string& text) {
  return text.empty() ? "the value is empty; give one, or leave the option out" : "";
}

// One write, because other processes write to the same terminal.
tl::unexpected<int> refuse(const std::string& text, int code) {
  std::cerr << printable("musterd: " + text + "\n", Lines::kSeveral);
  return tl::unexpected(code);
}

}  // namespace

void declare(CLI::App& app, Typed& typed) {
  app.name("musterd");
  app.description("The daemon of a node: it starts an engine for each job and lets the job's ranks in.");
  app.add_option("--config", typed.config,
                 fmt::format("Configuration; else {} if there is one", kDefaultConfig))
      ->check(empty_fault)
      ->type_name(control::kFile);
  app.add_option("--directory", typed.directory, "The daemon's directory: node.runtime_directory")
      ->check(empty_fault)
      ->type_name(control::kFile);
  app.add_option("--socket", typed.socket, "The socket for training processes: node.socket_path")
      ->check(empty_fault)
      ->type_name(control::kFile);
  app.add_option("--set", typed.settings, "As in the configuration; may be given several times")
      ->type_name(control::kSetting)
      ->allow_extra_args(false);
  app.add_option("--engine", typed.flags.engine_program, "Path of muster-engine")
      ->check(empty_fault)
      ->type_name(control::kFile);
  app.add_flag("--check-config", typed.flags.check_config,
               "Say what is wrong with the configuration, and end");
  // For program_check.cpp, not for users.
  app.add_option("--check-state", typed.flags.check_state)->group(control::kHidden);
  app.add_option("--check-nonce", typed.flags.check_nonce)->group(control::kHidden);
  app.add_option("--check-directory", typed.flags.check_directory)->group(control::kHidden);
  app.add_flag("--print-config", typed.flags.print_config, "Print each setting with its origin, and end");
  app.add_flag("--transient", typed.flags.transient,
               "For one run: reads no default configuration, removes its runtime directory at the end");
  app.set_version_flag("--version", "musterd " + control::own_version());
  app.footer(control::help_footer(daemon_manual()));
  control::format_help(app, {});
}

control::CommandOutline flag_outline() {
  CLI::App app;
  Typed typed;
  declare(app, typed);
  return control::outline(app);
}

tl::expected<Flags, int> parse_flags(int argc, char** argv) {
  CLI::App app;
  Typed typed;
  declare(app, typed);
  Flags& flags = typed.flags;
  std::error_code ignored;
  flags.program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  if (flags.program.empty()) flags.program = argc > 0 ? argv[0] : "musterd";
  flags.arguments.assign(argv, argv + argc);
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    return tl::unexpected(app.exit(success));
  } catch (const CLI::ParseError& error) {
    return refuse(control::wrong_usage(app, error, "musterd"), kUsage);
  }
  if (flags.transient) flags.sources.kind = Sources::ConfigFile::kNone;
  if (!typed.config.empty()) {
    flags.sources.kind = Sources::ConfigFile::kGiven;
    flags.sources.path = typed.config;
  }
  for (const std::string& text : typed.settings) {
    auto assignment = assignment_of(text);
    if (!assignment) return refuse("--set " + text + ": write KEY=VALUE", kUsage);
    flags.sources.flags.push_back(*std::move(assignment));
  }
  struct PathFlag {
    const std::string& typed;
    const char* key;
    const char* flag;
  };
  for (const auto& [written, key, flag] : {PathFlag{typed.directory, "node.runtime_directory", "--directory"},
                                           PathFlag{typed.socket, "node.socket_path", "--socket"}}) {
    if (written.empty()) continue;
    const std::filesystem::path path = std::filesystem::absolute(written, ignored);
    if (ignored)
      return refuse(fmt::format("{} {}: the working directory is gone ({}); write the path from / on", flag,
                                written, ignored.message()),
                    kFailed);
    flags.sources.flags.push_back({key, path.string(), flag});
  }
  if (flags.engine_program.empty()) flags.engine_program = engine_program();
  const std::string fault = flags.print_config ? "" : engine_fault(flags.engine_program);
  if (!fault.empty())
    return refuse("the engine " + flags.engine_program + " cannot be run: " + fault +
                      "; complete the installation, or name it with --engine",
                  kFailed);
  return std::move(flags);
}

}  // namespace muster::supervisor
