// muster: the command line. Here options become calls; each family of commands has a file of its own.
#include "daemon/cli/ask_commands.hpp"
#include "daemon/cli/config_command.hpp"
#include "daemon/cli/env_command.hpp"
#include "daemon/cli/mesh_command.hpp"
#include "daemon/cli/run_command.hpp"

#include <algorithm>
#include <functional>
#include <iostream>

#include <unistd.h>
#include <CLI/CLI.hpp>

namespace {

using namespace muster::cli;

// Longest wait that a clock can hold with room to spare.
constexpr double kSecondsMax = 1e8;

muster::Nanos nanos(double seconds) {
  return muster::Nanos(static_cast<std::int64_t>(seconds * 1e9));
}

std::vector<std::string> environment() {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) all.emplace_back(*entry);
  return all;
}

// What all commands write their options to, and which of them was chosen.
struct Line {
  std::function<int()> command;
  bool json = false;
  std::string endpoint;
  double timeout = 10;
  std::string job;
  std::string file;
  std::vector<std::string> files;
  std::vector<std::string> settings;
  std::string word;
  std::vector<std::string> behind;  // what stands behind the first "--" of `muster run`
  std::uint32_t rank = 0;
  double seconds = 5;
  bool now = false;
  MeshQuestion mesh;
  RunOptions run;
  double grace = 10;
  bool keep = false, only_private = false, no_prefix = false;

  Output output() const { return json ? Output::kJson : Output::kText; }
  Door door() const {
    const auto from_environment = muster::bootstrap::process_environment()("MUSTER_ENDPOINT");
    const std::string fallback = from_environment.value_or(muster::bootstrap::kDefaultEndpoint);
    return {endpoint.empty() ? fallback : endpoint, nanos(timeout)};
  }
};

CLI::App* add(CLI::App& parent, Line& line, const char* name, const char* text,
              std::function<int()> command) {
  CLI::App* app = parent.add_subcommand(name, text);
  app->callback([&line, command = std::move(command)] { line.command = command; });
  return app;
}

CLI::App* with_json(CLI::App* app, Line& line) {
  app->add_flag("--json", line.json, "One JSON object, with schema_version");
  return app;
}

CLI::App* with_door(CLI::App* app, Line& line) {
  app->add_option("--endpoint", line.endpoint,
                  "Socket of the daemon; else MUSTER_ENDPOINT, else /run/muster/musterd.sock");
  app->add_option("--timeout", line.timeout, "Seconds to wait for an answer")
      ->check(CLI::Range(0.001, kSecondsMax));
  return app;
}

CLI::App* with_job(CLI::App* app, Line& line) {
  app->add_option("--job", line.job, "Name of the job")->required();
  return app;
}

void add_questions(CLI::App& app, Line& line) {
  const auto asked = [&](const char* name, const char* text, std::function<int()> command) {
    return with_door(with_json(add(app, line, name, text, std::move(command)), line), line);
  };
  asked("status", "The daemon: what it holds and what its limits are",
        [&line] { return run_status(line.door(), line.output()); });
  asked("jobs", "The jobs, their ranks and memory", [&line] { return run_jobs(line.door(), line.output()); });
  with_job(asked("groups", "The groups of a job",
                 [&line] { return run_groups(line.door(), line.job, line.output()); }),
           line);
  CLI::App* token =
      with_job(asked("token", "A fresh single-use claim on a rank",
                     [&line] { return run_token(line.door(), line.job, line.rank, line.output()); }),
               line);
  token->add_option("--rank", line.rank, "The rank")->required();
  with_job(asked("end", "End a job; its ranks get an error",
                 [&line] { return run_end(line.door(), line.job, line.output()); }),
           line);
  CLI::App* trace = with_job(
      asked("trace", "Record what a job does, for ui.perfetto.dev",
            [&line] { return run_trace(line.door(), line.job, line.file, line.seconds, line.output()); }),
      line);
  trace->add_option("-o,--output", line.file, "Where to write it")->required();
  trace->add_option("--seconds", line.seconds, "How long to record")->check(CLI::Range(0.0, kSecondsMax));
  asked("version", "Versions of this program and of the daemon",
        [&line] { return run_version(line.door(), line.output()); });
  CLI::App* shutdown = asked("shutdown", "Shut the daemon down once its ranks have left", [&line] {
    return run_shutdown(line.door(), line.now ? Leave::kNow : Leave::kDrain, line.output());
  });
  shutdown->add_flag("--now", line.now, "Do not wait for the ranks");
}

void add_config(CLI::App& app, Line& line) {
  CLI::App* config = app.add_subcommand("config", "Check, show and explain the configuration");
  config->require_subcommand(1);
  CLI::App* check =
      with_json(add(*config, line, "check", "Say all that is wrong in musterd.yaml or cluster files",
                    [&line] { return run_config_check(line.files, line.output()); }),
                line);
  check->add_option("files", line.files, "Files")->required();
  CLI::App* show = with_json(
      add(*config, line, "show", "Each setting of the daemon with its origin",
          [&line] { return run_config_show(line.file, line.settings, environment(), line.output()); }),
      line);
  show->add_option("--config", line.file, "musterd.yaml; else /etc/muster/musterd.yaml if there is one");
  show->add_option("--set", line.settings, "KEY=VALUE; may be given several times")->allow_extra_args(false);
  CLI::App* explain = with_json(add(*config, line, "explain", "What a key means, its type, range and default",
                                    [&line] { return run_config_explain(line.word, line.output()); }),
                                line);
  explain->add_option("key", line.word, "node.workers, jobs[].mesh, …")->required();
  CLI::App* schema = add(*config, line, "schema", "JSON Schema for editors",
                         [&line] { return run_config_schema(line.word); });
  schema->add_option("file", line.word, "musterd or cluster")
      ->required()
      ->check(CLI::IsMember({"musterd", "cluster"}));
}

void add_local(CLI::App& app, Line& line) {
  with_json(add(app, line, "env", "Which rank this process would be, and why",
                [&line] { return run_env(muster::bootstrap::process_environment(), line.output()); }),
            line);
  CLI::App* mesh = with_json(add(app, line, "mesh", "The dims and groups of a mesh; needs no daemon",
                                 [&line] { return run_mesh(line.mesh, line.output()); }),
                             line);
  mesh->add_option("--world", line.mesh.world, "Ranks")
      ->check(CLI::Range(std::int64_t{1}, muster::mesh::kRankCountMax));
  mesh->add_option("--mesh", line.mesh.mesh, "Degrees: dp_replicate=2,dp_shard=-1,tp=2");
  mesh->add_option("--flatten", line.mesh.flattens, "NAME=DIM,DIM; may be given several times")
      ->allow_extra_args(false);
  mesh->add_option("--config", line.mesh.config, "A cluster file, in place of the three above");
  mesh->add_option("--job", line.mesh.job, "A job of that file");
}

int run(Line& line) {
  line.run.door = line.door();
  line.run.grace = nanos(line.grace);
  line.run.lifetime = line.keep ? Lifetime::kKeep : Lifetime::kRun;
  line.run.home = line.only_private ? Home::kPrivate : Home::kAny;
  line.run.prefix = line.no_prefix ? Prefix::kNone : Prefix::kRank;
  line.run.environment = environment();
  if (line.run.command.empty()) return complain({kUsage, "run: say which program, after --"});
  if (line.run.command.front().starts_with("-"))
    return complain(
        {kUsage, fmt::format("run: unknown option {}; a program stands after --", line.run.command.front())});
  return run_ranks(line.run);
}

void add_run(CLI::App& app, Line& line) {
  CLI::App* app_run =
      with_door(app.add_subcommand("run", "Start ranks here: muster run -n 4 -- ./program"), line);
  app_run->prefix_command();
  app_run->add_option("-n,--ranks", line.run.ranks, "How many")
      ->check(CLI::Range(std::int64_t{1}, muster::mesh::kRankCountMax));
  app_run->add_option("--mesh", line.run.mesh, "Degrees: dp_replicate=2,dp_shard=-1,tp=2; else dp_shard=-1");
  app_run->add_option("--flatten", line.run.flattens, "NAME=DIM,DIM; may be given several times")
      ->allow_extra_args(false);
  app_run->add_option("--config", line.run.config, "musterd.yaml, if the run starts a daemon of its own");
  app_run->add_option("--job", line.run.job, "Join this job, or create it with -n; else run-<pid>");
  app_run->add_flag("--keep", line.keep, "The job outlives the run");
  app_run->add_flag("--private", line.only_private,
                    "Start a daemon for this run though another may be running");
  app_run->add_option("--trace", line.run.trace, "Record the run into this file, for ui.perfetto.dev");
  app_run->add_flag("--no-prefix", line.no_prefix, "Do not put [rank] before each line");
  app_run->add_option("--grace", line.grace, "Seconds that the others have after the first failure")
      ->check(CLI::Range(0.0, kSecondsMax));
  app_run->callback([&line, app_run] {
    line.run.command = app_run->remaining();
    // A separator behind the program is the program's own.
    if (!line.run.command.empty() && !line.behind.empty()) line.run.command.emplace_back("--");
    line.run.command.insert(line.run.command.end(), line.behind.begin(), line.behind.end());
    line.command = [&line] { return run(line); };
  });
}

// The arguments that are ours, last first as CLI11 takes them; the program's go to `behind` untouched.
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

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Muster gathers the ranks.", "muster");
  Line line;
  app.require_subcommand(1);
  app.set_version_flag("--version", fmt::format("muster {}.{}.{}", MUSTER_VERSION_MAJOR, MUSTER_VERSION_MINOR,
                                                MUSTER_VERSION_PATCH));
  add_run(app, line);
  add_questions(app, line);
  add_local(app, line);
  add_config(app, line);
  try {
    app.parse(own_arguments(argc, argv, line));
  } catch (const CLI::Success& success) {
    return app.exit(success);
  } catch (const CLI::ParseError& error) {
    return complain({kUsage, fmt::format("{}; `muster --help` lists the commands", error.what())});
  }
  return line.command();
}
