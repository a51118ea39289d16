#include "daemon/cli/ask/hang_command.hpp"

#include "api/shm/job_counters.hpp"
#include "daemon/config/table.hpp"

#include <fstream>

namespace muster::cli {
namespace {

std::string hang_text(const std::string& job, const Json& report) {
  std::string out = fmt::format("job {}\n", job) + report.at("text").get<std::string>();
  const Json& last = report.at("latest_deadline");
  if (last.is_null()) return out;
  out += fmt::format("\nThe latest deadline passed {} ago; the report of that moment:\n",
                     config::duration_text(last.at("ago_ns").get<std::int64_t>()));
  return out + last.at("report").at("text").get<std::string>();
}

// "stopped", "running", …: the state of the daemon's named process, as the kernel says.
std::string state_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(") ");
  if (name_end == std::string::npos || name_end + 2 >= line.size()) return "gone";
  const char letter = line[name_end + 2];
  return letter == 'T' || letter == 't' ? "stopped"
         : letter == 'Z'                ? "dead"
         : letter == 'D'                ? "blocked"
                                        : "running";
}

// For an engine that has not answered: the supervisor knows its process, and its counters show since when.
OrTrouble<Json> silence_of(const DaemonAddress& address, const std::string& job) {
  const auto counters = ask(address, {{"command", "counters"}, {"job", job}});
  if (!counters) return tl::unexpected(counters.error());
  const int pid = counters->result.at("engine_pid").get<int>();
  const std::string state = state_of(pid);
  Json report{{"job", job},
              {"verdict", "engine_stuck"},
              {"confidence", state == "running" ? "medium" : "high"},
              {"engine_pid", pid},
              {"process", state},
              {"silent_s", nullptr},
              {"wait", nullptr},  // only the engine knows these
              {"culprits", Json::array()},
              {"circle", Json::array()},
              {"ruled_out", Json::array()},
              {"waits", Json::array()},
              {"ranks", Json::array()},
              {"stragglers", Json::array()},
              {"next", Json::array({state == "stopped"
                                        ? fmt::format("kill -CONT {}", pid)
                                        : fmt::format("gdb -p {} -batch -ex 'thread apply all bt'", pid)})}};
  std::string since;
  if (!counters->descriptors.empty()) {
    if (const auto reader = shm::JobCountersReader::attach(counters->descriptors.front())) {
      const Nanos silent = SteadyClock().now() - reader->beat();
      report["silent_s"] = std::chrono::duration<double>(silent).count();
      since = fmt::format("; it last moved {} ago", config::duration_text(silent.count()));
    }
  }
  report["text"] = fmt::format(
      "VERDICT  engine_stuck   confidence {}\nengine   process {} does not answer: it is {}{}\n"
      "next     {}\n",
      report.at("confidence").get<std::string>(), pid, state, since,
      report.at("next").at(0).get<std::string>());
  report["latest_deadline"] = nullptr;
  return report;
}

}  // namespace

const char kVerdictWords[] =
    "Verdicts; the exit code is 5 unless it is healthy:\n"
    "  healthy           nothing waits for long, and no rank is stopped\n"
    "  slow              all have come; the operation runs\n"
    "  unknown           a node of the job does not answer, so nobody knows what its ranks do\n"
    "  not_joined        a rank runs, and has not come\n"
    "  not_attached      a rank has no process in the job\n"
    "  mismatch_pending  members of one group are in different operations\n"
    "  deadlock          a circle of operations, each waiting for a rank that waits in the next\n"
    "  frozen            the cgroup of a rank's process is frozen\n"
    "  stopped           a rank's process is stopped\n"
    "  dead              a rank's process has ended\n"
    "  engine_stuck      the job's engine does not answer";

int run_hang(const DaemonAddress& address, const std::string& job, Output output) {
  // Other nodes may take half of the time; the other half is for the answer.
  const auto answer =
      ask(address, {{"command", "hang"}, {"job", job}, {"wait_ns", (address.timeout / 2).count()}});
  try {
    OrTrouble<Json> report = tl::unexpected(Trouble{});
    if (answer)
      report = answer->result;
    else if (answer.error().exit_code == kTimedOut)
      report = silence_of(address, job);
    if (!report) return complain(answer.error());
    const std::string verdict = report->at("verdict").get<std::string>();
    const int printed = output == Output::kJson ? print_json(*report) : print_text(hang_text(job, *report));
    if (printed != kOk) return printed;
    return verdict == "healthy" ? kOk : kUnhealthy;
  } catch (const Json::exception& error) {  // a daemon of another version
    return complain(not_as_expected(error));
  }
}

}  // namespace muster::cli
