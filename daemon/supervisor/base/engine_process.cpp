#include "daemon/supervisor/base/engine_process.hpp"

#include "api/base/log.hpp"
#include "api/base/system_call.hpp"
#include "daemon/supervisor/base/child_pidfd.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

using control::Json;
using control::Packet;

constexpr int kChannelDescriptor = 3;  // as muster-engine expects it
constexpr Nanos kStopAgain = std::chrono::milliseconds(20);

// In the child, after fork: async-signal-safe calls only. Nothing that the engine starts gets back what is
// given up here.
bool become_user(const EngineProcess::User& user) {
  for (unsigned long number = 0; prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0; ++number)
    if (prctl(PR_CAPBSET_DROP, number, 0, 0, 0) != 0 && errno != EPERM) return false;
  if (setgroups(0, nullptr) != 0 || setgid(user.gid) != 0 || setuid(user.uid) != 0) return false;
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  const __user_cap_data_struct none[2] = {};
  return syscall(SYS_capset, &header, none) == 0 && prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0;
}

// In the child, after fork: async-signal-safe calls only.
[[noreturn]] void become_engine(const char* program, int channel, const EngineProcess::User* user) {
  if (channel == kChannelDescriptor) {
    fcntl(channel, F_SETFD, 0);
  } else if (dup2(channel, kChannelDescriptor) < 0) {
    _exit(126);
  }
  setpgid(0, 0);  // so a terminal's Ctrl-C reaches the supervisor only
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (user != nullptr && !become_user(*user)) _exit(125);
  char* const arguments[] = {const_cast<char*>("muster-engine"), nullptr};
  execv(program, arguments);
  _exit(127);
}

// Reaps a child that has ended, and says how. A predecessor's engine is not our child.
std::string reap(const shm::Descriptor& pidfd) {
  siginfo_t info{};
  const auto id = static_cast<id_t>(pidfd.get());
  if (waitid(P_PIDFD, id, &info, WEXITED | WNOHANG) != 0 || info.si_pid == 0)
    return "how it ended is not known to this daemon, which has taken it over";
  if (info.si_code == CLD_EXITED) {
    if (info.si_status == 127) return "it could not be started";
    if (info.si_status == 125) return "it could not change to the job's user";
    return fmt::format("it exited with code {}", info.si_status);
  }
  return fmt::format("it was killed by signal {} ({})", info.si_status, strsignal(info.si_status));
}

}  // namespace

Result<std::unique_ptr<EngineProcess>> EngineProcess::spawn(control::Loop& loop, Options options) {
  if (access(options.program.c_str(), X_OK) != 0)
    return fail(Code::kNotFound, "the engine {} cannot be run: {}; is the installation complete?",
                options.program, std::strerror(errno));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0)
    return fail(Code::kNoResource, "{}", refused_call("socketpair", errno, kRaiseOpenFiles));
  shm::Descriptor ours(ends[0]);
  const shm::Descriptor theirs(ends[1]);
  const bool change_user = geteuid() == 0 && options.user.uid != 0;
  const pid_t pid = fork();
  if (pid < 0) return fail(Code::kNoResource, "{}", refused_call("fork", errno, kRaiseProcesses));
  if (pid == 0) become_engine(options.program.c_str(), theirs.get(), change_user ? &options.user : nullptr);
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor pidfd, pidfd_of_child(pid));
  return std::unique_ptr<EngineProcess>(
      new EngineProcess(loop, std::move(options), pid, std::move(ours), std::move(pidfd)));
}

std::unique_ptr<EngineProcess> EngineProcess::adopt(control::Loop& loop, Options options, std::int32_t pid,
                                                    shm::Descriptor channel, shm::Descriptor pidfd) {
  return std::unique_ptr<EngineProcess>(
      new EngineProcess(loop, std::move(options), pid, std::move(channel), std::move(pidfd)));
}

EngineProcess::EngineProcess(control::Loop& loop, Options options, std::int32_t pid, shm::Descriptor channel,
                             shm::Descriptor pidfd)
    : loop_(loop),
      options_(std::move(options)),
      pid_(pid),
      channel_(std::move(channel)),
      pidfd_(std::move(pidfd)),
      serial_(options_.first_serial) {
  if (channel_.valid()) channel_watch_ = loop_.watch(channel_.get(), [this] { on_readable(); });
  death_watch_ = loop_.watch(pidfd_.get(), [this] { on_death(); });
}

EngineProcess::~EngineProcess() {
  loop_.unwatch(channel_watch_);
  loop_.unwatch(death_watch_);
  loop_.unwatch(stop_again_);
  loop_.unwatch(no_process_);
  if (ended_) return;
  static_cast<void>(send_signal(SIGKILL));
  siginfo_t info{};
  waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED);  // returns at once if it is not our child
}

void EngineProcess::ask(const Json& command, std::span<const int> descriptors, Answered answered) {
  // An engine may take questions and never answer, since it runs with its job's rights: bound our memory.
  if (pending_.size() >= kQuestionsMax)
    return answered(
        fail(Code::kBusy, "the job's engine (process {}) owes {} answers; try again", pid_, pending_.size()));
  const std::uint32_t serial = ++serial_;
  const Status sent =
      control::send_packet(channel_, shm::MessageKind::kCommand, serial, command, descriptors);
  if (!sent.ok()) return answered(fail(sent));
  pending_.emplace(serial, std::move(answered));
}

// Repeated while the channel is full: an engine that was not asked is killed, and its memory is lost.
void EngineProcess::stop(const std::string& why, Code code) {
  Json command{{"command", "stop"}, {"text", why}};
  if (code != Code::kJobEnded) command["status"] = static_cast<muster_status_t>(code);
  ask(command, {}, [this, why, code](const Result<Packet>& answer) {
    if (answer || answer.error().code() == Code::kDaemonLost) return;
    stop_again_ = loop_.after(kStopAgain, [this, why, code] { stop(why, code); });
  });
}

// By pidfd: another process may get the pid once the engine has been reaped.
int EngineProcess::send_signal(int number) const {
  return syscall(SYS_pidfd_send_signal, pidfd_.get(), number, nullptr, 0) == 0 ? 0 : errno;
}

void EngineProcess::kill() {
  if (!ended_) end_if_no_process(send_signal(SIGKILL));
}

// A kept descriptor with a pidfd's name that is no pidfd: nobody could wait for its end. An engine behind it
// sees that its channel is closed.
void EngineProcess::end_if_no_process(int error) {
  if (error != EBADF || no_process_ != 0) return;
  MUSTER_LOG(kError, "supervisor", "engine {}: what was kept of it is no process; it is taken for ended",
             pid_);
  no_process_ = loop_.after(Nanos(0), [this] {
    no_process_ = 0;
    on_death();
  });
}

Status EngineProcess::receive_one() {
  auto packet = control::receive_packet(channel_, control::kOfEngines);
  if (!packet) return packet.error();
  try {
    hear(*std::move(packet));
  } catch (const Json::exception& error) {  // a field of a wrong type
    return failure(Code::kProtocol, "what it says is not well-formed: {}", error.what());
  }
  return {};
}

void EngineProcess::hear(Packet packet) {
  if (packet.kind == shm::MessageKind::kCommand) return options_.on_event(packet.body);
  const auto it = pending_.find(packet.serial);
  if (it == pending_.end()) return;
  const Answered answered = std::move(it->second);
  pending_.erase(it);
  answered(std::move(packet));
}

void EngineProcess::on_readable() {
  const Status received = receive_one();
  if (received.ok() || received.code() == Code::kPending) return;
  if (received.code() == Code::kNoResource) {  // this process lacks descriptors; the engine is not at fault
    MUSTER_LOG(kError, "supervisor", "engine {}: {}", pid_, received.message());
    return;
  }
  loop_.unwatch(channel_watch_);  // on_death follows, and reports the reason
  channel_watch_ = 0;
  if (received.code() == Code::kDaemonLost) return end_if_no_process(send_signal(0));
  MUSTER_LOG(kError, "supervisor", "engine {}: {}; it is ended", pid_, received.message());
  kill();
}

void EngineProcess::on_death() {
  // Its last messages still count, above all the reason for its end.
  while (channel_watch_ != 0 && receive_one().ok()) {
  }
  ended_ = true;
  loop_.unwatch(channel_watch_);
  loop_.unwatch(death_watch_);
  loop_.unwatch(stop_again_);
  loop_.unwatch(no_process_);
  const std::string how = reap(pidfd_);
  abandon(failure(Code::kDaemonLost, "the job's engine (process {}) is gone: {}", pid_, how));
  options_.on_end(how);  // may destroy this object
}

void EngineProcess::abandon(const Status& status) {
  for (auto pending = std::move(pending_); auto& [serial, answered] : pending) answered(fail(status));
}

}  // namespace muster::supervisor
