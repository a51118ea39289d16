#include "daemon/cli/run_command.hpp"

#include "api/base/node_limits.hpp"
#include "daemon/cli/daemon_link.hpp"
#include "daemon/cli/mesh_command.hpp"
#include "daemon/cli/private_daemon.hpp"
#include "daemon/cli/private_limits.hpp"
#include "daemon/cli/rank_environment.hpp"
#include "daemon/cli/stale_runs.hpp"
#include "daemon/cli/trace_file.hpp"
#include "scheduler/mesh/description.hpp"

#include <muster/muster.h>

#include <csignal>
#include <cstdio>
#include <filesystem>

#include <unistd.h>

namespace muster::cli {
namespace {

constexpr Nanos kConnectRetry = std::chrono::milliseconds(5);
constexpr Nanos kDaemonEndTime = std::chrono::seconds(20);
constexpr Nanos kAskAgain = std::chrono::milliseconds(100);

// That --mesh and --flatten were given, before the mesh becomes canonical.
struct Given {
  bool mesh = false;
  bool flatten = false;
};

// Containers with process numbers of their own may share a daemon, so the number alone is not unique.
std::string fresh_job_name() {
  return fmt::format("run-{}-{:08x}", getpid(), static_cast<std::uint32_t>(chance_for_name()));
}

// One run, as steps on an event loop: find a daemon → job → trace → ranks → trace → end. Each step starts
// the next; a signal or a failure goes to finish() from any of them.
//
// Owns    the private daemon if there is one, the connection, the ranks.
// Thread  run()'s.
// Bound   one job.
// Fails   with an exit code, having said why.
class RunCommand {
 public:
  explicit RunCommand(RunOptions options) : options_(std::move(options)) {}

  int run() {
    if (const auto trouble = check()) return complain(*trouble);
    for (const std::string& parent : run_parents()) remove_stale_runs(parent);  // of killed runs
    std::signal(SIGPIPE, SIG_IGN);
    std::signal(SIGCHLD, SIG_DFL);  // inherited as ignored, it would hide how a rank ended
    for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT})
      if (number == SIGTERM || !stays_ignored(number))
        loop_.on_signal(number, [this, number] { on_end_signal(number); });
    for (const int number : {SIGUSR1, SIGUSR2})
      loop_.on_signal(number, [this, number] {
        if (ranks_) ranks_->forward(number);
      });
    if (!stays_ignored(SIGTSTP)) loop_.on_signal(SIGTSTP, [this] { stop_for_a_while(); });
    loop_.post([this] { find_daemon(); });
    loop_.run();
    return exit_code_;
  }

 private:
  // Ctrl-Z: a terminal's reaches this process alone, and until somebody says `fg` the ranks stand with it.
  // Where nobody could (an orphaned process group) the kernel lets it pass, and they go on at once.
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

  // What can be said without a daemon.
  std::optional<Trouble> check() {
    if (options_.ranks == 0 && options_.job.empty())
      return Trouble{kUsage, "run: say how many ranks, with -n"};
    if (options_.ranks > kRanksOnNodeMax)
      return Trouble{kUsage, fmt::format("run: -n {}: a job on one node can have {} ranks at most "
                                         "(limits.ranks_per_job_max goes no higher); start fewer",
                                         options_.ranks, kRanksOnNodeMax)};
    if (const auto trouble = check_home()) return trouble;
    if (options_.lifetime == Lifetime::kKeep && options_.job.empty())
      return Trouble{kUsage, "run: --keep needs --job: the name by which the next run finds the job"};
    if (!options_.trace.empty())
      if (const auto trouble = check_writable(options_.trace)) return trouble;
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

  // Whether a private daemon could do what is asked.
  std::optional<Trouble> check_home() const {
    if (options_.home != Home::kPrivate) return std::nullopt;
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
      say_joins();
      return connected(*std::move(link));
    }
    const Status& status = link.error();
    if (status.code() != Code::kDaemonLost) {
      Trouble trouble = unreachable(status);
      // Another limit of this process would be in the way of a private daemon too.
      if (status.code() != Code::kNoResource) trouble.text += "; --private runs without that daemon";
      return stop(trouble);
    }
    if (options_.home == Home::kAny) return start_daemon();
    const bool option = options_.home == Home::kOption;
    stop({kUnreachable,
          fmt::format("no daemon at {}; start musterd{}, or {} for a private one", options_.address.endpoint,
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
    // musterd has said why on standard error.
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
    if (named_) return find_job();
    options_.job = fresh_job_name();
    create_job();
  }

  // "status" asks no engine, so that one of another job that is stuck does not matter.
  void find_job() {
    step({{"command", "status"}}, [this](const Json& result) {
      for (const Json& job : result.at("jobs"))
        if (job.at("name") == options_.job)
          return job.at("state") == "ending" ? await_end_of_job() : join_job(job);
      create_job();
    });
  }

  // Of the job that had the name before, as after `muster end`.
  void await_end_of_job() {
    if (clock_.now() >= give_up_at_)
      return stop({kTimedOut, fmt::format("job {} is ending and does not end in time; --timeout sets how "
                                          "long to wait, `muster jobs` shows what is there",
                                          options_.job)});
    ask_later();
  }

  void ask_later() {
    loop_.after(kAskAgain, [this] {
      if (!finishing_) find_or_create_job();
    });
  }

  void join_job(const Json& job) {
    job_stays_ = true;
    const auto world = job.at("world").get<std::int64_t>();
    if (options_.ranks != 0 && options_.ranks != world)
      return stop({kUsage, fmt::format("job {} has {} ranks, not {}; leave -n out", options_.job, world,
                                       options_.ranks)});
    options_.ranks = world;
    const auto mesh = job.at("mesh").get<std::string>();
    const std::string asked = wanted_.mesh ? options_.mesh : mesh;
    // Whoever created it may have written it in other words.
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
    tokens_.assign(static_cast<std::size_t>(world), "");
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

  // A former run that was killed has said of ranks that they will not come, and not that all may come again.
  void expect_ranks(bool tokens) {
    step({{"command", "expect_all"}, {"job", options_.job}},
         [this, tokens](const Json&) { claim_ranks(tokens); });
  }

  void claim_ranks(bool tokens) {
    if (tokens) return fetch_token(0);
    begin_trace();
  }

  void fetch_token(std::size_t rank) {
    if (rank == tokens_.size()) return begin_trace();
    step({{"command", "token"}, {"job", options_.job}, {"rank", rank}}, [this, rank](const Json& result) {
      tokens_[rank] = result.at("token").get<std::string>();
      fetch_token(rank + 1);
    });
  }

  void create_job() {
    if (options_.ranks == 0)
      return stop({kNoObject, fmt::format("no job is named '{}'; give -n to create it", options_.job)});
    Json flatten = Json::array();
    const auto flattens = parse_flattens(options_.flattens);  // checked before
    for (const auto& entry : *flattens) flatten.push_back({{"name", entry.name}, {"dims", entry.members}});
    const Json spec{{"name", options_.job},
                    {"world", options_.ranks},
                    {"mesh", options_.mesh},
                    {"flatten", flatten},
                    {"claim", "owner"}};  // so a rank may close its session and open another
    job_stays_ = options_.lifetime == Lifetime::kKeep;
    link_->ask({{"command", "job_create"}, {"spec", spec}, {"keep", job_stays_}},
               [this](const OrTrouble<DaemonAnswer>& answer) { on_created(answer); });
  }

  // A daemon that was killed may have created the job and not said so. Its successor ends that one, since the
  // connection that it belonged to is gone, and until then its name is taken.
  void on_created(const OrTrouble<DaemonAnswer>& answer) {
    if (!answer && answer.error().code == Code::kDuplicate && clock_.now() < give_up_at_) return ask_later();
    const auto created = [this](const Json&) {
      tokens_.assign(static_cast<std::size_t>(options_.ranks), "");
      begin_trace();
    };
    take(answer, created, kFailed);  // what is not found is a part of the installation
  }

  void begin_trace() {
    if (options_.trace.empty()) return start_ranks();
    tracing_ = true;  // also if the run ends before the answer is here
    link_->ask(trace_command("trace_begin"),
               [this](const OrTrouble<DaemonAnswer>& answer) { on_trace_begun(answer); });
  }

  void on_trace_begun(const OrTrouble<DaemonAnswer>& answer) {
    if (finishing_) return;
    if (answer) return start_ranks();
    // What was refused has begun nothing: a recording there is another's to end.
    const int code = answer.error().exit_code;
    tracing_ = code == kTimedOut || code == kUnreachable;
    stop(answer.error());
  }

  // With our name, so that another's recording goes on.
  Json trace_command(const char* command) const {
    return {
        {"command", command}, {"job", options_.job}, {"by", fmt::format("`muster run` (pid {})", getpid())}};
  }

  // ---- ranks

  void start_ranks() {
    Ranks::Options ranks;
    ranks.command = options_.command;
    ranks.prefix = options_.ranks == 1 ? Prefix::kNone : options_.prefix;
    ranks.grace = options_.grace;
    for (std::int64_t rank = 0; rank < options_.ranks; ++rank)
      ranks.environments.push_back(rank_environment(
          options_.environment,
          {options_.address.endpoint, options_.job, options_.mesh, tokens_.at(static_cast<std::size_t>(rank)),
           static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(options_.ranks)}));
    // A rank that never attached, or attached and left before others came, is known to be gone here alone.
    ranks.on_end = [this](std::size_t rank, const std::string& text) { tell_absence(rank, text); };
    ranks_ = std::make_unique<Ranks>(loop_, std::move(ranks), [this](int code) { on_ranks_done(code); });
    const Status started = ranks_->start();
    if (started.ok()) return;
    ranks_.reset();
    const int code = started.code() == Code::kNotFound ? kNoProgram
                     : started.code() == Code::kDenied ? kCannotRun
                                                       : kFailed;
    stop({code, started.message()});
  }

  // Until it is heard: an engine that is stopped refuses when enough waits for it, and those who wait for the
  // rank would learn of it at their deadline only.
  void tell_absence(std::size_t rank, const std::string& text) {
    if (!link_) return;
    link_->ask({{"command", "absent"}, {"job", options_.job}, {"rank", rank}, {"text", text}},
               [this, rank, text](const OrTrouble<DaemonAnswer>& told) {
                 if (told || told.error().exit_code != kFailed) return;
                 loop_.after(kAskAgain, [this, rank, text] {
                   if (ranks_) tell_absence(rank, text);  // or else nobody is left to wait
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

  void on_end_signal(int number) {
    if (finishing_) {
      daemon_ ? daemon_->child().signal(SIGKILL) : leave();  // a second one: no patience left
      return;
    }
    if (ranks_) return ranks_->interrupt(number);
    print_error(fmt::format("muster run: interrupted by SIG{}; no rank was running\n", sigabbrev_np(number)));
    finish(128 + number);
  }

  // Asks, and goes on with the result; trouble ends the run.
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
    // A run that has come to nothing leaves no recording on in a job that stays.
    link_->ask(trace_command("trace_end"), [this](const OrTrouble<DaemonAnswer>&) { leave(); });
  }

  void leave() {
    // Later, because the connection may be on the stack. Its end is the end of the job.
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
  std::vector<std::string> tokens_;
  const SteadyClock clock_;
  Instant give_up_at_{};    // waiting for a job to end
  bool named_ = false;      // the job, by the user
  bool job_stays_ = false;  // after this run
  bool tracing_ = false;    // this run began it, or its answer is not here
  bool finishing_ = false;
  int exit_code_ = kFailed;
};

}  // namespace

int run_ranks(const RunOptions& options) {
  // First of all: the event loop, too, must be opened. A number that is too large is refused by name later.
  const bool known = options.ranks > 0 && options.ranks <= kRanksOnNodeMax;
  const std::int64_t ranks = known ? options.ranks : 1;
  if (Status room = make_room(static_cast<std::size_t>(ranks), nullptr); !room.ok()) {
    // Not one shortage after the other: where a daemon would be started, its need is told as well.
    const bool own_daemon = options.home == Home::kPrivate || options.home == Home::kAny;
    const auto limits = private_limits(options.config, options.environment, ranks);
    if (own_daemon && limits) room = make_room(static_cast<std::size_t>(ranks), &*limits);
    return complain({kFailed, "run: " + room.message()});
  }
  return RunCommand(options).run();
}

}  // namespace muster::cli
