#include "daemon/cli/run/run_command.hpp"

#include "api/base/mesh/description.hpp"
#include "api/base/node_limits.hpp"
#include "api/base/words.hpp"
#include "daemon/cli/ask/trace_file.hpp"
#include "daemon/cli/daemon_link.hpp"
#include "daemon/cli/local/mesh_command.hpp"
#include "daemon/cli/run/part_link.hpp"
#include "daemon/cli/run/private_daemon.hpp"
#include "daemon/cli/run/private_limits.hpp"
#include "daemon/cli/run/rank_environment.hpp"
#include "daemon/cli/run/stale_runs.hpp"

#include <muster/muster.h>

#include <csignal>
#include <cstdio>
#include <filesystem>
#include <numeric>

#include <unistd.h>

namespace muster::cli {
namespace {

constexpr Nanos kConnectRetry = std::chrono::milliseconds(5);
constexpr Nanos kDaemonEndTime = std::chrono::seconds(20);
constexpr Nanos kAskAgain = std::chrono::milliseconds(100);

// Whether --mesh and --flatten were given, noted before the mesh becomes canonical.
struct Given {
  bool mesh = false;
  bool flatten = false;
};

Trouble too_many(std::int64_t ranks) {
  return {kUsage, fmt::format("run: -n {}: a job on one node can have {} ranks at most "
                              "(limits.ranks_per_job_max goes no higher); start fewer",
                              ranks, kRanksOnNodeMax)};
}

// Containers with pid namespaces may share a daemon, so the pid alone is not unique.
std::string fresh_job_name() {
  return fmt::format("run-{}-{:08x}", getpid(), static_cast<std::uint32_t>(chance_for_name()));
}

// One run, as steps on an event loop: find a daemon → job → trace → ranks → trace → end. Each step starts the
// next; a signal or a failure leads to finish() from any step. A head makes its job over several nodes and
// starts parts in place of ranks. A part joins that job and obeys its head.
//
// Owns    the private daemon if there is one, the connection, the ranks.
// Thread  run()'s.
// Bound   one job.
// Fails   with an exit code, after a message.
class RunCommand {
 public:
  explicit RunCommand(RunOptions options) : options_(std::move(options)) {}

  int run() {
    if (const auto trouble = check()) return complain(*trouble);
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
    if (is_part())
      head_.emplace(loop_,
                    HeadLink::Events{[this](int number) { on_word(number); }, [this] { on_headless(); }});
    loop_.post([this] { find_daemon(); });
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

  // Checks that need no daemon.
  std::optional<Trouble> check() {
    if (const auto trouble = check_hosts()) return trouble;
    if (options_.ranks == 0 && options_.job.empty())
      return Trouble{kUsage, "run: say how many ranks, with -n"};
    if (options_.ranks > kRanksOnNodeMax && options_.job.empty() && !is_head())
      return too_many(options_.ranks);
    if (const auto trouble = check_home()) return trouble;
    if (options_.lifetime == Lifetime::kKeep && options_.job.empty())
      return Trouble{kUsage, "run: --keep needs --job: the name by which the next run finds the job"};
    if (!options_.trace.empty())
      if (const auto trouble = check_writable("--trace", options_.trace)) return trouble;
    wanted_ = {!options_.mesh.empty(), !options_.flattens.empty()};
    if (!options_.job.empty())
      if (const Status name = control::check_job_name(options_.job); !name.ok()) return trouble_of(name);
    if (options_.mesh.empty()) options_.mesh = mesh::kUnsaidDegrees;
    if (options_.ranks == 0) return std::nullopt;
    const auto mesh = build_mesh(options_.mesh, options_.ranks, options_.flattens);
    if (!mesh) return mesh.error();
    options_.mesh = mesh->degrees().canonical();
    return std::nullopt;
  }

  bool is_head() const { return plan_.has_value(); }
  bool is_part() const { return !options_.part.host.empty(); }

  std::optional<Trouble> check_hosts() {
    if (is_part()) return enter_folder(options_.part);
    auto plan = plan_head(options_.head, options_.ranks, options_.environment);
    if (!plan) return plan.error();
    plan_ = *std::move(plan);
    if (!is_head()) return std::nullopt;
    options_.ranks = plan_->ranks();
    const bool is_private = options_.home == Home::kPrivate;
    if (!is_private && options_.lifetime == Lifetime::kRun) return std::nullopt;
    return Trouble{kUsage,
                   fmt::format("run: --hosts and {} exclude each other: the job lies with the daemons "
                               "of all hosts, and ends with the run; leave one out",
                               is_private ? "--private" : "--keep")};
  }

  // Whether a private daemon can do what was asked.
  std::optional<Trouble> check_home() const {
    if (options_.home != Home::kPrivate) return std::nullopt;
    if (options_.ranks > kRanksOnNodeMax) return too_many(options_.ranks);
    if (options_.lifetime == Lifetime::kKeep)
      return Trouble{kUsage,
                     "run: --private and --keep exclude each other: a private daemon ends with the run, and "
                     "the job with it; leave one out"};
    if (options_.ranks == 0)
      return Trouble{kUsage,
                     fmt::format("run: a private daemon has no job '{}' yet; give -n to create it, or leave "
                                 "--private out",
                                 options_.job)};
    return std::nullopt;
  }

  // ---- a daemon

  void find_daemon() {
    if (options_.home == Home::kPrivate) return start_daemon();
    options_.address.endpoint = std::filesystem::absolute(options_.address.endpoint);
    auto link = DaemonLink::open(loop_, options_.address, [this] { on_lost(); });
    if (link && !options_.config.empty())
      return stop({kUsage, fmt::format("run: --config is for a private daemon, and one runs at {} already; "
                                       "add --private, or leave --config out",
                                       options_.address.endpoint)});
    if (link) {
      if (!is_head() && !is_part()) say_joins();
      return connected(*std::move(link));
    }
    const Status& status = link.error();
    if (status.code() != Code::kDaemonLost) {
      Trouble trouble = unreachable(status);
      // A resource limit of this process would stop a private daemon too.
      if (status.code() != Code::kNoResource) trouble.text += "; --private runs without that daemon";
      return stop(trouble);
    }
    if (is_head() || is_part()) return stop(no_daemon(options_.part, options_.address.endpoint));
    if (options_.home == Home::kAny) return start_daemon();
    const bool option = options_.home == Home::kOption;
    stop({kUnreachable, fmt::format("{}{}, or {} for a private one", absence_text(options_.address.endpoint),
                                    option ? "" : " (MUSTER_ENDPOINT names this socket)",
                                    option ? "leave --endpoint out" : "add --private")});
  }

  void say_joins() const {
    const char* otherwise =
        options_.home == Home::kOption ? "leave --endpoint out and add --private" : "add --private";
    print_error(fmt::format("muster run: joins the daemon at {}; for a daemon of its own, {}\n",
                            options_.address.endpoint, otherwise));
  }

  void start_daemon() {
    if (options_.lifetime == Lifetime::kKeep)
      return stop({kUsage, fmt::format("--keep needs a daemon that stays, and none runs at {}; start musterd",
                                       options_.address.endpoint)});
    if (options_.ranks == 0)
      return stop(
          {kUnreachable, fmt::format("no daemon runs at {}, so there is no job '{}'; give -n to start one",
                                     options_.address.endpoint, options_.job)});
    const auto limits = private_limits(options_.config, options_.environment, options_.ranks);
    if (const Status room = make_room(static_cast<std::size_t>(options_.ranks), limits ? &*limits : nullptr);
        !room.ok())
      return stop({kFailed, "run: " + room.message()});
    auto daemon = PrivateDaemon::start({options_.config, options_.environment, options_.ranks});
    if (!daemon) return stop({kFailed, "run: " + daemon.error().message()});
    daemon_ = *std::move(daemon);
    daemon_death_ = loop_.watch(daemon_->child().pidfd().get(), [this] { on_daemon_death(); });
    options_.address.endpoint = daemon_->endpoint();
    give_up_ = loop_.after(options_.address.timeout, [this] {
      stop({kTimedOut, "the private daemon did not start in time; --timeout sets how long to wait"});
    });
    try_connect();
  }

  void try_connect() {
    if (finishing_) return;
    auto link = DaemonLink::open(loop_, options_.address, [this] { on_lost(); });
    if (!link) {
      loop_.after(kConnectRetry, [this] { try_connect(); });
      return;
    }
    loop_.unwatch(std::exchange(give_up_, 0));
    connected(*std::move(link));
  }

  void on_daemon_death() {
    loop_.unwatch(std::exchange(daemon_death_, 0));
    const End end = daemon_->child().reap();
    if (finishing_) return loop_.stop();
    // musterd has printed the reason on standard error.
    if (link_) return;
    const int code = end.exit_code() == kUsage ? kUsage : kFailed;  // wrong settings are the user's mistake
    stop({code, fmt::format("the private daemon {}", end.text())});
  }

  // The ranks and their engine need no daemon to go on.
  void on_lost() {
    const std::string text = "the daemon has gone away; the ranks go on without it";
    if (finishing_) return;
    if (ranks_) return ranks_->say(text);
    print_error(fmt::format("muster run: {}\n", text));
  }

  // ---- a job

  void connected(std::unique_ptr<DaemonLink> link) {
    link_ = std::move(link);
    give_up_at_ = clock_.now() + options_.address.timeout;
    named_ = !options_.job.empty();
    find_or_create_job();
  }

  void find_or_create_job() {
    if (!named_) options_.job = fresh_job_name();
    if (named_ || is_head()) return find_job();
    create_job();
  }

  // "status" asks no engine, so a stuck engine of another job does no harm.
  void find_job() {
    step({{"command", "status"}}, [this](const Json& result) {
      node_ = node_of(result);
      const std::string& endpoint = options_.address.endpoint;
      const auto trouble = is_head()   ? hosts_trouble(*plan_, result, endpoint)
                           : is_part() ? part_trouble(options_.part, node_, endpoint)
                                       : std::nullopt;
      if (trouble) return stop(*trouble);
      for (const Json& job : result.at("jobs"))
        if (job.at("name") == options_.job)
          return job.at("state") == "ending" ? await_end_of_job() : join_job(job);
      const std::string why = awaited(result, options_.job);
      why.empty() ? create_job() : await_job(why);
    });
  }

  // Waits for the end of a former job of that name, as after `muster end`.
  void await_end_of_job() {
    await_job(fmt::format("job {} is ending and does not end in time; `muster jobs` shows what is there",
                          options_.job));
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
    if (is_head())
      if (const auto trouble = places_trouble(*plan_, job)) return stop(*trouble);
    if (options_.ranks != 0 && options_.ranks != world)
      return stop({kUsage, fmt::format("job {} has {} ranks, not {}; leave -n out", options_.job, world,
                                       options_.ranks)});
    options_.ranks = world;
    here_ = job.value("local", std::vector<std::uint32_t>());
    spans_ = job.contains("local");
    const auto mesh = job.at("mesh").get<std::string>();
    const std::string asked = wanted_.mesh ? options_.mesh : mesh;
    // The job's creator may have written the same mesh in another way.
    const auto its = build_mesh(mesh, world, {});
    if (!its)
      return stop({kFailed, fmt::format("job {} has a mesh that this program cannot read: {}; install the "
                                        "same release of both",
                                        options_.job, its.error().text)});
    const auto built = build_mesh(asked, world, options_.flattens);
    if (!built) return stop(built.error());
    if (built->degrees() != its->degrees())
      return stop({kUsage, fmt::format("job {} has the mesh {}, not {}; leave --mesh out", options_.job,
                                       its->degrees().canonical(), built->degrees().canonical())});
    options_.mesh = its->degrees().canonical();
    const bool tokens = job.at("claim") == "token";
    place_ranks();
    if (spans_ && !is_head() && !is_part())
      print_error(fmt::format("muster run: starts rank{} {} of job {}, those of node {}\n",
                              here_.size() == 1 ? "" : "s", rank_list(here_, ','), options_.job, node_));
    if (!wanted_.flatten) return expect_ranks(tokens);
    // The hash covers the names of all groups, and so the flattened dims.
    const std::string hash = mesh::describe(mesh::GroupList(*built)).hash;
    step({{"command", "groups"}, {"job", options_.job}}, [this, tokens, hash](const Json& result) {
      if (result.at("hash") == hash) return expect_ranks(tokens);
      stop({kUsage,
            fmt::format("job {} has the mesh {} with other flattened dims than {}; leave --flatten "
                        "out (`muster groups --job {}` shows them)",
                        options_.job, options_.mesh, fmt::join(options_.flattens, " "), options_.job)});
    });
  }

  // Which ranks this run starts, each without its token yet.
  void place_ranks() {
    if (!spans_) {
      here_.resize(static_cast<std::size_t>(options_.ranks));
      std::iota(here_.begin(), here_.end(), 0u);
    }
    tokens_.assign(here_.size(), "");
  }

  // A former run that was killed may have reported ranks as absent, and not that all may come again.
  void expect_ranks(bool tokens) {
    if (is_head()) return begin_trace();  // the parts do it
    step({{"command", "expect_all"}, {"job", options_.job}},
         [this, tokens](const Json&) { claim_ranks(tokens); });
  }

  void claim_ranks(bool tokens) {
    if (tokens) return fetch_token(0);
    begin_trace();
  }

  void fetch_token(std::size_t index) {
    if (index == tokens_.size()) return begin_trace();
    step({{"command", "token"}, {"job", options_.job}, {"rank", here_[index]}},
         [this, index](const Json& result) {
           tokens_[index] = result.at("token").get<std::string>();
           fetch_token(index + 1);
         });
  }

  void create_job() {
    if (options_.ranks == 0)
      return stop({kNoObject, fmt::format("no job is named '{}'{}", options_.job,
                                          is_part() ? " on node " + node_ : "; give -n to create it")});
    if (options_.ranks > kRanksOnNodeMax && !is_head()) return stop(too_many(options_.ranks));
    Json flatten = Json::array();
    const auto flattens = parse_flattens(options_.flattens);  // checked before
    for (const auto& entry : *flattens) flatten.push_back({{"name", entry.name}, {"dims", entry.members}});
    const Json spec{{"name", options_.job},
                    {"world", options_.ranks},
                    {"mesh", options_.mesh},
                    {"flatten", flatten},
                    {"claim", "owner"}};  // so that a rank may close its session and open another
    job_stays_ = options_.lifetime == Lifetime::kKeep;
    Json command{{"command", "job_create"}, {"spec", spec}, {"keep", job_stays_}};
    if (is_head()) ask_on_hosts(*plan_, options_.address.timeout, command);
    link_->ask(command, [this](const OrTrouble<DaemonAnswer>& answer) { on_created(answer); });
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
    if (options_.trace.empty()) return start_ranks();
    tracing_ = true;  // set now: the run may end before the answer comes
    link_->ask(trace_command("trace_begin"),
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
    return {
        {"command", command}, {"job", options_.job}, {"by", fmt::format("`muster run` (pid {})", getpid())}};
  }

  // ---- ranks

  Ranks::Options ranks_here() {
    Ranks::Options ranks;
    ranks.command = options_.command;
    ranks.is_part = is_part();
    ranks.grace = options_.grace;
    ranks.elastic = options_.elastic;
    ranks.prefix = options_.ranks == 1 ? Prefix::kNone : options_.prefix;
    if (is_part() && ranks.prefix == Prefix::kNone) ranks.prefix = Prefix::kLines;
    const auto size = static_cast<std::uint32_t>(here_.size());
    for (std::uint32_t local = 0; local < size; ++local) {
      RunMember& rank = ranks.members.emplace_back();
      rank.rank = here_[local];
      rank.environment =
          rank_environment(options_.environment,
                           {options_.address.endpoint, options_.job, options_.mesh, tokens_[local], rank.rank,
                            static_cast<std::uint32_t>(options_.ranks), local, size, options_.check});
    }
    // Only this program knows that a rank is gone that never attached, or left before others came.
    ranks.on_end = [this](std::uint32_t rank, const std::string& text) { tell_absence(rank, text); };
    return ranks;
  }

  Ranks::Options parts() const {
    return parts_of(
        *plan_, {options_.job, node_, options_.address.endpoint, options_.address.timeout, options_.grace,
                 options_.elastic, options_.check, options_.prefix, options_.command, options_.environment});
  }

  void start_ranks() {
    Ranks::Options ranks = is_head() ? parts() : ranks_here();
    ranks_ = std::make_unique<Ranks>(loop_, std::move(ranks), [this](int code) { on_ranks_done(code); });
    if (daemon_ && isatty(STDERR_FILENO) == 1) print_error(how_to_ask(options_.job));
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
    if (!link_) return;
    link_->ask({{"command", "absent"}, {"job", options_.job}, {"rank", rank}, {"text", text}},
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
    link_->ask({{"command", "expect_all"}, {"job", options_.job}},
               [this, code](const OrTrouble<DaemonAnswer>&) { end_trace(code); });
  }

  void end_trace(int code) {
    if (!std::exchange(tracing_, false)) return finish(code);
    link_->ask(trace_command("trace_end"), [this, code](OrTrouble<DaemonAnswer> answer) {
      const OrTrouble<std::uint64_t> written =
          answer ? write_trace(*answer, options_.trace) : tl::unexpected(answer.error());
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
    if (!ranks_ && !finishing_) print_error(fmt::format("muster run: {}\n", headless_text(options_.part)));
    on_word(SIGTERM);
  }

  void on_end_signal(int number) {
    if (headless_ && ranks_ && ranks_->interrupted()) return;  // the same end, reported twice
    if (finishing_) {
      daemon_ ? daemon_->child().signal(SIGKILL) : leave();  // second signal: end at once
      return;
    }
    if (ranks_) return ranks_->interrupt(number);
    print_error(fmt::format("muster run: interrupted by SIG{}; no rank was running\n", sigabbrev_np(number)));
    finish(128 + number);
  }

  // Asks, and continues with the result; a failure ends the run.
  void step(const Json& command, std::function<void(const Json&)> next, int not_found = kNoObject) {
    link_->ask(command, [this, next = std::move(next), not_found](const OrTrouble<DaemonAnswer>& answer) {
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
    if (!job_stays_ || !tracing_) return leave();
    // A failed run must leave no recording on in a job that stays.
    link_->ask(trace_command("trace_end"), [this](const OrTrouble<DaemonAnswer>&) { leave(); });
  }

  void leave() {
    // Posted, because the connection may be on the stack. The job ends with the connection.
    loop_.post([this] { link_.reset(); });
    if (daemon_death_ == 0) return loop_.post([this] { loop_.stop(); });
    daemon_->child().signal(SIGTERM);
    loop_.after(kDaemonEndTime, [this] { daemon_->child().signal(SIGKILL); });
  }

  RunOptions options_;
  Given wanted_;
  control::Loop loop_;
  std::unique_ptr<PrivateDaemon> daemon_;
  control::Loop::Watch daemon_death_ = 0;
  control::Loop::Watch give_up_ = 0;
  std::unique_ptr<DaemonLink> link_;
  std::unique_ptr<Ranks> ranks_;
  std::vector<std::uint32_t> here_;  // the ranks that this run starts, rising
  std::vector<std::string> tokens_;  // one for each of them
  std::optional<RunHead> plan_;      // the run is a head
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
  return RunCommand(options).run();
}

}  // namespace muster::cli
