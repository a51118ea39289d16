#include "daemon/cli/ranks.hpp"

#include "api/base/utf8.hpp"
#include "daemon/cli/outcome.hpp"
#include "daemon/cli/private_limits.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace muster::cli {
namespace {

constexpr Nanos kKillAfter = std::chrono::seconds(5);  // from SIGTERM to SIGKILL
constexpr Nanos kReadAfter = std::chrono::seconds(5);  // for the reader, after the end of interrupted ranks
constexpr std::size_t kReadBytes = 65536;
constexpr std::size_t kPipeBytes = 65536;  // if the system does not say
constexpr std::size_t kNamedMax = 8;

double seconds(Nanos time) {
  return std::chrono::duration<double>(time).count();
}

std::string signal_name(int number) {
  const char* name = sigabbrev_np(number);
  return name == nullptr ? fmt::format("signal {}", number) : fmt::format("SIG{}", name);
}

}  // namespace

Ranks::Ranks(control::Loop& loop, Options options, Done done)
    : loop_(loop), options_(std::move(options)), done_(std::move(done)), buffer_(kReadBytes) {
  for (const std::size_t which : {std::size_t{0}, std::size_t{1}})
    outlets_[which] =
        std::make_unique<Outlet>(loop_, which == 0 ? STDOUT_FILENO : STDERR_FILENO,
                                 Outlet::Events{[this, which] { output_taken(which); },
                                                [this, which](int error) { output_broke(which, error); }});
}

Ranks::~Ranks() {
  for (const auto timer : timers_) loop_.unwatch(timer);
  for (Process& process : processes_) {
    loop_.unwatch(process.death);
    for (Stream& stream : process.streams) loop_.unwatch(stream.watch);
  }
}

Status Ranks::start() {
  MUSTER_RETURN_IF_ERROR(make_room(options_.environments.size(), nullptr));
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
  // Ranks have their own process groups, so a terminal would stop a rank that reads from it.
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
  stream.which = which;
  const bool progress = rank == 0 && isatty(which == 0 ? STDOUT_FILENO : STDERR_FILENO) != 0;
  stream.prefixer.emplace(fmt::format("[{}] ", rank),
                          progress ? CarriageReturn::kPassThrough : CarriageReturn::kShowLast);
  if (!outlets_[which]->full()) listen(stream);
}

void Ranks::listen(Stream& stream) {
  stream.watch = loop_.watch(stream.pipe.get(), [this, &stream] { on_output(stream); });
}

// If the reader is too slow, the ranks' pipes are not read until it catches up. They fill, and the ranks wait
// as they would for the reader itself.
void Ranks::on_output(Stream& stream) {
  if (!relay(stream)) return close_stream(stream);
  if (!outlets_[stream.which]->full()) return;
  for (Process& process : processes_) loop_.unwatch(std::exchange(process.streams[stream.which].watch, 0));
}

void Ranks::output_taken(std::size_t which) {
  for (Process& process : processes_) {
    if (outlets_[which]->full()) break;
    Stream& stream = process.streams[which];
    if (stream.pipe.valid() && stream.watch == 0) listen(stream);
  }
  finish_if_read();
}

// Passes on what one read returns. Returns its bytes; nullopt at the end.
std::optional<std::size_t> Ranks::relay(Stream& stream) {
  const ssize_t n = read(stream.pipe.get(), buffer_.data(), buffer_.size());
  if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)) return std::nullopt;
  const std::size_t bytes = n < 0 ? 0 : static_cast<std::size_t>(n);
  if (bytes > 0) put(stream.which, stream.prefixer->feed({buffer_.data(), bytes}));
  return bytes;
}

// Reads the last output of an ended rank, at most a pipe's capacity. A process that left the group may keep
// the pipe open and write for ever, so this does not wait for the end.
void Ranks::drain(Stream& stream) {
  if (!stream.pipe.valid()) return;
  const int capacity = fcntl(stream.pipe.get(), F_GETPIPE_SZ);
  const std::size_t most = capacity > 0 ? static_cast<std::size_t>(capacity) : kPipeBytes;
  pollfd entry{stream.pipe.get(), POLLIN, 0};
  for (std::size_t done = 0; done < most && poll(&entry, 1, 0) == 1;) {
    const auto bytes = relay(stream);
    if (!bytes) break;
    done += *bytes;
  }
}

void Ranks::close_stream(Stream& stream) {
  if (!stream.pipe.valid()) return;
  loop_.unwatch(std::exchange(stream.watch, 0));
  put(stream.which, stream.prefixer->finish());
  stream.pipe.reset();
}

void Ranks::on_death(std::size_t rank) {
  Process& process = processes_[rank];
  loop_.unwatch(std::exchange(process.death, 0));
  const End end = process.child->reap();
  --running_;
  for (Stream& stream : process.streams) {
    drain(stream);
    close_stream(stream);
  }
  if (!end.well()) on_failure(rank, end);
  if (end.well() && options_.elastic) first_failure_.reset();
  if (running_ == 0) return all_ended();
  if (options_.on_end) options_.on_end(rank, fmt::format("rank {} {}", rank, end.text()));
}

void Ranks::on_failure(std::size_t rank, const End& end) {
  const bool first = !first_failure_;
  if (first) first_failure_ = end;
  if (interrupted_ != 0) return;
  if (options_.elastic) {
    say(fmt::format("rank {} {}{}", rank, end.text(),
                    running_ == 0 ? "" : fmt::format("; {} go on", running_)));
  } else if (first) {
    say(fmt::format("rank {} {}", rank, end.text()));
    end_all_after(options_.grace, fmt::format("rank {}'s failure", rank));
  }
}

void Ranks::all_ended() {
  const bool by_user = interrupted_ != 0 && interrupted_ != SIGPIPE && !output_failed_;
  if (by_user)
    say(fmt::format("interrupted by {}; {} rank{} ended", signal_name(interrupted_), interrupted_count_,
                    interrupted_count_ == 1 ? "" : "s"));
  ended_ = true;
  if (interrupted_ != 0) timers_.push_back(loop_.after(kReadAfter, [this] { give_up_output(); }));
  finish_if_read();
}

void Ranks::give_up_output() {
  for (const auto& outlet : outlets_) outlet->give_up();
  finish_if_read();
}

void Ranks::finish_if_read() {
  const bool read = outlets_[0]->empty() && outlets_[1]->empty();
  if (!ended_ || !read || std::exchange(finished_, true)) return;
  const int code = output_failed_      ? kFailed
                   : interrupted_ != 0 ? 128 + interrupted_
                   : first_failure_    ? first_failure_->exit_code()
                                       : 0;
  // Posted, because a watch of this object is still on the stack.
  loop_.post([done = done_, code] { done(code); });
}

void Ranks::forward(int signal) {
  for (Process& process : processes_)
    if (process.child) process.child->signal(signal);
}

void Ranks::interrupt(int signal) {
  if (interrupted_ != 0) {
    forward(SIGKILL);
    return give_up_output();
  }
  interrupted_ = signal;
  interrupted_count_ = running_;
  if (ended_) return give_up_output();  // only the output's reader was waited for
  forward(signal);
  end_all_after(options_.grace, signal_name(signal));
}

void Ranks::end_all_after(Nanos delay, const std::string& cause) {
  if (std::exchange(ending_, true)) return;
  timers_.push_back(loop_.after(delay, [this, delay, cause] {
    if (running_ == 0) return;
    say(fmt::format("{} did not end within {:g} s of {}; sent SIGTERM", still_running(), seconds(delay),
                    cause));
    forward(SIGTERM);
    forward(SIGCONT);  // a stopped rank takes no other signal
    timers_.push_back(loop_.after(kKillAfter, [this] {
      if (running_ == 0) return;
      say(fmt::format("{} did not end within {:g} s of SIGTERM; killed", still_running(),
                      seconds(kKillAfter)));
      forward(SIGKILL);
    }));
  }));
}

// "rank 2", "ranks 0, 3", "ranks 0, 1, … and 4 more".
std::string Ranks::still_running() const {
  std::string names;
  std::size_t count = 0;
  for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
    const Process& process = processes_[rank];
    if (!process.child || process.child->reaped()) continue;
    if (++count <= kNamedMax) names += fmt::format("{}{}", count == 1 ? "" : ", ", rank);
  }
  if (count > kNamedMax) names += fmt::format(" and {} more", count - kNamedMax);
  return (count == 1 ? "rank " : "ranks ") + names;
}

void Ranks::put(std::size_t which, const std::string& text) {
  outlets_[which]->put(text);
}

void Ranks::say(const std::string& text) {
  put(1, printable(fmt::format("muster run: {}\n", text), Lines::kSeveral));
}

// If the reader has left, as `| head` does, the ranks end as they would without `muster run`.
void Ranks::output_broke(std::size_t which, int error) {
  if (error != EPIPE) {
    output_failed_ = true;
    say(fmt::format("standard {} cannot be written: {}", which == 0 ? "output" : "error",
                    std::strerror(error)));
  }
  if (interrupted_ == 0) interrupt(error == EPIPE ? SIGPIPE : SIGTERM);
}

}  // namespace muster::cli
