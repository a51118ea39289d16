#include "tests/support/steward.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <sstream>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace muster::test {
namespace {

constexpr int kFirst = 3;  // sd_listen_fds(3)

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (std::string& text : texts) all.push_back(text.data());
  all.push_back(nullptr);
  return all;
}

// "LISTEN_PID=" and the number, in a child that may allocate nothing.
void write_pid(char* digits, pid_t pid) {
  char reversed[16];
  int count = 0;
  for (; pid > 0; pid /= 10) reversed[count++] = static_cast<char>('0' + pid % 10);
  while (count > 0) *digits++ = reversed[--count];
  *digits = '\0';
}

}  // namespace

Steward::Steward(const std::string& folder, std::vector<std::string> arguments,
                 std::vector<std::string> environment)
    : folder_(folder), arguments_(std::move(arguments)), environment_(std::move(environment)) {
  const std::string path = folder + "/notify";
  socket_.reset(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  unlink(path.c_str());
  EXPECT_EQ(bind(socket_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  log_.reset(::open((folder + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  environment_.push_back("NOTIFY_SOCKET=" + path);
  environment_.emplace_back("PATH=/usr/bin:/bin");
  reader_ = std::jthread([this](const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      pollfd entry{socket_.get(), POLLIN, 0};
      if (poll(&entry, 1, 20) == 1) drain();
    }
  });
}

Steward::~Steward() {
  if (pid_ > 0) end();
}

void Steward::start(const std::string& program) {
  std::vector<std::string> arguments{program};
  arguments.insert(arguments.end(), arguments_.begin(), arguments_.end());
  std::vector<std::string> environment = environment_;
  std::vector<shm::Descriptor> sources;
  {
    const std::lock_guard lock(mutex_);
    std::string names;
    for (const auto& [name, descriptor] : kept_) {
      names += (sources.empty() ? "" : ":") + name;  // by position: the first name may be empty
      sources.emplace_back(fcntl(descriptor.get(), F_DUPFD_CLOEXEC, kFirst + static_cast<int>(kept_.size())));
    }
    environment.push_back(fmt::format("LISTEN_FDS={}", kept_.size()));
    environment.push_back("LISTEN_FDNAMES=" + names);
  }
  environment.push_back("LISTEN_PID=" + std::string(16, '\0'));
  char* digits = environment.back().data() + std::strlen("LISTEN_PID=");
  const std::vector<char*> argument_list = pointers(arguments);
  const std::vector<char*> environment_list = pointers(environment);
  pid_ = fork();
  if (pid_ == 0) {
    dup2(log_.get(), STDERR_FILENO);
    for (std::size_t i = 0; i < sources.size(); ++i) dup2(sources[i].get(), kFirst + static_cast<int>(i));
    write_pid(digits, getpid());
    execve(argument_list[0], argument_list.data(), environment_list.data());
    _exit(99);
  }
  EXPECT_GT(pid_, 0) << std::strerror(errno);
}

int Steward::end(int number) {
  ::kill(pid_, number);
  int status = 0;
  pid_t ended = 0;
  for (int waited_ms = 0; ended == 0 && waited_ms < 30'000; ++waited_ms) {
    ended = waitpid(pid_, &status, WNOHANG);
    if (ended == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (ended == 0) {
    ADD_FAILURE() << "the daemon does not end\n" << log();
    ::kill(pid_, SIGKILL);
    waitpid(pid_, &status, 0);
  }
  pid_ = -1;
  drain();
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void Steward::give(const std::string& name, shm::Descriptor descriptor) {
  const std::lock_guard lock(mutex_);
  kept_.emplace(name, std::move(descriptor));
}

void Steward::lose(const std::string& name) {
  const std::lock_guard lock(mutex_);
  kept_.erase(name);
}

std::vector<std::string> Steward::kept() {
  return kept_with("");
}

std::vector<std::string> Steward::kept_with(const std::string& prefix) {
  drain();
  const std::lock_guard lock(mutex_);
  std::vector<std::string> names;
  for (const auto& [name, descriptor] : kept_)
    if (name.starts_with(prefix)) names.push_back(name);
  return names;
}

std::size_t Steward::heard(const std::string& line) {
  drain();
  const std::lock_guard lock(mutex_);
  return heard_[line].first;
}

Steward::Steady::time_point Steward::heard_at(const std::string& line) {
  drain();
  const std::lock_guard lock(mutex_);
  return heard_[line].second;
}

std::string Steward::log() const {
  std::ostringstream text;
  text << std::ifstream(folder_ + "/log").rdbuf();
  return text.str();
}

void Steward::set(const std::string& variable) {
  environment_.push_back(variable);
}

void Steward::drain() {
  const std::lock_guard lock(mutex_);
  while (true) {
    std::array<char, 4096> bytes;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(16 * sizeof(int))> control;
    iovec data{bytes.data(), bytes.size()};
    msghdr header{};
    header.msg_iov = &data;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    const ssize_t n = recvmsg(socket_.get(), &header, MSG_CMSG_CLOEXEC);
    if (n < 0) return;
    std::vector<shm::Descriptor> descriptors;
    for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
      if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
      for (std::size_t i = 0; i < (part->cmsg_len - CMSG_LEN(0)) / sizeof(int); ++i) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(part) + i * sizeof fd, sizeof fd);
        descriptors.emplace_back(fd);
      }
    }
    hear(std::string(bytes.data(), static_cast<std::size_t>(n)), std::move(descriptors));
  }
}

void Steward::hear(const std::string& text, std::vector<shm::Descriptor> descriptors) {
  std::istringstream lines(text);
  std::string name, verb;
  for (std::string line; std::getline(lines, line);) {
    auto& [count, at] = heard_[line];
    ++count;
    at = Steady::now();
    if (line.starts_with("FDNAME=")) name = line.substr(7);
    if (line.starts_with("FDSTORE")) verb = line;
  }
  if (verb == "FDSTORE=1")
    for (shm::Descriptor& descriptor : descriptors) kept_.emplace(name, std::move(descriptor));
  if (verb == "FDSTOREREMOVE=1") kept_.erase(name);
}

}  // namespace muster::test
