// musterd: the daemon of a node. Exit codes: 0 after a shutdown, 1 if it could not start, 2 for wrong usage
// or configuration.
#include "api/base/log.hpp"
#include "api/base/utf8.hpp"
#include "api/base/variables.hpp"
#include "daemon/config/render.hpp"
#include "daemon/config/table.hpp"
#include "daemon/supervisor/base/random_source.hpp"
#include "daemon/supervisor/base/system_notify.hpp"
#include "daemon/supervisor/program/descriptor_limit.hpp"
#include "daemon/supervisor/program/main_flags.hpp"
#include "daemon/supervisor/takeover/program_check.hpp"
#include "daemon/supervisor/takeover/replacement.hpp"

#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <sys/prctl.h>
#include <unistd.h>

namespace {

using muster::Code;
using muster::Status;
namespace supervisor = muster::supervisor;

// Prints text without control characters: names in it may come from anywhere.
void print(std::FILE* file, const std::string& text) {
  std::fputs(muster::printable(text, muster::Lines::kSeveral).c_str(), file);
}

// Diagnostics of a configuration carry their own file and line.
int complain(const Status& status) {
  print(stderr, (status.code() == Code::kConfig ? "" : "musterd: ") + status.message() + "\n");
  const bool usage = status.code() == Code::kConfig || status.code() == Code::kBadArgument;
  return usage ? 2 : 1;
}

// For a daemon that is about to give way to this program. Checks whatever could prevent its start, except
// what only the daemon itself can pass on.
int check_state(const supervisor::Flags& flags, const supervisor::Options& options) {
  auto file = supervisor::StateFile::adopt(muster::shm::Descriptor(flags.check_state));
  if (!file) return complain(file.error());
  const supervisor::State::Format format = supervisor::state_format();
  const auto state = file->read(format.version);
  if (!state) return complain(state.error());
  if (const Status known = supervisor::check_protocol(state->state, format); !known.ok())
    return complain(known);
  if (const Status limit = supervisor::raise_descriptor_limit(options); !limit.ok()) return complain(limit);
  const supervisor::Listeners::Options listeners = supervisor::listeners_of(options);
  if (flags.check_directory != listeners.directory)
    if (const Status place = supervisor::Listeners::check(listeners); !place.ok()) return complain(place);
  if (const Status group = supervisor::RuntimeDirectory::may_give(listeners.directory, listeners.access);
      !group.ok())
    return complain(group);
  std::puts(
      supervisor::check_answer(flags.check_nonce, format.version, state->version, format.protocol).c_str());
  return 0;
}

int serve(const supervisor::Flags& flags, const muster::config::Settings& settings,
          supervisor::Options options, std::vector<supervisor::DescriptorStore::Inherited> inherited) {
  supervisor::apply_log(settings);
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // passing a file-size limit must be an error, also for memory files
  if (const Status reports = supervisor::check_reports_directory(settings); !reports.ok())
    MUSTER_LOG(kWarning, "supervisor", "{}", reports.message());
  if (!flags.transient && !supervisor::Identities::may_look())
    MUSTER_LOG(
        kWarning, "supervisor",
        "without CAP_SYS_PTRACE this daemon cannot see in which namespaces clients of other users are: they "
        "may have jobs with a key alone (MUSTER_JOB_KEY), and may not govern it; give it that capability");
  // `muster run` starts a transient daemon, and has warned already.
  if (!flags.transient)
    for (const std::string& text : muster::misspelt_variables(flags.sources.environment))
      MUSTER_LOG(kWarning, "supervisor", "{}", text);
  if (const Status limit = supervisor::raise_descriptor_limit(options); !limit.ok()) return complain(limit);
  options.engine_program = flags.engine_program;
  options.random_hex = supervisor::random_hex;
  options.random_word = supervisor::random_word;
  options.notify = supervisor::system_notify();
  options.store_room = supervisor::store_room();
  options.watchdog_time = supervisor::watchdog_time();
  options.program = flags.program;
  options.arguments = flags.arguments;
  const muster::SteadyClock clock;
  auto daemon = supervisor::Supervisor::open(std::move(options), clock, std::move(inherited));
  if (!daemon) return complain(daemon.error());
  (*daemon)->run();
  return 0;
}

int run(int argc, char** argv) {
  if (const Status proc = supervisor::check_proc(); !proc.ok()) return complain(proc);
  auto flags = supervisor::parse_flags(argc, argv);
  if (!flags) return flags.error();
  flags->sources.environment = muster::process_variables();
  const auto resolved = supervisor::load_settings(flags->sources);
  if (!resolved) return complain(resolved.error()), 2;
  if (flags->print_config) {
    print(stdout, muster::config::show(*resolved, muster::config::screen_columns()));
    return 0;
  }
  auto options = supervisor::options_of(resolved->settings);
  if (!options) return complain(options.error()), 2;
  if (flags->check_config) {
    if (const Status reports = supervisor::check_reports_directory(resolved->settings); !reports.ok())
      print(stderr, "musterd: warning: " + reports.message() + "\n");
    std::puts("the configuration is good");
    return 0;
  }
  if (flags->check_state >= 0) return check_state(*flags, *options);
  options->transient = flags->transient;
  if (flags->transient) supervisor::stand_alone(*options);
  return serve(*flags, resolved->settings, *std::move(options), supervisor::take_inherited());
}

}  // namespace

int main(int argc, char** argv) {
  // Else a process of the same user could take the daemon's descriptors from within a container.
  prctl(PR_SET_DUMPABLE, 0);
  supervisor::hold_signals();  // until the daemon reads them
  const int code = run(argc, argv);
  // Output that was asked for, such as a configuration, must not get lost silently.
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return code;
  std::fprintf(stderr, "musterd: standard output cannot be written: %s\n", std::strerror(errno));
  return code == 0 ? 1 : code;
}
