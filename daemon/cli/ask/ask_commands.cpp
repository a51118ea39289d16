#include "daemon/cli/ask/ask_commands.hpp"

#include "api/base/words.hpp"
#include "api/shm/layout.hpp"
#include "daemon/cli/ask/trace_file.hpp"
#include "daemon/cli/merge/groups_merge.hpp"
#include "daemon/cli/render.hpp"
#include "daemon/control/own_version.hpp"

#include <string>
#include <vector>

#include <fmt/ranges.h>
#include <unistd.h>

namespace muster::cli {
namespace {

// Prints a result as JSON, or as text through `render`.
template<class Render>
int print(const Json& result, Output output, Render&& render) {
  try {
    return output == Output::kJson ? print_json(result) : print_text(render(result));
  } catch (const Json::exception& error) {  // a daemon of another version
    return complain(not_as_expected(error));
  }
}

template<class Render>
int ask_and_print(const DaemonAddress& address, const Json& command, Output output, Render&& render) {
  const auto answer = ask(address, command);
  return answer ? print(answer->result, output, render) : complain(answer.error());
}

}  // namespace

int run_version(const DaemonAddress& address, Output output) {
  Json own{{"version", control::own_version()}, {"abi", shm::kAbiVersion}, {"daemon", nullptr}};
  // A missing daemon is no fault here; the output says why it does not answer.
  if (const auto answer = ask(address, {{"command", "version"}}))
    own["daemon"] = answer->result;
  else
    own["daemon_trouble"] = answer.error().text;
  return print(own, output, version_text);
}

int run_status(const DaemonAddress& address, Output output) {
  const auto answer = ask(address, {{"command", "status"}});
  if (!answer) return complain(answer.error());
  const int printed = print(answer->result, output, [&](const Json& status) {
    return status_text(status, config::screen_columns(), address.option());
  });
  if (printed != kOk) return printed;
  return answer->result.is_object() && answer->result.value("draining", Json(false)) == true ? kUnhealthy
                                                                                             : kOk;
}

int run_jobs(const DaemonAddress& address, Output output) {
  // A silent engine may take half of the time; the other half is for the answer.
  const Json command{{"command", "jobs"}, {"wait_ns", (address.timeout / 2).count()}};
  return ask_and_print(address, command, output, [&](const Json& jobs) {
    return jobs_text(jobs, config::screen_columns(), address.option());
  });
}

int run_groups(const DaemonAddress& address, const std::string& job, Output output) {
  auto reports = ask_reports(address, job, "groups");
  if (!reports) return complain(reports.error());
  const Json groups = merged_groups(*reports);
  if (groups.is_null()) return complain({kFailed, reports->front().why});
  return print(groups, output, [&](const Json& result) {
    return fmt::format("job {}\n", job) + groups_text(result, config::screen_columns()) +
           unanswered_text(job, *reports);
  });
}

int run_token(const DaemonAddress& address, const std::string& job, std::uint32_t rank, Output output) {
  return ask_and_print(address, {{"command", "token"}, {"job", job}, {"rank", rank}}, output,
                       [](const Json& result) { return result.at("token").get<std::string>() + "\n"; });
}

int run_end(const DaemonAddress& address, const std::string& job, Output output) {
  return ask_and_print(address, {{"command", "job_destroy"}, {"job", job}, {"by", "muster end"}}, output,
                       [&](const Json&) { return fmt::format("job {} is ending\n", job); });
}

int run_end_of(const DaemonAddress& address, const std::string& of, Output output) {
  const Json command{{"command", "end_of"}, {"of", of}, {"by", fmt::format("muster end --of {}", of)}};
  return ask_and_print(address, command, output, [&](const Json& result) {
    const auto jobs = result.at("jobs").get<std::vector<std::string>>();
    if (jobs.empty()) return fmt::format("no job here is of {}\n", of);
    return fmt::format("job{} {} {} ending\n", jobs.size() == 1 ? "" : "s", fmt::join(jobs, ", "),
                       jobs.size() == 1 ? "is" : "are");
  });
}

int run_shutdown(const DaemonAddress& address, Leave leave, Output output) {
  const bool drain = leave == Leave::kDrain;
  return ask_and_print(address, {{"command", "shutdown"}, {"drain", drain}}, output, [&](const Json& result) {
    if (!drain) return fmt::format("the daemon at {} is shutting down\n", address.endpoint);
    // A daemon of an earlier version does not give the time.
    const std::string latest =
        result.contains("drain_timeout_ns")
            ? fmt::format(", in {} at the latest (liveness.drain_timeout)",
                          config::duration_text(result.at("drain_timeout_ns").get<std::int64_t>()))
            : "";
    return fmt::format("the daemon at {} is shutting down once its ranks have left{}\n", address.endpoint,
                       latest);
  });
}

int run_trace(const DaemonAddress& address, const std::string& job, const std::string& path, double seconds,
              Recording which, Output output) {
  std::string by;  // "": of anybody
  Attention attention(Attention::Keys::kIgnored);
  bool interrupted = false;
  if (which == Recording::kNew) {
    by = fmt::format("`muster trace` (pid {})", getpid());
    const auto begun = ask(address, {{"command", "trace_begin"}, {"job", job}, {"by", by}}, &attention);
    // The daemon may have begun all the same.
    if (!begun && begun.error().code == Code::kWaitInterrupted)
      tell(address, {{"command", "trace_end"}, {"job", job}, {"by", by}});
    if (!begun) return complain(begun.error());
    const SteadyClock clock;
    const auto span = Nanos(static_cast<std::int64_t>(seconds * 1e9));
    interrupted = attention.wait(-1, later(clock.now(), span), clock) == Attention::Came::kUserEnds;
  }
  const auto ended = ask(address, {{"command", "trace_end"}, {"job", job}, {"by", by}}, &attention);
  if (!ended) return complain(ended.error());
  const auto bytes = write_trace(*ended, path);
  if (!bytes) return complain(bytes.error());
  const int printed = output == Output::kJson
                          ? print_json({{"job", job}, {"path", path}, {"bytes", *bytes}})
                          : print_text(fmt::format("{} of trace in {}; open it at https://ui.perfetto.dev\n",
                                                   bytes_text(*bytes), path));
  return interrupted ? attention.exit_code() : printed;
}

}  // namespace muster::cli
