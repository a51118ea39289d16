#include "api/base/assert.hpp"
#include "api/base/bootstrap.hpp"
#include "api/base/variables.hpp"
#include "daemon/cli/program/command_line.hpp"
#include "daemon/control/texts/main_manual.hpp"
#include "daemon/supervisor/program/startup.hpp"

#include <algorithm>

namespace muster::cli {
namespace {

const control::Fact& example_named(const std::string& name) {
  const auto& all = command_examples();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const control::Fact& each) { return each.name == name; });
  MUSTER_ASSERT(found != all.end());
  return *found;
}

}  // namespace

const std::vector<control::Fact>& command_examples() {
  static const std::vector<control::Fact> examples{
      {"muster run -n 4 --private -- ./train", "Four ranks of a program, and a daemon for them alone."},
      {"muster run -n 4 --job train --keep -- ./train",
       "On a standing daemon; the job stays for the next run."},
      {"muster run --hosts node[01-02]:4 -- ./train", "Eight ranks on two nodes of the cluster, by ssh."},
      {"muster status", "The daemon of this machine, or that of your private run."},
      {"muster jobs --json", "All jobs, for a program that reads them."},
      {"muster groups --job train", "The groups of this job's mesh, and those that it has made."},
      {"muster hang", "Who waits for whom in the only job there is."},
      {"muster flight", "The latest operations of the only job, and who has not come."},
      {"muster flight --job train -o flight.json", "All that is known of them, in a file."},
      {"muster top", "What the ranks of the only job do now; h lists the keys."},
      {"muster top --once --job train", "One table, as for a file."},
      {"muster doctor", "What is amiss on this machine, each with its remedy."},
      {"muster token --job train --rank 3", "The claim with which another process may become rank 3."},
      {"muster end --job train", "Its ranks get an error, and its memory is free."},
      {"muster trace --job train -o trace.json", "Five seconds of it, for ui.perfetto.dev."},
      {"muster version", "Whether this program and the daemon are of one release."},
      {"muster upgrade", "After an installation: the daemon becomes the new program."},
      {"muster shutdown --now", "Without waiting for the ranks."},
      {"muster env", "Which rank this shell would be, and which variables say so."},
      {"muster mesh --world 8 --mesh dp_shard=-1,tp=2",
       "The groups of eight ranks, two of which share each layer."},
      {"muster plan costs > costs.yaml", "Lines for musterd.yaml, as measured here."},
      {"muster plan explain all_reduce --ranks 8", "Which way a collective goes, and what it should cost."},
      {"muster plan halo --shape 241x480 --cut 4x2 --kernel 3 --stride 2 --pad 1",
       "Who needs what of whom where eight ranks cut a field."},
      {"muster checkpoint inspect run", "The checkpoints of a run, and what is in the newest."},
      {"muster checkpoint verify run", "Whether each byte of them is as it was saved."},
      {"muster checkpoint export run -o model.safetensors", "The newest checkpoint of a run as one file."},
      {"muster checkpoint import model run",
       "A folder of safetensors files and their index as a checkpoint."},
      {"muster certs init --cluster lab-a --folder certs", "The authority of a cluster; its key stays here."},
      {"muster certs node node[01-16] --folder certs",
       "Three files for each of sixteen nodes, to be copied there."},
      {"muster certs check node01 node02 --folder certs", "Whether these two would know each other."},
      {"muster config check /etc/muster/musterd.yaml", "All that is wrong in the file, with places."},
      {"muster config show --set log.level=debug", "What would be in force, and why."},
      {"muster config explain limits.jobs_max", "What a key of musterd.yaml(5) means."},
      {"muster config schema musterd", "For an editor that completes keys."}};
  return examples;
}

const control::Manual& command_manual() {
  static const control::Manual manual = [] {
    control::Manual m;
    m.synopsis = "COMMAND [OPTIONS]";
    m.description = {
        "muster starts the ranks of a job, on this machine or on nodes of a cluster, and asks the daemon "
        "musterd(8) what it holds: jobs, ranks, groups, who waits for whom, what was late.",
        "Where no daemon answers at the default socket, or none that has the job, commands that ask about "
        "jobs "
        "take the private run of this user that fits, and list them if there are several.",
        "Every command that asks has --json: one JSON object on one line, with schema_version. An integer "
        "of 2^53 and more is a string of its digits there.",
        "Where standard output is a terminal, tables fit its columns; COLUMNS says otherwise. Names of "
        "daemons, jobs and files are printed without control characters."};
    for (const char* name :
         {"muster run -n 4 --private -- ./train", "muster run -n 4 --job train --keep -- ./train",
          "muster run --hosts node[01-02]:4 -- ./train", "muster top", "muster hang",
          "muster trace --job train -o trace.json", "muster plan explain all_reduce --ranks 8",
          "muster checkpoint export run -o model.safetensors", "muster config explain limits.jobs_max"})
      m.examples.push_back(example_named(name));
    for (const auto& variables : {rank_variables(), session_variables()})
      for (const Variable& variable : variables)
        m.environment.push_back({std::string(variable.name), std::string(variable.sentence)});
    m.environment.push_back({std::string(kSettingPrefix) + "…",
                             "A setting of the private daemon: MUSTER_SET_log__level=debug is log.level."});
    m.environment.push_back({"COLUMNS", "How wide tables may be; else what the terminal says."});
    m.environment.push_back({"XDG_RUNTIME_DIR", "Where a private daemon has its directory; else /tmp."});
    m.files = {{bootstrap::kDefaultEndpoint, "The socket at which musterd listens."},
               {supervisor::kDefaultConfig, "Its settings, musterd.yaml(5)."}};
    m.exit_codes = {{"0", "done"},
                    {"1", "failed"},
                    {"2", "wrong usage or configuration"},
                    {"3", "no daemon there, or this user may not connect to it"},
                    {"4", "no such job, group, key, checkpoint or tensor"},
                    {"5", "the daemon is shutting down (status); something hangs (hang)"},
                    {"124", "no answer within --timeout"},
                    {"126", "run: the program cannot be run"},
                    {"127", "run: there is no such program"},
                    {"130", "interrupted by Ctrl-C; 128 + the number of another signal"},
                    {"255", "run --hosts: ssh does not reach a host"},
                    {"run", "ends with the code of the first rank that failed"}};
    m.see_also = {"musterd(8)", "musterd.yaml(5)"};
    return m;
  }();
  return manual;
}

}  // namespace muster::cli
