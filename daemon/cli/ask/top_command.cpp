#include "daemon/cli/ask/top_command.hpp"

#include "daemon/cli/ask/top_view.hpp"
#include "daemon/cli/attention.hpp"
#include "daemon/cli/merge/top_nodes.hpp"
#include "daemon/cli/merge/top_rates.hpp"

#include <cstdio>

#include <unistd.h>

namespace muster::cli {
namespace {

using control::JobLook;
using control::look_at;
using shm::JobCountersReader;

int show(TopView& view, const std::string& job, const Json& now, Output output, bool screen) {
  if (output == Output::kJson) return print_json(now);
  if (screen) std::fputs("\x1b[H\x1b[J", stdout);
  return print_text(
      view.text(job, now, screen ? window_now() : TopView::Window{config::screen_columns(), 0}));
}

// Whether a silent engine has ended, and is not just stuck: the counters outlive the engine.
std::optional<Trouble> ended(const DaemonAddress& address, const std::string& job, int engine,
                             Attention& attention) {
  const auto now = ask(address, {{"command", "counters"}, {"job", job}}, &attention);
  if (!now && now.error().code == Code::kWaitInterrupted) return now.error();
  if (now && now->result.at("engine_pid") != engine)
    return Trouble{kNoObject, fmt::format("job {} has ended, and there is another by that name", job)};
  if (!now && now.error().exit_code == kNoObject)
    return Trouble{kNoObject, fmt::format("job {} has ended", job)};
  return std::nullopt;
}

// One look after another, until the user ends it. `screen`: keys change what is shown.
int watch(const DaemonAddress& address, const JobCountersReader& counters, const std::string& job,
          const TopOptions& options, Output output, bool screen, TopNodes* others, Attention& attention) {
  const SteadyClock clock;
  const auto interval = Nanos(static_cast<std::int64_t>(options.seconds * 1e9));
  JobLook before = look_at(counters, clock.now());
  // Questions to other nodes take their time, but no more of it than twice TopNodes::kPatience.
  const auto ended_by_user = [&] {
    return others != nullptr ? others->look(address, job, clock.now(), attention) : std::nullopt;
  };
  if (ended_by_user()) return attention.exit_code();
  TopView view;
  Json now;  // null until the second look
  while (true) {
    const Instant next = later(clock.now(), interval);
    for (auto came = Attention::Came::kReady; came != Attention::Came::kDeadline;) {
      came = attention.wait_for_key(next, clock);
      if (came == Attention::Came::kUserEnds) return attention.exit_code();
      if (came != Attention::Came::kKey || !view.press(attention.key()) || now.is_null()) continue;
      if (const int shown = show(view, job, now, output, screen); shown != kOk) return shown;
    }
    if (ended_by_user()) return attention.exit_code();
    JobLook after = look_at(counters, clock.now());
    now = rates(before, after);
    if (others != nullptr) others->add_to(now);
    now["job"] = job;
    if (!options.once && now.at("engine_stuck").get<bool>())
      if (const auto end = ended(address, job, counters.engine_pid(), attention)) return complain(*end);
    const int shown = show(view, job, now, output, screen);
    if (options.once || shown != kOk) return shown;
    before = std::move(after);
  }
}

}  // namespace

int run_top(const DaemonAddress& address, const std::string& job, const TopOptions& options, Output output) {
  // Keys only with a terminal as output: a closed pipe would end this program with the terminal changed.
  const bool screen = !options.once && ::isatty(STDOUT_FILENO) == 1;
  Attention attention(screen ? Attention::Keys::kHeard : Attention::Keys::kIgnored);
  try {
    const auto answer = ask(address, {{"command", "counters"}, {"job", job}}, &attention);
    if (!answer) return complain(answer.error());
    if (answer->descriptors.size() != 1) return complain({kFailed, "the daemon sent no counters"});
    const auto counters = JobCountersReader::attach(answer->descriptors.front());
    if (!counters) return complain(trouble_of(counters.error()));
    std::optional<TopNodes> others;  // of a job of one node there are none
    if (answer->result.contains("node"))
      others.emplace(answer->result.at("node").get<std::string>(),
                     options.once ? Nanos(0) : TopNodes::kPeriod);
    return watch(address, *counters, job, options, output, screen, others ? &*others : nullptr, attention);
  } catch (const Json::exception& error) {  // a daemon of another version
    return complain(not_as_expected(error));
  }
}

}  // namespace muster::cli
