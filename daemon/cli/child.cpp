#include "daemon/cli/child.hpp"

#include "api/base/system_call.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::cli {
namespace {

struct Pipe {
  shm::Descriptor read;
  shm::Descriptor write;
};

Result<Pipe> open_pipe(int flags) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    return fail(Code::kNoResource, "{}", refused_call("pipe", errno, kRaiseOpenFiles));
  Pipe pipe{shm::Descriptor(ends[0]), shm::Descriptor(ends[1])};
  fcntl(pipe.read.get(), F_SETFL, flags);
  return pipe;
}

// Everything that the child needs after fork, where it must not allocate.
struct ChildPlan {
  std::vector<char*> arguments;
  std::vector<char*> environment;
  int input_end = -1;
  int output = -1;
  int error = -1;
  int report = -1;
  int death_signal = 0;
  pid_t parent = 0;
  Child::Input input = Child::Input::kNull;
};

[[noreturn]] void give_up(int report) {
  const int error = errno;
  static_cast<void>(!write(report, &error, sizeof error));
  _exit(127);
}

// In the child: async-signal-safe calls only.
[[noreturn]] void become(const ChildPlan& plan) {
  setpgid(0, 0);
  if (plan.death_signal != 0) {
    prctl(PR_SET_PDEATHSIG, plan.death_signal);
    if (getppid() != plan.parent) _exit(127);  // the parent has ended meanwhile
  }
  struct sigaction standard {};
  standard.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number)
    if (!stays_ignored(number)) sigaction(number, &standard, nullptr);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  if (plan.input == Child::Input::kNull) {
    const int null = open("/dev/null", O_RDONLY);
    if (null < 0 || dup2(null, STDIN_FILENO) < 0) give_up(plan.report);
    if (null != STDIN_FILENO) close(null);
  }
  if (plan.input_end >= 0 && dup2(plan.input_end, STDIN_FILENO) < 0) give_up(plan.report);
  if (plan.output >= 0 && dup2(plan.output, STDOUT_FILENO) < 0) give_up(plan.report);
  if (plan.error >= 0 && dup2(plan.error, STDERR_FILENO) < 0) give_up(plan.report);
  execvpe(plan.arguments[0], plan.arguments.data(), plan.environment.data());
  give_up(plan.report);
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const std::string& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

// The path at which execvpe() finds a program; empty if it finds none.
std::string found(const std::string& program) {
  if (program.find('/') != std::string::npos) return access(program.c_str(), F_OK) == 0 ? program : "";
  const char* variable = std::getenv("PATH");
  const std::string folders = variable == nullptr ? "/bin:/usr/bin" : variable;
  for (std::size_t at = 0; at <= folders.size();) {
    const std::size_t end = std::min(folders.find(':', at), folders.size());
    const std::string path = (end == at ? "." : folders.substr(at, end - at)) + "/" + program;
    if (access(path.c_str(), F_OK) == 0) return path;
    at = end + 1;
  }
  return "";
}

// The path after "#!" in a script, up to the first space; empty for other programs.
std::string interpreter_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string line(256, '\0');
  file.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<std::size_t>(file.gcount()));
  if (!line.starts_with("#!")) return "";
  const std::size_t begin = line.find_first_not_of(" \t", 2);
  if (begin == std::string::npos) return "";
  const std::size_t end = line.find_first_of(" \t\r\n", begin);
  return line.substr(begin, end == std::string::npos ? end : end - begin);
}

Status refusal(const std::string& program, int error) {
  if (program.empty()) return failure(Code::kNotFound, "the name of the program is empty");
  const std::string path = found(program);
  if (error == ENOENT && path.empty())
    return failure(Code::kNotFound, "{} cannot be run: there is no such program", program);
  if (error == ENOENT) {
    const std::string interpreter = interpreter_of(path);
    return failure(Code::kDenied, "{} cannot be run: the file is there, but its interpreter{} is not", path,
                   interpreter.empty() ? " (the dynamic loader)" : " " + interpreter);
  }
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored))
    return failure(Code::kDenied, "{} cannot be run: it is a directory", path);
  if (error == EACCES && !path.empty() && access(path.c_str(), X_OK) != 0)
    return failure(Code::kDenied, "{} cannot be run: it is not executable; chmod +x {}", path, path);
  return failure(Code::kDenied, "{} cannot be run: {}", program, std::strerror(error));
}

}  // namespace

bool stays_ignored(int number) {
  if (number != SIGHUP && number != SIGINT && number != SIGQUIT && number != SIGTSTP) return false;
  struct sigaction now {};
  return sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
}

std::string Child::End::text() const {
  if (error != 0) return fmt::format("ended, and how is not known (waitid: {})", std::strerror(error));
  if (signal == 0) return fmt::format("exited with code {}", code);
  return fmt::format("was killed by signal {} ({})", signal, strsignal(signal));
}

Result<Child> Child::spawn(const Options& options) {
  ChildPlan plan;
  plan.arguments = pointers(options.arguments);
  plan.environment = pointers(options.environment);
  plan.death_signal = options.death_signal;
  plan.parent = getpid();
  plan.input = options.input;
  MUSTER_ASSIGN_OR_RETURN(Pipe report, open_pipe(0));
  Pipe input, output, error;
  if (options.input == Input::kPiped) {
    MUSTER_ASSIGN_OR_RETURN(input, open_pipe(0));
    fcntl(input.write.get(), F_SETFL, O_NONBLOCK);
    plan.input_end = input.read.get();
  }
  if (options.streams == Streams::kPiped) {
    MUSTER_ASSIGN_OR_RETURN(output, open_pipe(O_NONBLOCK));
    MUSTER_ASSIGN_OR_RETURN(error, open_pipe(O_NONBLOCK));
    plan.output = output.write.get();
    plan.error = error.write.get();
  }
  plan.report = report.write.get();
  const pid_t pid = fork();
  if (pid < 0) return fail(Code::kNoResource, "{}", refused_call("fork", errno, kRaiseProcesses));
  if (pid == 0) become(plan);
  setpgid(pid, pid);  // parent and child both set it: a signal must find the group
  shm::Descriptor pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  const int pidfd_error = errno;
  Child child(pid, std::move(pidfd));
  if (!child.pidfd_.valid()) return fail(Code::kNoResource, "pidfd_open: {}", std::strerror(pidfd_error));
  report.write.reset();
  int exec_error = 0;
  if (read(report.read.get(), &exec_error, sizeof exec_error) == sizeof exec_error)
    return fail(refusal(options.arguments.front(), exec_error));
  child.input_ = std::move(input.write);
  child.output_ = std::move(output.read);
  child.error_ = std::move(error.read);
  return child;
}

Child::Child(Child&& other) noexcept
    : pid_(other.pid_),
      pidfd_(std::move(other.pidfd_)),
      input_(std::move(other.input_)),
      output_(std::move(other.output_)),
      error_(std::move(other.error_)),
      reaped_(std::exchange(other.reaped_, true)) {}

Child::~Child() {
  if (!reaped_) reap();
}

void Child::signal(int number) {
  if (!reaped_) ::kill(-pid_, number);  // not reaped, so the pid still belongs to this group
}

Child::End Child::reap() {
  signal(SIGKILL);
  siginfo_t info{};
  int error = 0;
  do error = waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED) == 0 ? 0 : errno;
  while (error == EINTR);
  reaped_ = true;
  if (error != 0) return {.error = error};
  if (info.si_code == CLD_EXITED) return {.code = info.si_status};
  return {.signal = info.si_status};
}

}  // namespace muster::cli
