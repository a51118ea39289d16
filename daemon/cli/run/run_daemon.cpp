#include "daemon/cli/run/run_daemon.hpp"

#include "daemon/cli/run/private_limits.hpp"

#include <csignal>
#include <filesystem>

namespace muster::cli {
namespace {

constexpr Nanos kConnectRetry = std::chrono::milliseconds(5);

void say_joins(RunPlan::Home home, const std::string& endpoint) {
  const char* otherwise =
      home == RunPlan::Home::kOption ? "leave --endpoint out and add --private" : "add --private";
  print_error(
      fmt::format("muster run: joins the daemon at {}; for a daemon of its own, {}\n", endpoint, otherwise));
}

}  // namespace

RunDaemon::RunDaemon(control::Loop& loop, const RunPlan& plan, Events events)
    : loop_(loop), plan_(plan), events_(std::move(events)), address_(plan.options.address) {}

void RunDaemon::find() {
  if (plan_.options.home == RunPlan::Home::kPrivate) return start();
  address_.endpoint = std::filesystem::absolute(address_.endpoint);
  auto link = DaemonLink::open(loop_, address_, [this] { on_lost(); });
  if (!link) return on_absence(link.error());
  if (!plan_.options.config.empty())
    return events_.on_trouble(
        {kUsage, fmt::format("run: --config is for a private daemon, and one runs at {} already; "
                             "add --private, or leave --config out",
                             address_.endpoint)});
  if (!plan_.is_head() && !plan_.is_part()) say_joins(plan_.options.home, address_.endpoint);
  link_ = *std::move(link);
  events_.on_found();
}

void RunDaemon::on_absence(const Status& status) {
  if (status.code() != Code::kDaemonLost) {
    Trouble trouble = unreachable(status);
    // A resource limit of this process would stop a private daemon too.
    if (status.code() != Code::kNoResource) trouble.text += "; --private runs without that daemon";
    return events_.on_trouble(trouble);
  }
  if (plan_.is_head() || plan_.is_part())
    return events_.on_trouble(no_daemon(plan_.options.part, address_.endpoint));
  if (plan_.options.home == RunPlan::Home::kAny) return start();
  const bool option = plan_.options.home == RunPlan::Home::kOption;
  events_.on_trouble(
      {kUnreachable, fmt::format("{}{}, or {} for a private one", absence_text(address_.endpoint),
                                 option ? "" : " (MUSTER_ENDPOINT names this socket)",
                                 option ? "leave --endpoint out" : "add --private")});
}

void RunDaemon::start() {
  const RunPlan::Options& options = plan_.options;
  if (options.lifetime == RunPlan::Lifetime::kKeep)
    return events_.on_trouble(
        {kUsage, fmt::format("--keep needs a daemon that stays, and none runs at {}; start musterd",
                             address_.endpoint)});
  if (options.ranks == 0)
    return events_.on_trouble(
        {kUnreachable, fmt::format("no daemon runs at {}, so there is no job '{}'; give -n to start one",
                                   address_.endpoint, options.job)});
  const auto limits = private_limits(options.config, options.environment, options.ranks);
  if (const Status room = make_room(static_cast<std::size_t>(options.ranks), limits ? &*limits : nullptr);
      !room.ok())
    return events_.on_trouble({kFailed, "run: " + room.message()});
  auto daemon = PrivateDaemon::start({options.config, options.environment, options.ranks});
  if (!daemon) return events_.on_trouble({kFailed, "run: " + daemon.error().message()});
  daemon_ = *std::move(daemon);
  death_ = loop_.watch(daemon_->child().pidfd().get(), [this] { on_death(); });
  address_.endpoint = daemon_->endpoint();
  give_up_ = loop_.after(address_.timeout, [this] {
    events_.on_trouble(
        {kTimedOut, "the private daemon did not start in time; --timeout sets how long to wait"});
  });
  connect();
}

void RunDaemon::connect() {
  if (ending_) return;
  auto link = DaemonLink::open(loop_, address_, [this] { on_lost(); });
  if (!link) {
    loop_.after(kConnectRetry, [this] { connect(); });
    return;
  }
  loop_.unwatch(std::exchange(give_up_, 0));
  link_ = *std::move(link);
  events_.on_found();
}

void RunDaemon::on_lost() const {
  if (!ending_) events_.on_lost();
}

void RunDaemon::on_death() {
  loop_.unwatch(std::exchange(death_, 0));
  const Child::End end = daemon_->child().reap();
  if (ending_) return events_.on_end();
  // musterd has said why on standard error.
  if (link_) return;
  const int code = end.exit_code() == kUsage ? kUsage : kFailed;  // wrong settings are the user's mistake
  events_.on_trouble({code, fmt::format("the private daemon {}", end.text())});
}

void RunDaemon::leave() {
  ending_ = true;
  // Posted, because the connection may be on the stack.
  loop_.post([this] { link_.reset(); });
  if (death_ == 0) return loop_.post(events_.on_end);
  daemon_->child().signal(SIGTERM);
  loop_.after(kEndTime, [this] { daemon_->child().signal(SIGKILL); });
}

void RunDaemon::leave_at_once() {
  daemon_ ? daemon_->child().signal(SIGKILL) : leave();
}

}  // namespace muster::cli
