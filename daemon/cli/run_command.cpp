#include "daemon/cli/run_command.hpp"

#include "daemon/cli/channel.hpp"
#include "daemon/cli/mesh_command.hpp"
#include "daemon/cli/private_daemon.hpp"
#include "daemon/cli/rank_environment.hpp"
#include "daemon/cli/trace_file.hpp"

#include <csignal>
#include <cstdio>
#include <filesystem>

#include <unistd.h>

namespace muster::cli {
namespace {

constexpr Nanos kConnectRetry = std::chrono::milliseconds(5);
constexpr Nanos kDaemonEndTime = std::chrono::seconds(20);

// One run, as steps on an event loop: find a daemon → job → trace → ranks → trace → end. Each step starts
// the next; a signal or a failure goes to finish() from any of them.
//
// Owns    the private daemon if there is one, the connection, the ranks.
// Thread  run()'s.
// Bound   one job.
// Fails   with an exit code, having said why.
class Run {
 public:
  explicit Run(RunOptions options) : options_(std::move(options)) {}

  int run() {
    if (const auto trouble = check()) return complain(*trouble);
    std::signal(SIGPIPE, SIG_IGN);
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
      loop_.on_signal(number, [this, number] { on_end_signal(number); });
    for (const int number : {SIGUSR1, SIGUSR2})
      loop_.on_signal(number, [this, number] {
        if (ranks_) ranks_->forward(number);
      });
    loop_.post([this] { find_daemon(); });
    loop_.run();
    return exit_code_;
  }

 private:
  // What can be said without a daemon.
  std::optional<Trouble> check() {
    if (options_.ranks == 0 && options_.job.empty())
      return Trouble{kUsage, "run: say how many ranks, with -n"};
    if (!options_.job.empty())
      if (const Status name = control::check_job_name(options_.job); !name.ok()) return trouble_of(name);
    if (options_.mesh.empty()) options_.mesh = "dp_shard=-1";
    if (options_.ranks == 0) return std::nullopt;
    const auto mesh = build_mesh(options_.mesh, options_.ranks, options_.flattens);
    if (!mesh) return mesh.error();
    options_.mesh = mesh->degrees().canonical();
    return std::nullopt;
  }

  // ---- a daemon

  void find_daemon() {
    if (options_.home == Home::kAny) {
      options_.door.endpoint = std::filesystem::absolute(options_.door.endpoint);
      auto channel = Channel::open(loop_, options_.door, [this] { on_lost(); });
      if (channel) return connected(*std::move(channel));
      if (channel.error().code() != Code::kDaemonLost)
        return stop(trouble_of(failure(channel.error().code(), "{}; --private runs without that daemon",
                                       channel.error().message())));
    }
    start_daemon();
  }

  void start_daemon() {
    if (options_.lifetime == Lifetime::kKeep)
      return stop({kUsage, fmt::format("--keep needs a daemon that stays, and none runs at {}; start musterd",
                                       options_.door.endpoint)});
    if (options_.ranks == 0)
      return stop(
          {kUnreachable, fmt::format("no daemon runs at {}, so there is no job '{}'; give -n to start one",
                                     options_.door.endpoint, options_.job)});
    auto daemon = PrivateDaemon::start({options_.config, options_.environment, options_.ranks});
    if (!daemon) return stop({kFailed, daemon.error().message()});
    daemon_ = *std::move(daemon);
    daemon_death_ = loop_.watch(daemon_->child().pidfd().get(), [this] { on_daemon_death(); });
    options_.door.endpoint = daemon_->endpoint();
    give_up_ = loop_.after(options_.door.timeout, [this] {
      stop({kTimedOut, "the private daemon did not start in time; --timeout sets how long to wait"});
    });
    try_connect();
  }

  void try_connect() {
    if (finishing_) return;
    auto channel = Channel::open(loop_, options_.door, [this] { on_lost(); });
    if (!channel) {
      loop_.after(kConnectRetry, [this] { try_connect(); });
      return;
    }
    loop_.unwatch(std::exchange(give_up_, 0));
    connected(*std::move(channel));
  }

  void on_daemon_death() {
    loop_.unwatch(std::exchange(daemon_death_, 0));
    const End end = daemon_->child().reap();
    if (finishing_) return loop_.stop();
    // musterd has said why on standard error.
    if (!channel_) return stop({kFailed, fmt::format("the private daemon {}", end.text())});
  }

  // The ranks and their engine need no daemon to go on.
  void on_lost() {
    if (!finishing_)
      std::fprintf(stderr, "muster run: the daemon has gone away; the ranks go on without it\n");
  }

  // ---- a job

  void connected(std::unique_ptr<Channel> channel) {
    channel_ = std::move(channel);
    if (options_.job.empty()) {
      options_.job = fmt::format("run-{}", getpid());
      return create_job();
    }
    step({{"command", "jobs"}}, [this](const Json& result) {
      for (const Json& job : result.at("jobs"))
        if (job.at("name") == options_.job) return join_job(job);
      create_job();
    });
  }

  void join_job(const Json& job) {
    const auto world = job.at("world").get<std::int64_t>();
    if (options_.ranks != 0 && options_.ranks != world)
      return stop({kUsage, fmt::format("job {} has {} ranks, not {}; leave -n out", options_.job, world,
                                       options_.ranks)});
    options_.ranks = world;
    options_.mesh = job.at("mesh").get<std::string>();
    tokens_.assign(static_cast<std::size_t>(world), "");
    if (job.at("claim") == "token") return fetch_token(0);
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
                    {"claim", "token"}};
    const bool keep = options_.lifetime == Lifetime::kKeep;
    step({{"command", "job_create"}, {"spec", spec}, {"keep", keep}}, [this](const Json& result) {
      tokens_ = result.at("tokens").get<std::vector<std::string>>();
      begin_trace();
    });
  }

  void begin_trace() {
    if (options_.trace.empty()) return start_ranks();
    step({{"command", "trace_begin"}, {"job", options_.job}}, [this](const Json&) { start_ranks(); });
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
          {options_.door.endpoint, options_.job, options_.mesh, tokens_.at(static_cast<std::size_t>(rank)),
           static_cast<std::uint32_t>(rank), static_cast<std::uint32_t>(options_.ranks)}));
    ranks_ = std::make_unique<Ranks>(loop_, std::move(ranks), [this](int code) { on_ranks_done(code); });
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
    if (options_.trace.empty()) return finish(code);
    channel_->ask({{"command", "trace_end"}, {"job", options_.job}}, [this, code](Outcome<Answer> answer) {
      const Outcome<std::uint64_t> written =
          answer ? write_trace(*answer, options_.trace) : tl::unexpected(answer.error());
      int result = code;
      if (!written) {
        const int trouble = complain({written.error().exit_code, "the trace: " + written.error().text});
        if (result == 0) result = trouble;
      }
      finish(result);
    });
  }

  // ---- the end

  void on_end_signal(int number) {
    if (finishing_) {
      if (daemon_) daemon_->child().signal(SIGKILL);  // a second one: no patience left
      return;
    }
    if (ranks_) return ranks_->interrupt(number);
    finish(128 + number);
  }

  // Asks, and goes on with the result; trouble ends the run.
  void step(const Json& command, std::function<void(const Json&)> next) {
    channel_->ask(command, [this, next = std::move(next)](Outcome<Answer> answer) {
      if (finishing_) return;
      if (!answer) return stop(answer.error());
      try {
        next(answer->result);
      } catch (const Json::exception& error) {
        stop({kFailed, fmt::format("the daemon's answer is not as expected: {}", error.what())});
      }
    });
  }

  void stop(const Trouble& trouble) { finish(complain(trouble)); }

  void finish(int code) {
    if (std::exchange(finishing_, true)) return;
    exit_code_ = code;
    // Later, because the connection may be on the stack. Its end is the end of the job.
    loop_.post([this] { channel_.reset(); });
    if (daemon_death_ == 0) return loop_.post([this] { loop_.stop(); });
    daemon_->child().signal(SIGTERM);
    loop_.after(kDaemonEndTime, [this] { daemon_->child().signal(SIGKILL); });
  }

  RunOptions options_;
  control::Loop loop_;
  std::unique_ptr<PrivateDaemon> daemon_;
  control::Loop::Watch daemon_death_ = 0;
  control::Loop::Watch give_up_ = 0;
  std::unique_ptr<Channel> channel_;
  std::unique_ptr<Ranks> ranks_;
  std::vector<std::string> tokens_;
  bool finishing_ = false;
  int exit_code_ = kFailed;
};

}  // namespace

int run_ranks(const RunOptions& options) {
  return Run(options).run();
}

}  // namespace muster::cli
