#include "daemon/supervisor/takeover/replacement.hpp"

#include "api/base/system_call.hpp"

#include <cerrno>
#include <csignal>
#include <cstring>

#include <fcntl.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace muster::supervisor {
namespace {

constexpr int kFirst = 3;  // sd_listen_fds(3)

sigset_t signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGUSR2, SIGALRM}) sigaddset(&set, number);
  return set;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

std::vector<std::string> environment_with(const std::map<std::string, int>& kept) {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry)
    if (std::strncmp(*entry, "LISTEN_", 7) != 0) environment.emplace_back(*entry);
  std::string names;
  // By position: the first name may be empty, if a manager gave a socket without a name.
  for (auto it = kept.begin(); it != kept.end(); ++it) names += (it == kept.begin() ? "" : ":") + it->first;
  environment.push_back(fmt::format("LISTEN_PID={}", getpid()));
  environment.push_back(fmt::format("LISTEN_FDS={}", kept.size()));
  environment.push_back("LISTEN_FDNAMES=" + names);
  return environment;
}

// Moves kept descriptors to 3, 4, …, and back if the other program does not start. The event loop must not
// run meanwhile: it knows descriptors by number.
//
// Owns    a second descriptor for each that moves.
// Thread  one.
// Bound   two for each kept descriptor.
// Fails   prepare: kNoResource, with nothing changed.
class Shuffle {
 public:
  Status prepare(const std::map<std::string, int>& kept) {
    const int beyond = kFirst + static_cast<int>(kept.size());
    for (const auto& [name, fd] : kept) {
      const int number = kFirst + static_cast<int>(sources_.size());
      sources_.emplace_back(fcntl(fd, F_DUPFD_CLOEXEC, beyond));
      const bool taken = fcntl(number, F_GETFD) >= 0;
      former_.emplace_back(taken ? fcntl(number, F_DUPFD_CLOEXEC, beyond) : -1);
      if (!sources_.back().valid() || (taken && !former_.back().valid()))
        return failure(Code::kNoResource, "{}",
                       refused_call(fmt::format("handing descriptor {} on", name), errno, kRaiseOpenFiles));
    }
    return {};
  }
  void go() const {
    for (std::size_t i = 0; i < sources_.size(); ++i) dup2(sources_[i].get(), kFirst + static_cast<int>(i));
  }
  void back() const {
    for (std::size_t i = 0; i < former_.size(); ++i) {
      const int number = kFirst + static_cast<int>(i);
      if (former_[i].valid()) {
        dup3(former_[i].get(), number, O_CLOEXEC);
      } else {
        ::close(number);
      }
    }
  }

 private:
  std::vector<shm::Descriptor> sources_;
  std::vector<shm::Descriptor> former_;
};

}  // namespace

void hold_signals() {
  const sigset_t set = signals();
  sigprocmask(SIG_BLOCK, &set, nullptr);
}

Result<SignalQueue> SignalQueue::open() {
  const sigset_t set = signals();
  shm::Descriptor descriptor(signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!descriptor.valid())
    return fail(Code::kNoResource, "{}", refused_call("signalfd", errno, kRaiseOpenFiles));
  return SignalQueue(std::move(descriptor));
}

int SignalQueue::take() const {
  signalfd_siginfo signal{};
  if (::read(descriptor_.get(), &signal, sizeof signal) != sizeof signal) return 0;
  return static_cast<int>(signal.ssi_signo);
}

Status replace_program(const TrustedProgram& program, const std::vector<std::string>& arguments,
                       const std::map<std::string, int>& kept) {
  std::vector<std::string> texts = arguments;
  std::vector<std::string> environment = environment_with(kept);
  const std::vector<char*> argument_list = pointers(texts);
  const std::vector<char*> environment_list = pointers(environment);
  Shuffle shuffle;
  MUSTER_RETURN_IF_ERROR(shuffle.prepare(kept));
  const shm::Descriptor file = program.copy_above(kFirst + static_cast<int>(kept.size()));
  if (!file.valid()) return failure(Code::kNoResource, "{}", refused_call("dup", errno, kRaiseOpenFiles));
  shuffle.go();
  const int error = TrustedProgram::execute(file.get(), argument_list.data(), environment_list.data());
  shuffle.back();
  return failure(error == EACCES ? Code::kDenied : Code::kNoResource,
                 "{} cannot be run: {}; this daemon goes on", program.path(), std::strerror(error));
}

}  // namespace muster::supervisor
