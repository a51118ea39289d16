#include "daemon/control/link/peer_link.hpp"

#include "daemon/control/link/clocks.hpp"

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>

namespace muster::control {
namespace {

constexpr std::size_t kPiece = std::size_t{64} << 10;  // that is read in one turn of the loop

const std::string kNobody;

}  // namespace

PeerLink::PeerLink(Loop& loop, shm::Descriptor socket, TlsStream::Role role,
                   std::shared_ptr<const Credentials> own, std::string wanted, WallTime now, Events events,
                   Times times)
    : loop_(loop),
      socket_(std::move(socket)),
      role_(role),
      own_(std::move(own)),
      events_(std::move(events)),
      times_(times),
      now_(now) {
  timer_ = loop_.after(times_.admission, [this] {
    timer_ = 0;
    const Status why = failure(Code::kTimeout, "it has not said who it is within {} ms",
                               times_.admission / std::chrono::milliseconds(1));
    secured_ ? refuse(why) : end(why);
  });
  Status begun;
  if (own_ != nullptr) {
    auto stream = TlsStream::begin(*own_, role, wanted, now);
    if (stream)
      tls_ = *std::move(stream);
    else
      begun = stream.error();
  }
  // Later: the owner has no link yet to which an event could belong.
  start_ = loop_.after(Nanos(0), [this, begun] {
    start_ = 0;
    begun.ok() ? start() : end(begun);
  });
}

PeerLink::~PeerLink() {
  for (const Loop::Watch watch : {start_, reads_, writes_, timer_}) loop_.unwatch(watch);
}

void PeerLink::start() {
  reads_ = loop_.watch(socket_.get(), [this] { on_readable(); });
  if (tls_) return flush();
  secured_ = true;
  events_.secured();
}

const std::string& PeerLink::peer() const {
  return tls_ ? tls_->peer() : kNobody;
}

SocketAddress PeerLink::address() const {
  SocketAddress there;
  there.bytes = sizeof there.address;
  if (getpeername(socket_.get(), reinterpret_cast<sockaddr*>(&there.address), &there.bytes) != 0) return {};
  return there;
}

SocketAddress PeerLink::own_address() const {
  SocketAddress here;
  here.bytes = sizeof here.address;
  if (getsockname(socket_.get(), reinterpret_cast<sockaddr*>(&here.address), &here.bytes) != 0) return {};
  return here;
}

Result<Heartbeat::Keys> PeerLink::heartbeat_keys() const {
  if (!tls_) return Heartbeat::Keys{};
  MUSTER_ASSIGN_OR_RETURN(const Heartbeat::Key of_client, tls_->exported(kHeartbeatsOfClient));
  MUSTER_ASSIGN_OR_RETURN(const Heartbeat::Key of_server, tls_->exported(kHeartbeatsOfServer));
  return role_ == TlsStream::Role::kClient ? Heartbeat::Keys{of_client, of_server}
                                           : Heartbeat::Keys{of_server, of_client};
}

void PeerLink::send(const Json& body) {
  if (secured_ && !closing_ && !ended_) transmit(body);
}

void PeerLink::transmit(const Json& body) {
  auto frame = frame_of(body);
  if (!frame) return end(frame.error());
  if (!tls_) {
    unsent_.insert(unsent_.end(), frame->begin(), frame->end());
  } else if (Status written = tls_->write(*frame); !written.ok()) {
    return end(std::move(written));
  }
  flush();
}

void PeerLink::admit() {
  admitted_ = true;
  frames_.set_limit(kFrameBytesMax);
  loop_.unwatch(std::exchange(timer_, 0));
}

void PeerLink::close(Status why) {
  if (closing_ || ended_) return;
  closing_ = true;
  why_ = std::move(why);
  if (tls_) tls_->close();
  loop_.unwatch(timer_);
  timer_ = loop_.after(times_.goodbye, [this] {
    timer_ = 0;
    end(why_);
  });
  flush();
}

void PeerLink::refuse(const Status& why) {
  send({{"refused", why.message()}});
  close(why);
}

void PeerLink::on_readable() {
  std::array<std::byte, kPiece> bytes;
  const ssize_t n = recv(socket_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n < 0) return end(failure(Code::kDaemonLost, "the connection is lost: {}", std::strerror(errno)));
  if (n == 0) return end(failure(Code::kDaemonLost, "the other side has closed the connection"));
  if (!closing_) take(std::span(bytes).first(static_cast<std::size_t>(n)));
}

void PeerLink::take(std::span<const std::byte> wire) {
  if (!tls_) {
    events_.alive();
    frames_.add(wire);
    return hear();
  }
  const auto plain = tls_->receive(wire);
  flush();  // a part of the handshake, or the alert that tells the peer
  if (ended_) return;
  if (!plain) return close(plain.error());
  if (why_.ok()) refuse_dates(tls_->outside_dates());
  if (ended_) return;
  if (!secured_ && tls_->established()) {
    secured_ = true;
    events_.secured();
  }
  if (!plain->empty()) events_.alive();
  frames_.add(*plain);
  hear();
}

// The peer learns of it here, and sends its time in its greeting, or as it refuses this node too.
void PeerLink::refuse_dates(Status why) {
  if (why.ok()) return;
  why_ = std::move(why);
  transmit({{"refused", why_.message()}, {"time", said(now_)}});
  if (ended_) return;
  loop_.unwatch(timer_);
  timer_ = loop_.after(times_.goodbye, [this] {
    timer_ = 0;
    close(why_);
  });
}

void PeerLink::hear() {
  while (!closing_ && !ended_) {
    auto frame = frames_.next();
    if (!frame) return refuse(frame.error());
    if (!*frame) return;
    if (!why_.ok()) {
      if (const auto time = time_said(**frame))
        close(failure(why_.code(), "{}; {}", why_.message(), cure_of_dates(now_, *time)));
      continue;
    }
    events_.heard(**std::move(frame));
  }
}

void PeerLink::flush() {
  if (ended_) return;
  if (tls_) {
    const std::vector<std::byte> wire = tls_->take_wire();
    unsent_.insert(unsent_.end(), wire.begin(), wire.end());
  }
  std::size_t sent = 0;
  while (sent < unsent_.size()) {
    const ssize_t n =
        ::send(socket_.get(), unsent_.data() + sent, unsent_.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EAGAIN) break;
    if (n < 0) return end(failure(Code::kDaemonLost, "the connection is lost: {}", std::strerror(errno)));
    sent += static_cast<std::size_t>(n);
  }
  unsent_.erase(unsent_.begin(), unsent_.begin() + static_cast<std::ptrdiff_t>(sent));
  if (unsent_.size() > kUnsentMax)
    return end(failure(Code::kBusy, "{} bytes wait for it: it does not read", unsent_.size()));
  if (unsent_.empty()) {
    loop_.unwatch(std::exchange(writes_, 0));
    for_writing_.reset();
    if (closing_) shutdown(socket_.get(), SHUT_WR);  // the peer reads to the end, and closes
  } else if (writes_ == 0) {
    for_writing_.reset(fcntl(socket_.get(), F_DUPFD_CLOEXEC, 0));
    if (!for_writing_.valid())
      return end(failure(Code::kNoResource, "no descriptor is free: {}", std::strerror(errno)));
    writes_ = loop_.watch_writable(for_writing_.get(), [this] { flush(); });
  }
}

void PeerLink::end(Status why) {
  if (std::exchange(ended_, true)) return;
  for (Loop::Watch* watch : {&start_, &reads_, &writes_, &timer_}) loop_.unwatch(std::exchange(*watch, 0));
  for_writing_.reset();
  socket_.reset();
  events_.ended(closing_ || !why_.ok() ? why_ : why);
}

}  // namespace muster::control
