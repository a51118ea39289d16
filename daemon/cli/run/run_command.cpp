#include "daemon/cli/run/run_command.hpp"

#include "api/base/node_limits.hpp"
#include "daemon/cli/run/job_joiner.hpp"
#include "daemon/cli/run/part_link.hpp"
#include "daemon/cli/run/private_limits.hpp"
#include "daemon/cli/run/rank_environment.hpp"
#include "daemon/cli/run/run_absences.hpp"
#include "daemon/cli/run/run_daemon.hpp"
#include "daemon/cli/run/stale_runs.hpp"
#include "daemon/cli/run/trace_recording.hpp"

#include <csignal>

#include <unistd.h>

namespace muster::cli {
namespace {

// One run, as steps on an event loop: find a daemon → job → trace → ranks → trace → end. Each step starts the
// next; a signal or a failure leads to finish() from any step. A head makes its job over several nodes and
// starts parts in place of ranks. A part joins that job and obeys its head.
//
// Owns    the objects of the steps, the ranks among them.
// Thread  run()'s.
// Bound   one job.
// Fails   with an exit code, after a message.
class RunCommand {
 public:
  explicit RunCommand(RunPlan plan)
      : plan_(std::move(plan)),
        daemon_(loop_, plan_,
                {[this] { on_daemon(); }, [this](const Trouble& trouble) { stop(trouble); },
                 [this] { on_lost(); }, [this] { loop_.stop(); }}) {}

  int run() {
    for (const std::string& parent : run_parents()) remove_stale_runs(parent);  // of killed runs
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGCHLD, SIG_DFL);  // if it is ignored, wait() cannot say how a rank ended
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
      if (number == SIGTERM || !stays_ignored(number))
        loop_.on_signal(number, [this, number] { on_end_signal(number); });
    for (const int number : {SIGUSR1, SIGUSR2})
      loop_.on_signal(number, [this, number] {
        if (ranks_) ranks_->forward(number);
      });
    if (!stays_ignored(SIGTSTP)) loop_.on_signal(SIGTSTP, [this] { stop_for_a_while(); });
    if (plan_.is_part())
      head_.emplace(loop_,
                    HeadLink::Events{[this](int number) { on_word(number); }, [this] { on_headless(); }});
    loop_.post([this] { daemon_.find(); });
    loop_.run();
    return exit_code_;
  }

 private:
  // Ctrl-Z reaches this process alone. The ranks stop with it until `fg`. In an orphaned process group the
  // kernel drops the signal, and the ranks go on at once.
  void stop_for_a_while() {
    if (ranks_ && ranks_->ending()) return;
    if (ranks_) ranks_->forward(SIGSTOP);
    struct sigaction heard {
    }, standard{};
    standard.sa_handler = SIG_DFL;
    sigaction(SIGTSTP, &standard, &heard);
    raise(SIGTSTP);
    sigaction(SIGTSTP, &heard, nullptr);
    if (ranks_) ranks_->forward(SIGCONT);
  }

  // ---- the steps

  void on_daemon() {
    joiner_.emplace(loop_, daemon_.link(), plan_,
                    JobJoiner::Events{[this](const JobJoiner::Job& job) { on_job(job); },
                                      [this](const Trouble& trouble) { stop(trouble); }});
    joiner_->seek();
  }

  // The ranks and their engine need no daemon to go on.
  void on_lost() {
    const std::string text = "the daemon has gone away; the ranks go on without it";
    if (ranks_) return ranks_->say(text);
    print_error(fmt::format("muster run: {}\n", text));
  }

  void on_job(const JobJoiner::Job& job) {
    job_ = job;
    absences_.emplace(loop_, daemon_.link(), job_);
    recording_.emplace(daemon_.link(), job_, plan_.options.trace);
    recording_->begin([this](const std::optional<Trouble>& trouble) {
      if (finishing_) return;
      trouble ? stop(*trouble) : start_ranks();
    });
  }

  Ranks::Options ranks_here() {
    const RunPlan::Options& options = plan_.options;
    Ranks::Options ranks;
    ranks.command = options.command;
    ranks.is_part = plan_.is_part();
    ranks.grace = options.grace;
    ranks.elastic = options.elastic;
    ranks.prefix = job_.world == 1 ? Ranks::Prefix::kNone : options.prefix;
    if (plan_.is_part() && ranks.prefix == Ranks::Prefix::kNone) ranks.prefix = Ranks::Prefix::kLines;
    const auto size = static_cast<std::uint32_t>(job_.here.size());
    for (std::uint32_t local = 0; local < size; ++local) {
      Ranks::Member& rank = ranks.members.emplace_back();
      rank.rank = job_.here[local];
      rank.environment = rank_environment(
          options.environment, {daemon_.endpoint(), job_.name, job_.mesh, job_.tokens[local], rank.rank,
                                static_cast<std::uint32_t>(job_.world), local, size, options.check});
    }
    ranks.on_end = [this](std::uint32_t rank, const std::string& text) { absences_->tell(rank, text); };
    return ranks;
  }

  Ranks::Options parts() const {
    const RunPlan::Options& options = plan_.options;
    return parts_of(*plan_.head,
                    {job_.name, job_.node, daemon_.endpoint(), options.address.timeout, options.grace,
                     options.elastic, options.check, options.prefix, options.command, options.environment});
  }

  void start_ranks() {
    Ranks::Options ranks = plan_.is_head() ? parts() : ranks_here();
    ranks_ = std::make_unique<Ranks>(loop_, std::move(ranks), [this](int code) { on_ranks_done(code); });
    if (daemon_.is_private() && isatty(STDERR_FILENO) == 1)
      print_error(how_to_ask(job_.name, daemon_.endpoint()));
    const Status started = ranks_->start();
    if (started.ok()) return;
    ranks_.reset();
    const int code = started.code() == Code::kNotFound ? kNoProgram
                     : started.code() == Code::kDenied ? kCannotRun
                                                       : kFailed;
    stop({code, started.message()});
  }

  void on_ranks_done(int code) {
    ranks_.reset();
    absences_->end([this, code] { write_trace_and_finish(code); });
  }

  void write_trace_and_finish(int code) {
    recording_->write([this, code](const std::optional<Trouble>& trouble) {
      const int told = trouble ? complain({trouble->exit_code, "run: " + trouble->text}) : kOk;
      finish(code == kOk ? told : code);
    });
  }

  // ---- the end

  // A part hears its head.
  void on_word(int number) {
    if (number == SIGKILL) return ranks_ ? ranks_->kill() : finish(128 + number);
    if (number == SIGUSR1 || number == SIGUSR2 || number == SIGSTOP || number == SIGCONT) {
      if (ranks_) ranks_->forward(number);
    } else if (!ranks_ || !ranks_->interrupted()) {
      on_end_signal(number);
    }
  }

  void on_headless() {
    headless_ = true;
    if (!ranks_ && !finishing_)
      print_error(fmt::format("muster run: {}\n", headless_text(plan_.options.part)));
    on_word(SIGTERM);
  }

  void on_end_signal(int number) {
    if (headless_ && ranks_ && ranks_->interrupted()) return;  // the same end, said twice
    if (finishing_) return daemon_.leave_at_once();            // second signal
    if (ranks_) return ranks_->interrupt(number);
    print_error(fmt::format("muster run: interrupted by SIG{}; no rank was running\n", sigabbrev_np(number)));
    finish(128 + number);
  }

  void stop(const Trouble& trouble) { finish(complain(trouble)); }

  void finish(int code) {
    if (std::exchange(finishing_, true)) return;
    exit_code_ = code;
    daemon_.expect_end();
    if (joiner_) joiner_->cancel();
    recording_ ? recording_->abandon([this] { daemon_.leave(); }) : daemon_.leave();
  }

  const RunPlan plan_;
  control::Loop loop_;
  RunDaemon daemon_;
  std::optional<JobJoiner> joiner_;
  JobJoiner::Job job_;
  std::optional<RunAbsences> absences_;
  std::optional<TraceRecording> recording_;
  std::unique_ptr<Ranks> ranks_;
  std::optional<HeadLink> head_;  // of a part
  bool headless_ = false;
  bool finishing_ = false;
  int exit_code_ = kFailed;
};

}  // namespace

int run_ranks(const RunPlan::Options& options) {
  // First of all, since the event loop needs descriptors too. Too large a number is refused by name later.
  const bool known = options.ranks > 0 && options.ranks <= kRanksOnNodeMax;
  const std::int64_t ranks = known ? options.ranks : 1;
  if (Status room = make_room(static_cast<std::size_t>(ranks), nullptr); !room.ok()) {
    // Report both shortages at once: if a daemon would be started, include its need.
    const bool own_daemon = options.home == RunPlan::Home::kPrivate || options.home == RunPlan::Home::kAny;
    const auto limits = private_limits(options.config, options.environment, ranks);
    if (own_daemon && limits) room = make_room(static_cast<std::size_t>(ranks), &*limits);
    return complain({kFailed, "run: " + room.message()});
  }
  auto plan = plan_run(options);
  return plan ? RunCommand(*std::move(plan)).run() : complain(plan.error());
}

}  // namespace muster::cli
