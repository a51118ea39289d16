#include "daemon/engine/memory/doorbells.hpp"

#include "api/base/system_call.hpp"

#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace muster::engine {

Result<shm::Descriptor> make_bell() {
  shm::Descriptor bell(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!bell.valid()) return fail(Code::kNoResource, "{}", refused_call("eventfd", errno, kRaiseOpenFiles));
  return bell;
}

Result<shm::Descriptor> copy_bell(const shm::Descriptor& bell) {
  shm::Descriptor copy(fcntl(bell.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return fail(Code::kNoResource, "{}", refused_call("dup", errno, kRaiseOpenFiles));
  return copy;
}

Result<Doorbells> Doorbells::open() {
  Doorbells bells;
  bells.epoll_ = shm::Descriptor(epoll_create1(EPOLL_CLOEXEC));
  if (!bells.epoll_.valid())
    return fail(Code::kNoResource, "{}", refused_call("epoll_create", errno, kRaiseOpenFiles));
  MUSTER_ASSIGN_OR_RETURN(bells.own_, make_bell());
  MUSTER_RETURN_IF_ERROR(bells.add(bells.own_));
  return bells;
}

Status Doorbells::add(int bell) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  event.data.fd = bell;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, bell, &event) == 0) return {};
  return failure(Code::kNoResource, "epoll_ctl: {}", std::strerror(errno));
}

// Explicit: closing ours is not enough, since the client's copy would keep the bell in the epoll set.
void Doorbells::remove(const shm::Descriptor& bell) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, bell.get(), nullptr);
}

void Doorbells::ring() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = ::write(own_.get(), &one, sizeof one);
}

void Doorbells::wait(Nanos bound) {
  epoll_event events[16];
  const auto milliseconds = std::chrono::duration_cast<std::chrono::milliseconds>(bound).count();
  epoll_wait(epoll_.get(), events, 16, static_cast<int>(milliseconds < 1 ? 1 : milliseconds));
}

}  // namespace muster::engine
