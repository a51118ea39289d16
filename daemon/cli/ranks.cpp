#include "daemon/cli/ranks.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include <poll.h>
#include <sys/resource.h>
#include <unistd.h>

namespace muster::cli {
namespace {

constexpr Nanos kKillAfter = std::chrono::seconds(5);  // from SIGTERM to SIGKILL
constexpr std::size_t kReadBytes = 65536;
constexpr std::size_t kDescriptorsPerRank = 3;
constexpr std::size_t kDescriptorsBeside = 64;

// Many ranks have many pipes.
void make_room(std::size_t ranks) {
  rlimit limit{};
  const std::size_t needed = ranks * kDescriptorsPerRank + kDescriptorsBeside;
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= needed) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);  // where it is refused, the pipe that fails says so
}

}  // namespace

Ranks::Ranks(control::Loop& loop, Options options, Done done)
    : loop_(loop), options_(std::move(options)), done_(std::move(done)), buffer_(kReadBytes) {}

Ranks::~Ranks() {
  for (const auto timer : timers_) loop_.unwatch(timer);
  for (Process& process : processes_) {
    loop_.unwatch(process.death);
    for (Stream& stream : process.streams) loop_.unwatch(stream.watch);
  }
}

Status Ranks::start() {
  make_room(options_.environments.size());
  processes_.resize(options_.environments.size());
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const Status started = start_rank(rank);
    if (started.ok()) continue;
    for (Process& process : processes_) {
      loop_.unwatch(std::exchange(process.death, 0));
      process.child.reset();
    }
    return started;
  }
  running_ = processes_.size();
  return {};
}

Status Ranks::start_rank(std::size_t rank) {
  ChildOptions child;
  child.arguments = options_.command;
  child.environment = options_.environments[rank];
  const bool piped = options_.prefix == Prefix::kRank;
  child.streams = piped ? Streams::kPiped : Streams::kInherited;
  // A terminal would stop a rank that reads from behind it, in its own process group.
  child.input = rank == 0 && isatty(STDIN_FILENO) == 0 ? Input::kInherited : Input::kNull;
  child.death_signal = SIGKILL;
  MUSTER_ASSIGN_OR_RETURN(Child started, Child::spawn(child));
  Process& process = processes_[rank];
  process.child = std::make_unique<Child>(std::move(started));
  process.death = loop_.watch(process.child->pidfd().get(), [this, rank] { on_death(rank); });
  if (piped) {
    open_stream(rank, 0, std::move(process.child->output()));
    open_stream(rank, 1, std::move(process.child->error()));
  }
  return {};
}

void Ranks::open_stream(std::size_t rank, std::size_t which, shm::Descriptor pipe) {
  Stream& stream = processes_[rank].streams[which];
  stream.pipe = std::move(pipe);
  stream.target = which == 0 ? STDOUT_FILENO : STDERR_FILENO;
  const bool progress = rank == 0 && isatty(stream.target) != 0;
  stream.prefixer.emplace(fmt::format("[{}] ", rank),
                          progress ? CarriageReturn::kPassThrough : CarriageReturn::kShowLast);
  stream.watch = loop_.watch(stream.pipe.get(), [this, &stream] { on_output(stream); });
}

void Ranks::on_output(Stream& stream) {
  if (!relay(stream)) close_stream(stream);
}

// One read's worth; false at the end.
bool Ranks::relay(Stream& stream) {
  const ssize_t n = read(stream.pipe.get(), buffer_.data(), buffer_.size());
  if (n > 0) put(stream.target, stream.prefixer->feed({buffer_.data(), static_cast<std::size_t>(n)}));
  return n > 0 || (n < 0 && (errno == EAGAIN || errno == EINTR));
}

void Ranks::close_stream(Stream& stream) {
  if (!stream.pipe.valid()) return;
  loop_.unwatch(std::exchange(stream.watch, 0));
  put(stream.target, stream.prefixer->finish());
  stream.pipe.reset();
}

void Ranks::on_death(std::size_t rank) {
  Process& process = processes_[rank];
  loop_.unwatch(std::exchange(process.death, 0));
  const End end = process.child->reap();
  for (Stream& stream : process.streams) {
    // What it wrote last is in the pipe. A process that left its group may hold the pipe open: it is not
    // waited for.
    pollfd entry{stream.pipe.get(), POLLIN, 0};
    while (stream.pipe.valid() && poll(&entry, 1, 0) == 1 && relay(stream)) {
    }
    close_stream(stream);
  }
  if (!end.well() && !first_failure_) {
    first_failure_ = end;
    if (interrupted_ == 0) {
      std::fprintf(stderr, "muster run: rank %zu %s\n", rank, end.text().c_str());
      end_all_after(options_.grace);
    }
  }
  if (--running_ > 0) return;
  // Later, because a watch of this object is still on the stack.
  const int code = interrupted_ != 0 ? 128 + interrupted_ : first_failure_ ? first_failure_->exit_code() : 0;
  loop_.post([done = done_, code] { done(code); });
}

void Ranks::forward(int signal) {
  for (Process& process : processes_)
    if (process.child) process.child->signal(signal);
}

void Ranks::interrupt(int signal) {
  if (interrupted_ != 0) return forward(SIGKILL);
  interrupted_ = signal;
  forward(signal);
  end_all_after(options_.grace);
}

void Ranks::end_all_after(Nanos delay) {
  if (std::exchange(ending_, true)) return;
  timers_.push_back(loop_.after(delay, [this] {
    forward(SIGTERM);
    timers_.push_back(loop_.after(kKillAfter, [this] { forward(SIGKILL); }));
  }));
}

void Ranks::put(int target, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size() && !output_broken_) {
    const ssize_t n = write(target, text.data() + done, text.size() - done);
    if (n >= 0) {
      done += static_cast<std::size_t>(n);
    } else if (errno == EAGAIN) {
      pollfd entry{target, POLLOUT, 0};
      poll(&entry, 1, -1);
    } else if (errno != EINTR) {
      output_broken_ = true;  // the reader has left, as `| head` does: the ranks end as they would alone
      interrupt(SIGPIPE);
    }
  }
}

}  // namespace muster::cli
