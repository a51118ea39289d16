#include "daemon/supervisor/takeover/program_check.hpp"

#include "api/base/system_call.hpp"
#include "daemon/supervisor/base/child_pidfd.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

constexpr int kStateDescriptor = 3;

// In the child, after fork: async-signal-safe calls only. All descriptors are above 3.
[[noreturn]] void become(int program, char* const* arguments, int state, int output) {
  setpgid(0, 0);
  dup2(output, STDOUT_FILENO);
  dup2(output, STDERR_FILENO);
  dup2(state, kStateDescriptor);
  // musterd blocks these signals from its start on. Block them until then too: a signal sent to every musterd
  // would end this process.
  sigset_t held;
  sigemptyset(&held);
  for (const int number : {SIGUSR1, SIGUSR2, SIGALRM}) sigaddset(&held, number);
  sigprocmask(SIG_SETMASK, &held, nullptr);
  TrustedProgram::execute(program, arguments, environ);
  _exit(127);
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

// The texts before and after the reader's version.
std::string answer_head(const std::string& nonce) {
  return fmt::format("{}: this program reads state of version ", nonce);
}
std::string answer_tail(std::uint32_t state, std::uint32_t protocol) {
  return fmt::format(" and speaks messages of version {}, and this state is of version {}", protocol, state);
}

bool is_answer(std::string_view line, const std::string& head, const std::string& tail) {
  if (line.size() <= head.size() + tail.size() || !line.starts_with(head) || !line.ends_with(tail))
    return false;
  const auto digits = line.substr(head.size(), line.size() - head.size() - tail.size());
  return digits.find_first_not_of("0123456789") == std::string_view::npos;
}

}  // namespace

std::string check_answer(const std::string& nonce, std::uint32_t reader, std::uint32_t state,
                         std::uint32_t protocol) {
  return fmt::format("{}{}{}", answer_head(nonce), reader, answer_tail(state, protocol));
}

bool holds_check_answer(std::string_view words, const std::string& nonce, std::uint32_t state,
                        std::uint32_t protocol) {
  const std::string head = answer_head(nonce);
  const std::string tail = answer_tail(state, protocol);
  while (!words.empty()) {
    const std::size_t end = std::min(words.find('\n'), words.size());
    if (is_answer(words.substr(0, end), head, tail)) return true;
    words.remove_prefix(std::min(end + 1, words.size()));
  }
  return false;
}

Result<std::unique_ptr<ProgramCheck>> ProgramCheck::start(control::Loop& loop, const TrustedProgram& program,
                                                          const Question& question,
                                                          const shm::Descriptor& state, Done done) {
  if (question.nonce.empty())
    return fail(Code::kNoResource, "no random number can be had to ask {} with; try again", program.path());
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    return fail(Code::kNoResource, "{}", refused_call("pipe", errno, kRaiseOpenFiles));
  shm::Descriptor reading(ends[0]);
  const shm::Descriptor writing(ends[1]);
  const shm::Descriptor high_state(fcntl(state.get(), F_DUPFD_CLOEXEC, kStateDescriptor + 1));
  const shm::Descriptor high_output(fcntl(writing.get(), F_DUPFD_CLOEXEC, kStateDescriptor + 1));
  const shm::Descriptor high_program = program.copy_above(kStateDescriptor + 1);
  if (!high_state.valid() || !high_output.valid() || !high_program.valid())
    return fail(Code::kNoResource, "{}", refused_call("dup", errno, kRaiseOpenFiles));
  std::vector<std::string> texts = question.arguments;
  texts.insert(texts.end(), {"--check-state", std::to_string(kStateDescriptor), "--check-nonce",
                             question.nonce, "--check-directory", question.directory});
  std::vector<char*> list;
  for (std::string& text : texts) list.push_back(text.data());
  list.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return fail(Code::kNoResource, "{}", refused_call("fork", errno, kRaiseProcesses));
  if (pid == 0) become(high_program.get(), list.data(), high_state.get(), high_output.get());
  MUSTER_ASSIGN_OR_RETURN(shm::Descriptor pidfd, pidfd_of_child(pid));
  return std::unique_ptr<ProgramCheck>(new ProgramCheck(loop, program.path(), question, pid, std::move(pidfd),
                                                        std::move(reading), std::move(done)));
}

ProgramCheck::ProgramCheck(control::Loop& loop, std::string program, Question question, pid_t pid,
                           shm::Descriptor pidfd, shm::Descriptor words, Done done)
    : loop_(loop),
      program_(std::move(program)),
      question_(std::move(question)),
      pid_(pid),
      pidfd_(std::move(pidfd)),
      output_(std::move(words)),
      done_(std::move(done)) {
  output_watch_ = loop_.watch(output_.get(), [this] { read_words(); });
  death_watch_ = loop_.watch(pidfd_.get(), [this] { on_end(); });
  timer_ = loop_.after(kTime, [this] {
    timer_ = 0;
    finish(failure(Code::kTimeout, "{} --check-state does not come to an end; is it a musterd?", program_));
  });
}

ProgramCheck::~ProgramCheck() {
  for (const auto watch : {output_watch_, death_watch_, timer_}) loop_.unwatch(watch);
  if (pid_ == 0) return;
  ::kill(-pid_, SIGKILL);
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void ProgramCheck::read_words() {
  std::array<char, 4096> buffer;
  const ssize_t n = read(output_.get(), buffer.data(), buffer.size());
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return loop_.unwatch(std::exchange(output_watch_, 0));
  const std::size_t room = kWordsMax - std::min(kWordsMax, words_.size());
  words_.append(buffer.data(), std::min(static_cast<std::size_t>(n), room));
}

void ProgramCheck::on_end() {
  while (output_watch_ != 0 && words_.size() < kWordsMax) {
    const std::size_t before = words_.size();
    read_words();
    if (words_.size() == before) break;
  }
  int status = 0;
  waitpid(pid_, &status, 0);
  pid_ = 0;
  const bool well = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  if (well && holds_check_answer(words_, question_.nonce, question_.state_version, question_.protocol))
    return finish({});
  const std::string words = trimmed(words_);
  if (well)
    return finish(failure(Code::kVersion,
                          "{} does not take over: it does not say that it reads this state and speaks "
                          "messages of version {}, so it is no musterd that could; it says '{}'",
                          program_, question_.protocol, words));
  finish(failure(Code::kVersion, "{} does not take over: {}", program_,
                 !words.empty()        ? words
                 : WIFSIGNALED(status) ? fmt::format("it was killed by signal {}", WTERMSIG(status))
                                       : fmt::format("it exited with code {}", WEXITSTATUS(status))));
}

void ProgramCheck::finish(const Status& status) {
  const Done done = std::move(done_);
  for (auto* watch : {&output_watch_, &death_watch_, &timer_}) loop_.unwatch(std::exchange(*watch, 0));
  done(status);
}

}  // namespace muster::supervisor
