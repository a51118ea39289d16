#include "daemon/cli/run/ranks.hpp"

#include "daemon/cli/outcome.hpp"
#include "daemon/cli/run/private_limits.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace muster::cli {
namespace {

constexpr Nanos kKillAfter = std::chrono::seconds(5);     // from SIGTERM to SIGKILL
constexpr Nanos kLauncherTime = std::chrono::seconds(3);  // for a part that is to kill its ranks
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

std::string count_text(std::size_t count, const char* what) {
  return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

}  // namespace

std::string Ranks::Member::title() const {
  return host.empty() ? fmt::format("rank {}", rank) : "host " + host;
}

Ranks::Ranks(control::Loop& loop, Options options, Done done)
    : loop_(loop),
      options_(std::move(options)),
      done_(std::move(done)),
      buffer_(kReadBytes),
      output_(loop, {[this](std::size_t which) { output_taken(which); },
                     [this](std::size_t which, int error) { output_broke(which, error); }}) {}

Ranks::~Ranks() {
  for (const auto timer : timers_) loop_.unwatch(timer);
  for (Process& process : processes_) {
    loop_.unwatch(process.death);
    for (Stream& stream : process.streams) loop_.unwatch(stream.watch);
  }
}

Status Ranks::start() {
  const std::size_t count = options_.members.size();
  started_ = clock_.now();
  // A part has one pipe more than a rank.
  MUSTER_RETURN_IF_ERROR(make_room(options_.kind == Kind::kParts ? count + (count + 2) / 3 : count, nullptr));
  processes_.resize(count);
  for (std::size_t index = 0; index < count; ++index) {
    const Status started = start_member(index);
    if (started.ok()) continue;
    for (Process& process : processes_) {
      loop_.unwatch(std::exchange(process.death, 0));
      process.child.reset();
    }
    if (options_.kind == Kind::kRanks) return started;
    return failure(started.code(), "{}: {}", options_.members[index].title(), started.message());
  }
  running_ = count;
  return {};
}

Status Ranks::start_member(std::size_t index) {
  const Member& member = options_.members[index];
  const bool is_rank = options_.kind == Kind::kRanks;
  Child::Options child;
  child.arguments = is_rank ? options_.command : member.command;
  child.environment = member.environment;
  const bool piped = options_.prefix != Prefix::kNone;
  child.streams = piped ? Child::Streams::kPiped : Child::Streams::kInherited;
  // Ranks have their own process groups, so a terminal would stop a rank that reads from it.
  const bool reads = index == 0 && !options_.is_part && isatty(STDIN_FILENO) == 0;
  child.input = !is_rank ? Child::Input::kPiped : reads ? Child::Input::kInherited : Child::Input::kNull;
  // A part can end its ranks itself, once its input has ended.
  child.death_signal = is_rank ? SIGKILL : SIGTERM;
  MUSTER_ASSIGN_OR_RETURN(Child started, Child::spawn(child));
  Process& process = processes_[index];
  process.child = std::make_unique<Child>(std::move(started));
  process.death = loop_.watch(process.child->pidfd().get(), [this, index] { on_death(index); });
  if (piped) {
    open_stream(index, 0, std::move(process.child->output()));
    open_stream(index, 1, std::move(process.child->error()));
  }
  return {};
}

void Ranks::open_stream(std::size_t index, std::size_t which, shm::Descriptor pipe) {
  Stream& stream = processes_[index].streams[which];
  stream.index = index;
  stream.pipe = std::move(pipe);
  stream.which = which;
  stream.gathered = which == 1 && options_.prefix == Prefix::kRank && options_.kind == Kind::kRanks;
  const bool prefixed = options_.prefix == Prefix::kRank;
  const bool progress = prefixed && index == 0 && isatty(which == 0 ? STDOUT_FILENO : STDERR_FILENO) != 0;
  stream.prefixer.emplace(
      prefixed && !stream.gathered ? fmt::format("[{}] ", options_.members[index].rank) : "",
      progress ? LinePrefixer::CarriageReturn::kPassThrough : LinePrefixer::CarriageReturn::kShowLast);
  if (!output_.full(which)) listen(stream);
}

void Ranks::listen(Stream& stream) {
  stream.watch = loop_.watch(stream.pipe.get(), [this, &stream] { on_output(stream); });
}

// If the reader is too slow, the ranks' pipes are not read until it catches up. They fill, and the ranks wait
// as they would for the reader itself.
void Ranks::on_output(Stream& stream) {
  if (!relay(stream)) return close_stream(stream);
  if (!output_.full(stream.which)) return;
  for (Process& process : processes_) loop_.unwatch(std::exchange(process.streams[stream.which].watch, 0));
}

void Ranks::output_taken(std::size_t which) {
  for (Process& process : processes_) {
    if (output_.full(which)) break;
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
  if (bytes == 0) return bytes;
  std::string lines = stream.prefixer->feed({buffer_.data(), bytes});
  const bool may_tell = options_.kind == Kind::kParts && stream.which == 1;
  const auto failure = may_tell ? take_failure(&lines) : std::nullopt;
  print(stream, lines);
  if (failure) on_told(stream.index, *failure);
  return bytes;
}

// Reads the last output of an ended rank, at most a pipe's capacity. A process that left the group may keep
// the pipe open and write for ever, so this does not wait for the end.
void Ranks::close_stream(Stream& stream) {
  if (!stream.pipe.valid()) return;
  const int capacity = fcntl(stream.pipe.get(), F_GETPIPE_SZ);
  const std::size_t most = capacity > 0 ? static_cast<std::size_t>(capacity) : kPipeBytes;
  pollfd entry{stream.pipe.get(), POLLIN, 0};
  for (std::size_t done = 0; done < most && poll(&entry, 1, 0) == 1;) {
    const auto bytes = relay(stream);
    if (!bytes) break;
    done += *bytes;
  }
  loop_.unwatch(std::exchange(stream.watch, 0));
  print(stream, stream.prefixer->finish());
  stream.pipe.reset();
}

void Ranks::print(const Stream& stream, const std::string& lines) {
  if (!stream.gathered) return output_.put(stream.which, lines);
  std::string last_words = output_.hold(options_.members[stream.index].rank, lines);
  if (!last_words.empty()) processes_[stream.index].last_words = std::move(last_words);
}

void Ranks::on_death(std::size_t index) {
  Process& process = processes_[index];
  loop_.unwatch(std::exchange(process.death, 0));
  const Child::End end = process.child->reap();
  --running_;
  for (Stream& stream : process.streams) close_stream(stream);
  if (!end.well()) on_failure(index, end);
  if (end.well() && options_.elastic) {
    first_failure_.reset();
    output_.set_failed(false);
  }
  if (running_ == 0) return all_ended();
  const Member& member = options_.members[index];
  if (options_.on_end) options_.on_end(member.rank, fmt::format("{} {}", member.title(), end.text()));
}

void Ranks::on_failure(std::size_t index, const Child::End& end) {
  const bool first = !first_failure_;
  const Member& member = options_.members[index];
  if (first) note_first(end, member.title(), processes_[index].last_words);
  if (interrupted_ != 0 || processes_[index].told) return;
  const std::string who =
      member.host.empty() ? member.title() : fmt::format("{}: `{}`", member.title(), member.launcher);
  if (options_.elastic) {
    say(fmt::format("{} {}{}", who, end.text(), running_ == 0 ? "" : fmt::format("; {} go on", running_)));
  } else if (first) {
    say(fmt::format("{} {}", who, end.text()));
    if (options_.is_part) output_.put(1, failure_line({end.exit_code(), member.rank}));
    end_all_after(options_.grace, member.title() + "'s failure");
  }
}

// The part itself has reported the failure.
void Ranks::on_told(std::size_t index, const ToldFailure& failure) {
  processes_[index].told = true;
  if (!first_failure_)
    note_first({.code = failure.code},
               fmt::format("rank {} on {}", failure.rank, options_.members[index].title()), {});
  if (interrupted_ == 0) end_all_after(options_.grace, fmt::format("rank {}'s failure", failure.rank));
}

void Ranks::note_first(Child::End end, const std::string& who, const std::string& last_words) {
  first_failure_ = FirstFailure{end, who, clock_.now() - started_, last_words};
  output_.set_failed(true);
}

void Ranks::all_ended() {
  output_.release();
  // The last line of a run that failed: the cause, behind all its consequences.
  const bool is_told = options_.elastic || options_.is_part || processes_.size() < 2;
  if (first_failure_ && interrupted_ == 0 && !is_told)
    say(fmt::format(
        "failed first: {}, {:.1f} s after the start, {}{}{}", first_failure_->who,
        seconds(first_failure_->after), first_failure_->end.text(),
        first_failure_->last_words.empty() ? "" : "; its last words: ", first_failure_->last_words));
  const bool by_user = interrupted_ != 0 && interrupted_ != SIGPIPE && !output_failed_;
  if (by_user && !options_.is_part)
    say(fmt::format("interrupted by {}; {} ended", signal_name(interrupted_),
                    options_.kind == Kind::kRanks
                        ? count_text(interrupted_count_, "rank")
                        : fmt::format("the ranks on {}", count_text(interrupted_count_, "host"))));
  ended_ = true;
  if (interrupted_ != 0) timers_.push_back(loop_.after(kReadAfter, [this] { give_up_output(); }));
  finish_if_read();
}

void Ranks::give_up_output() {
  output_.give_up();
  finish_if_read();
}

void Ranks::finish_if_read() {
  if (!ended_ || !output_.empty() || std::exchange(finished_, true)) return;
  const int code = output_failed_      ? kFailed
                   : interrupted_ != 0 ? 128 + interrupted_
                   : first_failure_    ? first_failure_->end.exit_code()
                                       : 0;
  // Posted, because a watch of this object is still on the stack.
  loop_.post([done = done_, code] { done(code); });
}

// A launcher need not pass signals on, as ssh does not: it would end, and its part would be left alone.
void Ranks::forward(int signal) {
  for (Process& process : processes_) {
    if (!process.child || process.child->reaped()) continue;
    Child& child = *process.child;
    if (!child.input().valid()) {
      child.signal(signal);
      continue;
    }
    const std::string line = signal_line(signal);
    // A launcher that takes nothing is killed in the end.
    static_cast<void>(!write(child.input().get(), line.data(), line.size()));
    if (signal == SIGKILL) timers_.push_back(loop_.after(kLauncherTime, [&child] { child.signal(SIGKILL); }));
  }
}

void Ranks::interrupt(int signal) {
  if (interrupted_ != 0) return kill();
  interrupted_ = signal;
  interrupted_count_ = running_;
  if (ended_) return give_up_output();  // only the output's reader was waited for
  forward(signal);
  end_all_after(options_.grace, signal_name(signal));
}

void Ranks::kill() {
  forward(SIGKILL);
  give_up_output();
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

// "rank 2", "ranks 0, 3", "ranks 0, 1, … and 4 more"; "hosts node01, node02".
std::string Ranks::still_running() const {
  std::string names;
  std::size_t count = 0;
  for (std::size_t index = 0; index < processes_.size(); ++index) {
    const Process& process = processes_[index];
    if (!process.child || process.child->reaped() || ++count > kNamedMax) continue;
    const Member& member = options_.members[index];
    if (count > 1) names += ", ";
    names += member.host.empty() ? fmt::format("{}", member.rank) : member.host;
  }
  if (count > kNamedMax) names += fmt::format(" and {} more", count - kNamedMax);
  const char* const what = options_.kind == Kind::kRanks ? "rank" : "host";
  return fmt::format("{}{} {}", what, count == 1 ? "" : "s", names);
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
