#include "tests/bench/program.hpp"

#include "api/shm/descriptor.hpp"
#include "tests/bench/descendants.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

extern char** environ;

namespace muster::bench {
namespace {

constexpr Nanos kEndTime = std::chrono::seconds(5);  // from the first signal to the second

std::atomic<bool> told{false};
static_assert(std::atomic<bool>::is_always_lock_free, "set by a signal handler");

// Until the other end is closed, the time is over, or a signal has come.
bool read_all(int descriptor, Instant end, std::string& text) {
  const SteadyClock clock;
  std::array<char, 4096> chunk{};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(end - clock.now()).count();
    if (left <= 0 || told) return false;
    pollfd entry{descriptor, POLLIN, 0};
    if (poll(&entry, 1, static_cast<int>(std::min<std::int64_t>(left, 60'000))) <= 0) continue;
    const ssize_t got = read(descriptor, chunk.data(), chunk.size());
    if (got == 0) return true;
    if (got > 0) text.append(chunk.data(), static_cast<std::size_t>(got));
    if (got < 0 && errno != EINTR) return true;
  }
}

Result<pid_t> spawn(const std::vector<std::string>& arguments, int output) {
  std::vector<char*> words;
  for (const std::string& argument : arguments) words.push_back(const_cast<char*>(argument.c_str()));
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t pid = 0;
  const int error = posix_spawnp(&pid, words[0], &actions, nullptr, words.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (error != 0)
    return fail(Code::kNotFound, "{} cannot be started: {}", arguments[0], std::strerror(error));
  return pid;
}

// Launchers put their ranks into groups of their own, and a rank may spin for ever: only their descent tells.
void end_descendants() {
  for (std::vector<int> left = descendants_of(getpid()); !left.empty(); left = descendants_of(getpid())) {
    for (const int pid : left) kill(pid, SIGKILL);
    while (waitpid(-1, nullptr, 0) > 0) {
    }
  }
}

// Asks it to end, so that it can end what it started; then insists.
void end(pid_t pid) {
  const SteadyClock clock;
  kill(pid, SIGTERM);
  for (const Instant last = clock.now() + kEndTime; clock.now() < last;) {
    if (waitpid(pid, nullptr, WNOHANG) == pid) return;
    poll(nullptr, 0, 10);
  }
}

}  // namespace

void take_charge() {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  struct sigaction action {};
  action.sa_handler = [](int) { told = true; };  // without SA_RESTART: what waits looks again
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool told_to_end() {
  return told;
}

Output output_of(const std::vector<std::string>& arguments, Nanos limit) {
  std::array<int, 2> ends{};
  if (pipe2(ends.data(), O_CLOEXEC) != 0)
    return {{}, failure(Code::kNoResource, "no pipe to {}: {}", arguments[0], std::strerror(errno))};
  const shm::Descriptor reading(ends[0]);
  shm::Descriptor writing(ends[1]);
  const auto pid = spawn(arguments, writing.get());
  if (!pid) return {{}, pid.error()};
  writing.reset();
  Output output;
  if (!read_all(reading.get(), SteadyClock().now() + limit, output.text)) {
    end(*pid);
    end_descendants();
    output.status = told ? failure(Code::kAborted, "{} was ended by a signal", arguments[0])
                         : failure(Code::kTimeout, "{} ran for longer than {} s and was ended", arguments[0],
                                   std::chrono::duration_cast<std::chrono::seconds>(limit).count());
    return output;
  }
  int state = 0;
  while (waitpid(*pid, &state, 0) < 0 && errno == EINTR) {
  }
  if (!WIFEXITED(state) || WEXITSTATUS(state) != 0) end_descendants();
  if (WIFSIGNALED(state)) {
    output.status = failure(Code::kInternal, "{} was killed by signal {}", arguments[0], WTERMSIG(state));
  } else if (WEXITSTATUS(state) != 0) {
    output.status = failure(Code::kInternal, "{} ended with code {}", arguments[0], WEXITSTATUS(state));
  }
  return output;
}

}  // namespace muster::bench
