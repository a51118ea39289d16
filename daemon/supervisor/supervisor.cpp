#include "daemon/supervisor/supervisor.hpp"

#include "api/base/log.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

constexpr Nanos kWatchdogPeriod = std::chrono::seconds(1);

shm::Descriptor open_reserve() {
  return shm::Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

Result<std::unique_ptr<Supervisor>> Supervisor::open(Options options, const Clock& clock) {
  shm::Listener::Options listener_options;
  listener_options.mode = static_cast<mode_t>(options.socket_mode);
  MUSTER_ASSIGN_OR_RETURN(shm::Listener listener, shm::Listener::open(options.socket_path, listener_options));
  if (options.socket_gid &&
      chown(options.socket_path.c_str(), static_cast<uid_t>(-1), *options.socket_gid) != 0)
    return fail(Code::kDenied,
                "{} cannot be given to group {} (node.group): {}; start as root or as its member",
                options.socket_path, *options.socket_gid, std::strerror(errno));
  std::unique_ptr<Supervisor> supervisor(new Supervisor(std::move(options), clock, std::move(listener)));
  for (const control::JobSpec& job : supervisor->options_.jobs) {
    const std::string name = job.name;
    const auto tell = [name](const Status& status) {
      if (!status.ok()) MUSTER_LOG(kError, "supervisor", "job {}: {}", name, status.text());
    };
    MUSTER_RETURN_IF_ERROR(supervisor->start_job(job, getgid(), tell));
  }
  return supervisor;
}

Supervisor::Supervisor(Options options, const Clock& clock, shm::Listener listener)
    : options_(std::move(options)),
      clock_(clock),
      listener_(std::move(listener)),
      reserve_(open_reserve()),
      book_(options_.jobs_max),
      buffer_(shm::kMessageBytesMax),
      started_(clock.now()) {}

Supervisor::~Supervisor() = default;

void Supervisor::run() {
  listen_if_room();
  loop_.on_signal(SIGTERM, [this] { drain(!draining_); });
  loop_.on_signal(SIGINT, [this] { drain(!draining_); });
  const std::function<void()> beat = [this, &beat] {
    if (options_.notify) options_.notify("WATCHDOG=1");
    loop_.after(kWatchdogPeriod, beat);
  };
  beat();
  if (options_.notify) options_.notify("READY=1");
  publish_status();
  MUSTER_LOG(kInfo, "supervisor", "listening at {}", listener_.path());
  loop_.run();
  running_.clear();
}

void Supervisor::request_shutdown() {
  loop_.post([this] { drain(!draining_); });
}

void Supervisor::publish_status() {
  if (!options_.notify) return;
  options_.notify(fmt::format("STATUS={} sessions, {} jobs{}", sessions(), book_.jobs().size(),
                              draining_ ? ", draining" : ""));
}

std::uint32_t Supervisor::sessions() const {
  std::uint32_t count = 0;
  for (const auto& [name, job] : book_.jobs()) count += job.held();
  return count;
}

}  // namespace muster::supervisor
