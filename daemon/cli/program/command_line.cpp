#include "daemon/cli/program/command_line.hpp"

#include "api/base/bootstrap.hpp"
#include "api/base/layout/split.hpp"
#include "api/base/node_limits.hpp"
#include "api/base/variables.hpp"
#include "daemon/cli/ask/ask_commands.hpp"
#include "daemon/cli/ask/hang_command.hpp"
#include "daemon/cli/ask/trace_file.hpp"
#include "daemon/cli/ask/upgrade_command.hpp"
#include "daemon/cli/local/config_command.hpp"
#include "daemon/cli/local/doctor_command.hpp"
#include "daemon/cli/local/env_command.hpp"
#include "daemon/cli/option_checks.hpp"
#include "daemon/cli/run/private_runs.hpp"
#include "daemon/cli/run/rank_environment.hpp"
#include "daemon/cli/run/stale_runs.hpp"
#include "daemon/config/diagnostic.hpp"
#include "daemon/control/own_version.hpp"
#include "daemon/control/texts/main_help.hpp"
#include "daemon/control/texts/main_manual.hpp"
#include "daemon/control/texts/main_outline.hpp"

#include <algorithm>
#include <limits>

#include <CLI/CLI.hpp>

namespace muster::cli {
namespace {

// The longest wait that a clock can safely add.
constexpr double kSecondsMax = 1e8;
constexpr std::int64_t kFlightRowsMax = 1'000'000;

Nanos nanos(double seconds) {
  return Nanos(static_cast<std::int64_t>(seconds * 1e9));
}

std::string endpoint_variable() {
  return bootstrap::process_environment()(bootstrap::kEndpointVariable).value_or("");
}

CLI::Option* whole(CLI::Option* option, std::int64_t low, std::int64_t high) {
  option->type_name("N");
  return option->check([low, high](const std::string& text) { return whole_number_fault(text, low, high); });
}

CLI::Option* seconds(CLI::Option* option, double low) {
  option->type_name("SECONDS")->capture_default_str();
  return option->check([low](const std::string& text) { return number_fault(text, low, kSecondsMax); });
}

CLI::Option* filled(CLI::Option* option) {
  return option->check([](const std::string& text) { return empty_fault(text); });
}

// `kind` names the values: help shows it, and a shell completes them.
CLI::Option* filled(CLI::Option* option, const char* kind) {
  return filled(option)->type_name(kind);
}

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

CLI::App* with_address(CLI::App* app, Line& line) {
  filled(app->add_option(
             "--endpoint", line.endpoint,
             "The daemon's directory, or its socket for ranks; else MUSTER_ENDPOINT, else /run/muster"),
         control::kFile);
  app->preparse_callback([&line](std::size_t) { line.asks_daemon = true; });
  seconds(app->add_option("--timeout", line.timeout, "Seconds to wait for an answer"), 0.001);
  return app;
}

CLI::App* with_job(CLI::App* app, Line& line) {
  filled(app->add_option("--job", line.job, "Name of the job")->required(), control::kJob);
  return app;
}

void add_mesh(CLI::App* of, std::string& degrees, std::vector<std::string>& flattens) {
  filled(of->add_option("--mesh", degrees,
                        "dp_replicate=2,dp_shard=-1,tp=2; -1: what is left; else dp_shard=-1"),
         "DEGREES");
  of->add_option("--flatten", flattens, "Neighbouring dims under one name; may be given several times")
      ->allow_extra_args(false)
      ->type_name("NAME=DIM,DIM");
}

int end_jobs(const Line& line) {
  if (!line.word.empty()) return run_end_of(line.address(), line.word, line.output());
  if (!line.job.empty())
    return line.of_daemon(
        [&](const DaemonAddress& daemon) { return run_end(daemon, line.job, line.output()); });
  return complain({kUsage, "end: say which job with --job NAME, or which batch job with --of slurm:NUMBER"});
}

void add_end(CLI::App* end, Line& line) {
  CLI::Option* of =
      filled(end->add_option("--of", line.word, "All jobs whose ranks are, or were last, of slurm:NUMBER"),
             "slurm:NUMBER");
  of->excludes(filled(end->add_option("--job", line.job, "Name of the job"), control::kJob));
}

CLI::App* asked(CLI::App& app, Line& line, const char* name, const char* text, std::function<int()> command) {
  return with_address(with_json(add(app, line, name, text, std::move(command)), line), line);
}

std::function<int()> of_daemon(Line& line, std::function<int(const DaemonAddress&)> command) {
  return [&line, command = std::move(command)] { return line.of_daemon(command); };
}

// `fault`: what is wrong with the command line, before a daemon is looked for.
CLI::App* asked_of_job(
    CLI::App& app, Line& line, const char* name, const char* text,
    std::function<int(const DaemonAddress&, const std::string& job)> command,
    std::function<std::optional<Trouble>()> fault = [] { return std::nullopt; }) {
  CLI::App* of =
      asked(app, line, name, text, [&line, command = std::move(command), fault = std::move(fault)] {
        const std::optional<Trouble> trouble = fault();
        return trouble ? complain(*trouble) : line.of_job(command);
      });
  filled(
      of->add_option("--job", line.job, "Name of the job, also of a private run; else the only one there is"),
      control::kJob);
  return of;
}

void add_looks(CLI::App& app, Line& line) {
  asked(app, line, "status", "The daemon: what it holds and what its limits are",
        of_daemon(line, [&line](const DaemonAddress& daemon) { return run_status(daemon, line.output()); }));
  asked(app, line, "jobs", "The jobs, their ranks and memory",
        of_daemon(line, [&line](const DaemonAddress& daemon) { return run_jobs(daemon, line.output()); }));
  asked_of_job(app, line, "groups", "The groups of a job, and on which nodes their members are",
               [&line](const DaemonAddress& daemon, const std::string& job) {
                 return run_groups(daemon, job, line.output());
               });
  asked_of_job(app, line, "hang", "Who waits for whom in a job, and whose fault it is",
               [&line](const DaemonAddress& daemon, const std::string& job) {
                 return run_hang(daemon, job, line.output());
               })
      ->footer(kVerdictWords);
  CLI::App* flight = asked_of_job(
      app, line, "flight",
      "What each rank of a job has run, on all nodes, also for PyTorch's analyser (torchfrtrace)",
      [&line](const DaemonAddress& daemon, const std::string& job) {
        return run_flight(daemon, job, line.flight, line.output());
      },
      [&line] { return fault_of(line.flight); });
  filled(flight->add_option("-o,--output", line.flight.file, "JSON of all ranks, into this file"),
         control::kFile);
  filled(flight->add_option("--pickles", line.flight.folder, "One pickle a rank, into this folder"),
         control::kFolder);
  whole(flight->add_option("--last", line.flight.last,
                           "How many to show: of the latest that are done, and of the oldest that are not"),
        1, kFlightRowsMax)
      ->capture_default_str();
  CLI::App* top = asked_of_job(
      app, line, "top",
      "Operations, bytes and exposed time by rank and group, on all nodes, also of a stuck engine; q ends it",
      [&line](const DaemonAddress& daemon, const std::string& job) {
        return run_top(daemon, job, line.top, line.output());
      });
  seconds(top->add_option("--interval", line.top.seconds, "Seconds between two looks"), 0.1);
  top->add_flag("--once", line.top.once, "One table, then the end");
  asked(app, line, "doctor", "Whether this machine is fit to run jobs, and what to do where it is not",
        [&line] {
          const bool named = line.home() == RunPlan::Home::kOption || line.home() == RunPlan::Home::kVariable;
          return run_doctor(line.address(), named ? DaemonNamed::kYes : DaemonNamed::kNo, line.output());
        });
}

void add_acts(CLI::App& app, Line& line) {
  CLI::App* token = with_job(asked(app, line, "token", "A fresh single-use claim on a rank",
                                   of_daemon(line,
                                             [&line](const DaemonAddress& daemon) {
                                               return run_token(daemon, line.job, line.rank, line.output());
                                             })),
                             line);
  whole(token->add_option("--rank", line.rank, "The rank")->required(), 0, kRanksOnNodeMax - 1);
  add_end(asked(app, line, "end", "End a job, or those of a batch job; their ranks get an error",
                [&line] { return end_jobs(line); }),
          line);
  CLI::App* trace = asked_of_job(
      app, line, "trace", "Record what the ranks of this node do in a job, for ui.perfetto.dev",
      [&line](const DaemonAddress& daemon, const std::string& job) {
        return run_trace(daemon, job, line.file, line.seconds,
                         line.now ? Recording::kThatIsOn : Recording::kNew, line.output());
      },
      [&line] { return check_writable("-o", line.file); });
  filled(trace->add_option("-o,--output", line.file, "Where to write it")->required(), control::kFile);
  CLI::Option* how_long = seconds(trace->add_option("--seconds", line.seconds, "How long to record"), 0);
  trace->add_flag("--end", line.now, "End the recording that somebody else has begun, and write that")
      ->excludes(how_long);
  asked(app, line, "version", "Versions of this program and of the daemon",
        [&line] { return run_version(line.address(), line.output()); });
  CLI::App* upgrade = asked(app, line, "upgrade", "Replace the daemon's program; jobs and ranks go on",
                            [&line] { return run_upgrade(line.address(), line.file, line.output()); });
  filled(upgrade->add_option("--program", line.file, "A musterd; else the file that runs, as it is now"),
         control::kFile);
  CLI::App* shutdown = asked(
      app, line, "shutdown",
      "Shut the daemon down once its ranks have left, or have had liveness.drain_timeout for it", [&line] {
        return run_shutdown(line.address(), line.now ? Leave::kNow : Leave::kDrain, line.output());
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
  check
      ->add_option(
          "files", line.files,
          "Files; cluster files are held to the limits of a musterd.yaml among them, else the defaults")
      ->required()
      ->type_name(control::kFile);
  CLI::App* show = with_json(
      add(*config, line, "show", "Each setting of the daemon with its origin",
          [&line] { return run_config_show(line.file, line.settings, process_variables(), line.output()); }),
      line);
  filled(
      show->add_option("--config", line.file, "musterd.yaml; else /etc/muster/musterd.yaml if there is one"),
      control::kFile);
  show->add_option("--set", line.settings, "May be given several times")
      ->allow_extra_args(false)
      ->type_name(control::kSetting);
  CLI::App* explain = with_json(add(*config, line, "explain", "What a key means, its type, range and default",
                                    [&line] { return run_config_explain(line.word, line.output()); }),
                                line);
  explain->add_option("key", line.word, "node.workers, jobs[].mesh, …")->required()->type_name(control::kKey);
  CLI::App* schema = add(*config, line, "schema", "JSON Schema for editors",
                         [&line] { return run_config_schema(line.word); });
  schema->add_option("file", line.word, "Which file it is of")
      ->required()
      ->type_name(control::kSchema)
      ->check([](const std::string& text) {
        const auto words = control::values_named(control::kSchema)->words;
        const bool known = std::find(words.begin(), words.end(), text) != words.end();
        return known ? "" : fmt::format("{} is none; write {}", config::in_quotes(text), control::kSchema);
      });
}

void add_plan_halo(CLI::App* plan, Line& line) {
  CLI::App* halo =
      with_json(add(*plan, line, "halo", "Who needs what of whom where a field is cut; needs no daemon",
                    [&line] { return run_plan_halo(line.halo, line.output()); }),
                line);
  HaloQuestion& question = line.halo;
  const auto numbers = [&](const char* name, std::string& text, const char* what) {
    return filled(halo->add_option(name, text, what), "NxN")->capture_default_str();
  };
  numbers("--shape", question.shape, "Items of the field's dims: 241x480")->required();
  numbers("--cut", question.cut, "Ranks along each dim: 4x2")->required();
  numbers("--kernel", question.kernel, "Of the convolution");
  numbers("--stride", question.stride, "Of the convolution");
  numbers("--dilation", question.dilation, "Of the kernel");
  numbers("--pad", question.pad, "Items on both sides");
  filled(halo->add_option("--pads", question.pads, "zeros, circular, reflect or replicate"))
      ->capture_default_str();
  halo->add_flag("--transposed", question.transposed, "A transposed convolution; --pad crops its result");
  halo->add_flag("--by-dims", question.by_dims,
                 "One exchange for each dim; else one in all, also with corners");
  halo->add_option("--dtype", question.dtype, "Of the elements")
      ->type_name(control::kDtype)
      ->capture_default_str();
  whole(halo->add_option("--rank", question.rank, "Only this one"), 0, Split::kRanksMax - 1);
}

void add_local(CLI::App& app, Line& line) {
  with_json(add(app, line, "env", "Which rank this process would be, and why",
                [&line] { return run_env(bootstrap::process_environment(), line.output()); }),
            line);
  CLI::App* mesh = with_json(add(app, line, "mesh", "The dims and groups of a mesh; needs no daemon",
                                 [&line] { return run_mesh(line.mesh, line.output()); }),
                             line);
  whole(mesh->add_option("--world", line.mesh.world, "Ranks"), 1, mesh::kRankCountMax);
  add_mesh(mesh, line.mesh.mesh, line.mesh.flattens);
  filled(mesh->add_option("--config", line.mesh.config, "A cluster file, in place of the three above"),
         control::kFile);
  filled(mesh->add_option("--job", line.mesh.job, "A job of that file"));
  mesh->add_flag("--manifest", line.mesh.manifest,
                 "The facts behind the hash, one a line: where two hashes differ, compare these");
  CLI::App* plan = app.add_subcommand("plan", "Plans: how collectives are carried out");
  plan->require_subcommand(1);
  with_json(
      add(*plan, line, "costs", "Measure what parts of a collective cost here, as lines for musterd.yaml",
          [&line] { return run_plan_costs(line.output()); }),
      line);
  add_plan_halo(plan, line);
  CLI::App* explain = with_address(
      with_json(add(*plan, line, "explain", "Path, algorithm and predicted cost of a collective that is run",
                    [&line] { return run_plan_explain(line.plan, line.address(), line.output()); }),
                line),
      line);
  explain->add_option("op", line.plan.op, "all_reduce, all_gather, …")->required()->type_name(control::kOp);
  whole(explain->add_option("--ranks", line.plan.ranks, "Members of the group")->required(), 1,
        kRanksOnNodeMax);
  const auto sized = [&line](const auto&) { line.plan.sized = true; };
  explain->add_option("--dtype", line.plan.dtype, "Of the elements")
      ->type_name(control::kDtype)
      ->capture_default_str()
      ->each(sized);
  whole(explain->add_option("--count", line.plan.count,
                            "Elements, or elements of a block; else a table over sizes"),
        0, std::int64_t{1} << 48)
      ->each(sized);
  whole(explain->add_option("--world", line.plan.world,
                            "Ranks of the job on the node; else those of the group"),
        1, kRanksOnNodeMax);
  whole(explain->add_option("--cores", line.plan.cores, "Cores that the job has; else those of this machine"),
        1, 65536);
  explain->add_flag("--shared", line.plan.shared, "The target is one node-shared buffer");
  whole(explain->add_option("--nodes", line.plan.nodes, "Nodes over which the members are spread evenly"), 1,
        control::kNodesMax);
  filled(explain->add_option("--config", line.plan.config,
                             "A cluster file, which says what the links between nodes cost; else defaults"),
         control::kFile);
}

// The parser cannot tell the last of any number of files, so it takes the folder for a file too.
void add_import(CLI::App* imported, CheckpointQuestion& question,
                const std::function<void(CLI::App*)>& patterns) {
  const auto take = [imported, &question](const std::vector<std::string>& all) {
    question.files = all;
    if (all.size() == 1) return;  // and there is no folder
    imported->get_option("folder")->add_result(all.back());
    question.files.pop_back();
  };
  filled(imported->add_option_function<std::vector<std::string>>(
             "files", take, "A model: its safetensors files, or their index, or the folder that holds it"),
         control::kFile)
      ->required();
  filled(imported->add_option("folder", question.path, "The folder of the run")->required(),
         control::kFolder);
  filled(imported->add_option("--name", question.name, "Of the checkpoint; else step- and the step"));
  whole(imported->add_option("--step", question.step, "Of the checkpoint"), 0,
        std::numeric_limits<std::int64_t>::max());
  patterns(imported);
}

void add_checkpoint(CLI::App& app, Line& line) {
  CLI::App* all = app.add_subcommand("checkpoint", "Checkpoints: look into them, verify, export, import");
  all->require_subcommand(1);
  CheckpointQuestion& question = line.checkpoint;
  const auto local = [&](const char* name, const char* text,
                         int (*command)(const CheckpointQuestion&, Output)) {
    return with_json(
        add(*all, line, name, text, [&line, command] { return command(line.checkpoint, line.output()); }),
        line);
  };
  const auto path = [&](CLI::App* of, const char* text) {
    filled(of->add_option("path", question.path, text)->required(), control::kFolder);
  };
  path(local("inspect", "The checkpoints of a run, or the tensors of one", run_checkpoint_inspect),
       "A checkpoint, or the folder of a run");
  path(local("verify", "Read every byte, and compare it with its checksum", run_checkpoint_verify),
       "A checkpoint, or the folder of a run: then all of them");
  CLI::App* exported = local("export", "Write the tensors as one safetensors file", run_checkpoint_export);
  path(exported, "A checkpoint, or the folder of a run: then its newest");
  filled(exported->add_option("-o,--output", question.file, "Where to write it")->required(), control::kFile);
  const auto patterns = [&](CLI::App* of) {
    const auto pattern = [&](const char* name, std::vector<std::string>& into, const char* text) {
      of->add_option(name, into, text)->allow_extra_args(false)->type_name("PATTERN");
    };
    pattern("--only", question.only, "Tensors whose names fit, as block0.*; may be given several times");
    pattern("--exclude", question.exclude, "But for these; may be given several times");
  };
  patterns(exported);
  add_import(local("import", "Make a checkpoint of a model's safetensors files", run_checkpoint_import),
             question, patterns);
}

void add_certs(CLI::App& app, Line& line) {
  CLI::App* all =
      app.add_subcommand("certs", "Certificates by which the nodes of a lab's cluster know each other");
  all->require_subcommand(1);
  const auto local = [&](const char* name, const char* text,
                         int (*command)(const CertsQuestion&, control::WallTime, Output)) {
    CLI::App* of =
        with_json(add(*all, line, name, text,
                      [&line, command] { return command(line.certs, control::wall_time(), line.output()); }),
                  line);
    filled(of->add_option("--folder", line.certs.folder, "Where the files are")->capture_default_str(),
           control::kFolder);
    return of;
  };
  const auto days = [&](CLI::App* of, const char* text) {
    whole(of->add_option("--days", line.certs.days, text), 1, 36500);
  };
  const auto nodes = [&](CLI::App* of) {
    of->add_option("nodes", line.certs.nodes, "Their names in the cluster file; node[01-16] names several")
        ->required()
        ->type_name("NODE");
  };
  CLI::App* init = local("init", "Make an authority for a cluster", run_certs_init);
  filled(
      init->add_option("--cluster", line.certs.cluster, "cluster.name of its file")->capture_default_str());
  days(init, "For how long it is good; else 3650");
  CLI::App* node = local("node", "Make key and certificate of nodes, or new ones", run_certs_node);
  days(node, "For how long they are good; else 30");
  nodes(node);
  nodes(local("check", "Whether nodes know each other by their files, and for how long", run_certs_check));
}

int run(Line& line) {
  line.run.address = line.address();
  line.run.grace = nanos(line.grace);
  line.run.lifetime = line.keep ? RunPlan::Lifetime::kKeep : RunPlan::Lifetime::kRun;
  line.run.home = line.home();
  line.run.prefix = line.no_prefix ? Ranks::Prefix::kNone : Ranks::Prefix::kRank;
  line.run.environment = process_variables();
  if (line.run.command.empty()) return complain({kUsage, "run: say which program, after --"});
  if (line.run.part.host.empty())  // else the head has set it
    for (const std::string& text : unused_by_run(line.run.environment)) warn(text);
  return run_ranks(line.run);
}

void add_hosts(CLI::App& app_run, Line& line) {
  filled(
      app_run.add_option("--hosts", line.run.head.hosts,
                         "Make the job over these nodes of the cluster, and start its ranks on all of them: "
                         "node01:4,node02:4 or node[01-02]:4; without a number one rank"),
      "HOSTS");
  filled(
      app_run.add_option("--launcher", line.run.head.launcher,
                         "What starts the ranks of another host: {host} is its name, {command} the command "
                         "quoted for a shell, which else follows as words; else ssh {host} {command}"),
      "COMMAND");
  app_run
      .add_option("--env", line.run.head.variables,
                  "Pass this variable on to other hosts; MUSTER_SET_… are; may be given several times")
      ->allow_extra_args(false)
      ->type_name("NAME");
  // For parts, not for users.
  app_run.add_option("--part", line.run.part.host)->group(control::kHidden);
  app_run.add_option("--folder", line.run.part.folder)->group(control::kHidden);
}

void add_run(CLI::App& app, Line& line) {
  CLI::App* app_run = with_address(
      app.add_subcommand("run", "Start ranks, here or on several hosts: muster run -n 4 -- ./program"), line);
  app_run->footer(
      "Where no daemon runs at the default socket, the run starts a private one, which ends with it. Of a "
      "job "
      "with ranks on other nodes, the run starts those of this node; with --hosts, all.");
  app_run->prefix_command();
  whole(app_run->add_option("-n,--ranks", line.run.ranks, "How many"), 1,
        std::numeric_limits<std::int32_t>::max());  // run_ranks() checks the limit, and names it
  add_mesh(app_run, line.run.mesh, line.run.flattens);
  filled(app_run->add_option("--config", line.run.config, "musterd.yaml of the private daemon"),
         control::kFile);
  filled(app_run->add_option("--job", line.run.job,
                             "Join this job, or create it with -n; else a name of its own"),
         control::kJob);
  app_run->add_flag("--keep", line.keep, "The job outlives the run; with --job");
  app_run
      ->add_flag("--private", line.only_private, "Start a daemon for this run though another may be running")
      ->excludes("--endpoint");
  filled(app_run->add_option("--trace", line.run.trace, "Record the run into this file, for ui.perfetto.dev"),
         control::kFile);
  app_run->add_flag("--elastic", line.run.elastic,
                    "If a rank fails, the others go on; the run is well if the last rank to end is");
  app_run->add_flag("--check", line.run.check,
                    "Ranks in check mode (MUSTER_CHECK=1): wrong uses of memory are named; slow");
  app_run->add_flag("--no-prefix", line.no_prefix, "Do not put [rank] before each line");
  seconds(app_run->add_option("--grace", line.grace,
                              "Seconds that the others have after the first failure; then SIGTERM, and "
                              "SIGKILL after 5 more"),
          0);
  add_hosts(*app_run, line);
  app_run->callback([&line, app_run] {
    line.run.command = app_run->remaining();
    // CLI11 takes an unknown option for the program.
    if (!line.run.command.empty() && line.run.command.front().starts_with("-"))
      throw CLI::ExtrasError(app_run->get_name(), line.run.command);
    // A "--" after the program belongs to the program.
    if (!line.run.command.empty() && !line.behind.empty()) line.run.command.emplace_back("--");
    line.run.command.insert(line.run.command.end(), line.behind.begin(), line.behind.end());
    line.command = [&line] { return run(line); };
  });
}

}  // namespace

DaemonAddress Line::address() const {
  const std::string variable = endpoint_variable();
  const std::string fallback = variable.empty() ? bootstrap::kDefaultEndpoint : variable;
  const auto key = bootstrap::job_key(bootstrap::process_environment());
  return {endpoint.empty() ? fallback : endpoint, nanos(timeout), key.value_or("")};
}

int Line::of_daemon(const std::function<int(const DaemonAddress&)>& question) const {
  if (home() == RunPlan::Home::kOption || home() == RunPlan::Home::kVariable) return question(address());
  const auto asked = daemon_to_ask(address(), job, run_parents());
  return asked ? question(*asked) : complain(asked.error());
}

int Line::of_job(const std::function<int(const DaemonAddress&, const std::string& job)>& question) const {
  return of_daemon([&](const DaemonAddress& asked) {
    const auto found = named_or_only_job(asked, job);
    return found ? question(asked, *found) : complain(found.error());
  });
}

std::optional<Trouble> Line::fault() const {
  if (!asks_daemon) return std::nullopt;
  if (const auto key = bootstrap::job_key(bootstrap::process_environment()); !key)
    return trouble_of(key.error());
  if (!endpoint.empty() || only_private) return std::nullopt;
  const auto said = bootstrap::non_empty(bootstrap::process_environment(), bootstrap::kEndpointVariable);
  return said ? std::nullopt : std::optional(trouble_of(said.error()));
}

RunPlan::Home Line::home() const {
  if (only_private) return RunPlan::Home::kPrivate;
  if (!endpoint.empty()) return RunPlan::Home::kOption;
  return endpoint_variable().empty() ? RunPlan::Home::kAny : RunPlan::Home::kVariable;
}

void declare(CLI::App& app, Line& line) {
  app.name("muster");
  app.description("Run jobs and inspect the muster daemon.");
  app.require_subcommand(1);
  app.set_version_flag("--version", "muster " + control::own_version());
  add_run(app, line);
  add_looks(app, line);
  add_acts(app, line);
  add_local(app, line);
  add_checkpoint(app, line);
  add_certs(app, line);
  add_config(app, line);
  app.footer(control::help_footer(command_manual()));  // last, or each command would inherit it
  control::format_help(app, command_examples());
}

control::CommandOutline command_outline() {
  CLI::App app;
  Line line;
  declare(app, line);
  control::CommandOutline all = control::outline(app);
  control::add_examples(command_examples(), all);
  return all;
}

}  // namespace muster::cli
