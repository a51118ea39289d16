#include "daemon/cli/run/run_command.hpp"

#include "api/base/mesh/description.hpp"
#include "api/base/node_limits.hpp"
#include "api/base/words.hpp"
#include "daemon/cli/ask/trace_file.hpp"
#include "daemon/cli/local/mesh_command.hpp"
#include "daemon/cli/run/part_link.hpp"
#include "daemon/cli/run/private_limits.hpp"
#include "daemon/cli/run/rank_environment.hpp"
#include "daemon/cli/run/run_daemon.hpp"
#include "daemon/cli/run/stale_runs.hpp"

#include <csignal>
#include <numeric>

#include <unistd.h>

namespace muster::cli {
namespace {

constexpr Nanos kAskAgain = std::chrono::milliseconds(100);

// Containers with pid namespaces may share a daemon, so the pid alone is not unique.
std::string fresh_job_name() {
  return fmt::format("run-{}-{:08x}", getpid(), static_cast<std::uint32_t>(chance_for_name()));
}

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

  // The ranks and their engine need no daemon to go on.
  void on_lost() {
    const std::string text = "the daemon has gone away; the ranks go on without it";
    if (ranks_) return ranks_->say(text);
    print_error(fmt::format("muster run: {}\n", text));
  }

  // ---- a job

  void on_daemon() {
    give_up_at_ = clock_.now() + plan_.options.address.timeout;
    named_ = !plan_.options.job.empty();
    find_or_create_job();
  }

  void find_or_create_job() {
    if (!named_) plan_.options.job = fresh_job_name();
    if (named_ || plan_.is_head()) return find_job();
    create_job();
  }

  // "status" asks no engine, so a stuck engine of another job does no harm.
  void find_job() {
    step({{"command", "status"}}, [this](const Json& result) {
      node_ = node_of(result);
      const std::string& endpoint = daemon_.endpoint();
      const auto trouble = plan_.is_head()   ? hosts_trouble(*plan_.head, result, endpoint)
                           : plan_.is_part() ? part_trouble(plan_.options.part, node_, endpoint)
                                             : std::nullopt;
      if (trouble) return stop(*trouble);
      for (const Json& job : result.at("jobs"))
        if (job.at("name") == plan_.options.job)
          return job.at("state") == "ending" ? await_end_of_job() : join_job(job);
      const std::string why = awaited(result, plan_.options.job);
      why.empty() ? create_job() : await_job(why);
    });
  }

  // Waits for the end of a former job of that name, as after `muster end`.
  void await_end_of_job() {
    await_job(fmt::format("job {} is ending and does not end in time; `muster jobs` shows what is there",
                          plan_.options.job));
  }

  void await_job(const std::string& why) {
    if (clock_.now() < give_up_at_) return ask_later();
    stop({kTimedOut, why + "; --timeout sets how long to wait"});
  }

  void ask_later() {
    loop_.after(kAskAgain, [this] {
      if (!finishing_) find_or_create_job();
    });
  }

  void join_job(const Json& job) {
    job_stays_ = true;
    const auto world = job.at("world").get<std::int64_t>();
    if (plan_.is_head())
      if (const auto trouble = places_trouble(*plan_.head, job)) return stop(*trouble);
    if (plan_.options.ranks != 0 && plan_.options.ranks != world)
      return stop({kUsage, fmt::format("job {} has {} ranks, not {}; leave -n out", plan_.options.job, world,
                                       plan_.options.ranks)});
    plan_.options.ranks = world;
    here_ = job.value("local", std::vector<std::uint32_t>());
    spans_ = job.contains("local");
    const auto mesh = job.at("mesh").get<std::string>();
    const std::string asked = plan_.mesh_given ? plan_.options.mesh : mesh;
    // The job's creator may have written the same mesh in another way.
    const auto its = build_mesh(mesh, world, {});
    if (!its)
      return stop({kFailed, fmt::format("job {} has a mesh that this program cannot read: {}; install the "
                                        "same release of both",
                                        plan_.options.job, its.error().text)});
    const auto built = build_mesh(asked, world, plan_.options.flattens);
    if (!built) return stop(built.error());
    if (built->degrees() != its->degrees())
      return stop({kUsage, fmt::format("job {} has the mesh {}, not {}; leave --mesh out", plan_.options.job,
                                       its->degrees().canonical(), built->degrees().canonical())});
    plan_.options.mesh = its->degrees().canonical();
    const bool tokens = job.at("claim") == "token";
    place_ranks();
    if (spans_ && !plan_.is_head() && !plan_.is_part())
      print_error(fmt::format("muster run: starts rank{} {} of job {}, those of node {}\n",
                              here_.size() == 1 ? "" : "s", rank_list(here_, ','), plan_.options.job, node_));
    if (plan_.options.flattens.empty()) return expect_ranks(tokens);
    // The hash covers the names of all groups, and so the flattened dims.
    const std::string hash = mesh::describe(mesh::GroupList(*built)).hash;
    step({{"command", "groups"}, {"job", plan_.options.job}}, [this, tokens, hash](const Json& result) {
      if (result.at("hash") == hash) return expect_ranks(tokens);
      stop({kUsage, fmt::format("job {} has the mesh {} with other flattened dims than {}; leave --flatten "
                                "out (`muster groups --job {}` shows them)",
                                plan_.options.job, plan_.options.mesh, fmt::join(plan_.options.flattens, " "),
                                plan_.options.job)});
    });
  }

  // Which ranks this run starts, each without its token yet.
  void place_ranks() {
    if (!spans_) {
      here_.resize(static_cast<std::size_t>(plan_.options.ranks));
      std::iota(here_.begin(), here_.end(), 0u);
    }
    tokens_.assign(here_.size(), "");
  }

  // A former run that was killed may have reported ranks as absent, and not that all may come again.
  void expect_ranks(bool tokens) {
    if (plan_.is_head()) return begin_trace();  // the parts do it
    step({{"command", "expect_all"}, {"job", plan_.options.job}},
         [this, tokens](const Json&) { claim_ranks(tokens); });
  }

  void claim_ranks(bool tokens) {
    if (tokens) return fetch_token(0);
    begin_trace();
  }

  void fetch_token(std::size_t index) {
    if (index == tokens_.size()) return begin_trace();
    step({{"command", "token"}, {"job", plan_.options.job}, {"rank", here_[index]}},
         [this, index](const Json& result) {
           tokens_[index] = result.at("token").get<std::string>();
           fetch_token(index + 1);
         });
  }

  void create_job() {
    if (plan_.options.ranks == 0)
      return stop({kNoObject, fmt::format("no job is named '{}'{}", plan_.options.job,
                                          plan_.is_part() ? " on node " + node_ : "; give -n to create it")});
    if (plan_.options.ranks > kRanksOnNodeMax && !plan_.is_head())
      return stop(too_many_ranks(plan_.options.ranks));
    Json flatten = Json::array();
    const auto flattens = parse_flattens(plan_.options.flattens);  // checked before
    for (const auto& entry : *flattens) flatten.push_back({{"name", entry.name}, {"dims", entry.members}});
    const Json spec{{"name", plan_.options.job},
                    {"world", plan_.options.ranks},
                    {"mesh", plan_.options.mesh},
                    {"flatten", flatten},
                    {"claim", "owner"}};  // so that a rank may close its session and open another
    job_stays_ = plan_.options.lifetime == Lifetime::kKeep;
    Json command{{"command", "job_create"}, {"spec", spec}, {"keep", job_stays_}};
    if (plan_.is_head()) ask_on_hosts(*plan_.head, plan_.options.address.timeout, command);
    daemon_.link().ask(command, [this](const OrTrouble<DaemonAnswer>& answer) { on_created(answer); });
  }

  // A daemon that was killed may have created the job and not answered. Its successor ends that job, since
  // its connection is gone; until then the name is taken.
  void on_created(const OrTrouble<DaemonAnswer>& answer) {
    if (!answer && answer.error().code == Code::kDuplicate && clock_.now() < give_up_at_) return ask_later();
    const auto created = [this](const Json&) {
      place_ranks();
      begin_trace();
    };
    take(answer, created, kFailed);  // here, "not found" means a part of the installation
  }

  void begin_trace() {
    if (plan_.options.trace.empty()) return start_ranks();
    tracing_ = true;  // set now: the run may end before the answer comes
    daemon_.link().ask(trace_command("trace_begin"),
                       [this](const OrTrouble<DaemonAnswer>& answer) { on_trace_begun(answer); });
  }

  void on_trace_begun(const OrTrouble<DaemonAnswer>& answer) {
    if (finishing_) return;
    if (answer) return start_ranks();
    // A refused trace_begin has begun nothing: if a recording is on, it belongs to somebody else.
    const int code = answer.error().exit_code;
    tracing_ = code == kTimedOut || code == kUnreachable;
    stop(answer.error());
  }

  // Names this run, so that another's recording goes on.
  Json trace_command(const char* command) const {
    return {{"command", command},
            {"job", plan_.options.job},
            {"by", fmt::format("`muster run` (pid {})", getpid())}};
  }

  // ---- ranks

  Ranks::Options ranks_here() {
    Ranks::Options ranks;
    ranks.command = plan_.options.command;
    ranks.is_part = plan_.is_part();
    ranks.grace = plan_.options.grace;
    ranks.elastic = plan_.options.elastic;
    ranks.prefix = plan_.options.ranks == 1 ? Prefix::kNone : plan_.options.prefix;
    if (plan_.is_part() && ranks.prefix == Prefix::kNone) ranks.prefix = Prefix::kLines;
    const auto size = static_cast<std::uint32_t>(here_.size());
    for (std::uint32_t local = 0; local < size; ++local) {
      RunMember& rank = ranks.members.emplace_back();
      rank.rank = here_[local];
      rank.environment = rank_environment(
          plan_.options.environment,
          {daemon_.endpoint(), plan_.options.job, plan_.options.mesh, tokens_[local], rank.rank,
           static_cast<std::uint32_t>(plan_.options.ranks), local, size, plan_.options.check});
    }
    // Only this program knows that a rank is gone that never attached, or left before others came.
    ranks.on_end = [this](std::uint32_t rank, const std::string& text) { tell_absence(rank, text); };
    return ranks;
  }

  Ranks::Options parts() const {
    return parts_of(*plan_.head, {plan_.options.job, node_, daemon_.endpoint(), plan_.options.address.timeout,
                                  plan_.options.grace, plan_.options.elastic, plan_.options.check,
                                  plan_.options.prefix, plan_.options.command, plan_.options.environment});
  }

  void start_ranks() {
    Ranks::Options ranks = plan_.is_head() ? parts() : ranks_here();
    ranks_ = std::make_unique<Ranks>(loop_, std::move(ranks), [this](int code) { on_ranks_done(code); });
    if (daemon_.is_private() && isatty(STDERR_FILENO) == 1) print_error(how_to_ask(plan_.options.job));
    const Status started = ranks_->start();
    if (started.ok()) return;
    ranks_.reset();
    const int code = started.code() == Code::kNotFound ? kNoProgram
                     : started.code() == Code::kDenied ? kCannotRun
                                                       : kFailed;
    stop({code, started.message()});
  }

  // Repeated until it is accepted: a stopped engine refuses once enough questions wait for it. Else ranks
  // that wait for this one would learn of it only at their deadline.
  void tell_absence(std::uint32_t rank, const std::string& text) {
    daemon_.link().ask({{"command", "absent"}, {"job", plan_.options.job}, {"rank", rank}, {"text", text}},
                       [this, rank, text](const OrTrouble<DaemonAnswer>& told) {
                         if (told || told.error().exit_code != kFailed) return;
                         loop_.after(kAskAgain, [this, rank, text] {
                           if (ranks_) tell_absence(rank, text);  // else nobody is left who waits
                         });
                       });
  }

  void on_ranks_done(int code) {
    ranks_.reset();
    if (!job_stays_) return end_trace(code);
    daemon_.link().ask({{"command", "expect_all"}, {"job", plan_.options.job}},
                       [this, code](const OrTrouble<DaemonAnswer>&) { end_trace(code); });
  }

  void end_trace(int code) {
    if (!std::exchange(tracing_, false)) return finish(code);
    daemon_.link().ask(trace_command("trace_end"), [this, code](OrTrouble<DaemonAnswer> answer) {
      const OrTrouble<std::uint64_t> written =
          answer ? write_trace(*answer, plan_.options.trace) : tl::unexpected(answer.error());
      int result = code;
      if (!written) {
        const int trouble = complain({written.error().exit_code, "run: " + written.error().text});
        if (result == 0) result = trouble;
      }
      finish(result);
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

  // Asks, and continues with the result; a failure ends the run.
  void step(const Json& command, std::function<void(const Json&)> next, int not_found = kNoObject) {
    daemon_.link().ask(command,
                       [this, next = std::move(next), not_found](const OrTrouble<DaemonAnswer>& answer) {
                         take(answer, next, not_found);
                       });
  }

  void take(const OrTrouble<DaemonAnswer>& answer, const std::function<void(const Json&)>& next,
            int not_found) {
    if (finishing_) return;
    if (!answer) {
      const int code = answer.error().exit_code;
      return stop({code == kNoObject ? not_found : code, answer.error().text});
    }
    try {
      next(answer->result);
    } catch (const Json::exception& error) {
      stop({kFailed, fmt::format("the daemon's answer is not as expected: {}", error.what())});
    }
  }

  void stop(const Trouble& trouble) { finish(complain(trouble)); }

  void finish(int code) {
    if (std::exchange(finishing_, true)) return;
    exit_code_ = code;
    daemon_.expect_end();
    if (!job_stays_ || !tracing_) return daemon_.leave();
    // A failed run must leave no recording on in a job that stays.
    daemon_.link().ask(trace_command("trace_end"),
                       [this](const OrTrouble<DaemonAnswer>&) { daemon_.leave(); });
  }

  RunPlan plan_;
  control::Loop loop_;
  RunDaemon daemon_;
  std::unique_ptr<Ranks> ranks_;
  std::vector<std::uint32_t> here_;  // the ranks that this run starts, rising
  std::vector<std::string> tokens_;  // one for each of them
  std::string node_;                 // of the daemon
  std::optional<HeadLink> head_;     // of a part
  bool headless_ = false;
  bool spans_ = false;  // the job has ranks on other nodes too
  const SteadyClock clock_;
  Instant give_up_at_{};    // for a job's end
  bool named_ = false;      // the user has named the job
  bool job_stays_ = false;  // after this run
  bool tracing_ = false;    // this run began a recording, or may have
  bool finishing_ = false;
  int exit_code_ = kFailed;
};

}  // namespace

int run_ranks(const RunOptions& options) {
  // First of all, since the event loop needs descriptors too. Too large a number is refused by name later.
  const bool known = options.ranks > 0 && options.ranks <= kRanksOnNodeMax;
  const std::int64_t ranks = known ? options.ranks : 1;
  if (Status room = make_room(static_cast<std::size_t>(ranks), nullptr); !room.ok()) {
    // Report both shortages at once: if a daemon would be started, include its need.
    const bool own_daemon = options.home == Home::kPrivate || options.home == Home::kAny;
    const auto limits = private_limits(options.config, options.environment, ranks);
    if (own_daemon && limits) room = make_room(static_cast<std::size_t>(ranks), &*limits);
    return complain({kFailed, "run: " + room.message()});
  }
  auto plan = plan_run(options);
  return plan ? RunCommand(*std::move(plan)).run() : complain(plan.error());
}

}  // namespace muster::cli
