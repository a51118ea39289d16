#include "daemon/control/link/path_echo.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace muster::control {
namespace {

constexpr std::size_t kTrialPiece = 16 << 10;
constexpr std::size_t kAnswerBytes = 2 * kPathHead.size() + kPathBytes;

// The byte at that place of what either end sends: heads where heads stand, and zeros.
std::array<char, kTrialPiece> piece_at(std::size_t place, std::size_t heads) {
  std::array<char, kTrialPiece> piece{};
  for (std::size_t i = 0; i < piece.size() && place + i < heads * kPathHead.size(); ++i)
    piece[i] = kPathHead[(place + i) % kPathHead.size()];
  return piece;
}

// A connection of the near end, step by step.
//
// Owns    the socket. Thread  one. Bound  `end`. Fails  each step, with the reason.
class Trial {
 public:
  Trial(const Clock& clock, Instant end) : clock_(clock), end_(end) {}

  Status connect(const IpAddress& from, const SocketAddress& to) {
    socket_.reset(::socket(to.address.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (!socket_.valid()) return socket_failure(Code::kDaemonLost, "socket", errno);
    const auto own = numeric({from.text(), 0});
    if (::bind(socket_.get(), reinterpret_cast<const sockaddr*>(&own->address), own->bytes) != 0)
      return socket_failure(Code::kDaemonLost, "from " + from.text(), errno);
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to.address), to.bytes) == 0) return {};
    if (errno != EINPROGRESS) return socket_failure(Code::kDaemonLost, "connecting", errno);
    MUSTER_RETURN_IF_ERROR(await(POLLOUT));
    int error = 0;
    socklen_t bytes = sizeof error;
    getsockopt(socket_.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
    return error == 0 ? Status() : socket_failure(Code::kDaemonLost, "connecting", error);
  }

  // `count` bytes: heads, and zeros behind them.
  Status send(std::size_t count, std::size_t heads) {
    for (std::size_t sent = 0; sent < count;) {
      const auto piece = piece_at(sent, heads);
      const ssize_t n =
          ::send(socket_.get(), piece.data(), std::min(piece.size(), count - sent), MSG_NOSIGNAL);
      if (n > 0)
        sent += static_cast<std::size_t>(n);
      else if (errno != EAGAIN && errno != EINTR)
        return socket_failure(Code::kDaemonLost, "sending", errno);
      else
        MUSTER_RETURN_IF_ERROR(await(POLLOUT));
    }
    return {};
  }

  Status receive(std::size_t count) {
    for (std::size_t came = 0; came < count;) {
      std::array<char, kTrialPiece> piece;
      const ssize_t n = ::recv(socket_.get(), piece.data(), std::min(piece.size(), count - came), 0);
      if (n > 0)
        came += static_cast<std::size_t>(n);
      else if (n == 0)
        return failure(Code::kDaemonLost, "the other side has closed the connection");
      else if (errno != EAGAIN && errno != EINTR)
        return socket_failure(Code::kDaemonLost, "receiving", errno);
      else
        MUSTER_RETURN_IF_ERROR(await(POLLIN));
    }
    return {};
  }

  std::uint32_t segment_bytes() const {
    int bytes = 0;
    socklen_t size = sizeof bytes;
    const bool known = getsockopt(socket_.get(), IPPROTO_TCP, TCP_MAXSEG, &bytes, &size) == 0;
    return known ? static_cast<std::uint32_t>(bytes) : 0;
  }

 private:
  Status await(short event) const {
    const Nanos left = end_ - clock_.now();
    pollfd entry{socket_.get(), event, 0};
    const auto milliseconds = std::chrono::ceil<std::chrono::milliseconds>(std::max(Nanos(0), left)).count();
    if (left > Nanos(0) && ::poll(&entry, 1, static_cast<int>(milliseconds)) != 0) return {};
    return failure(Code::kTimeout, "no answer");
  }

  const Clock& clock_;
  const Instant end_;
  shm::Descriptor socket_;
};

}  // namespace

Result<std::unique_ptr<PathEcho>> PathEcho::open(Loop& loop, const IpAddress& address) {
  MUSTER_ASSIGN_OR_RETURN(auto listener, TcpListener::open({address.text(), 0}));
  return std::unique_ptr<PathEcho>(new PathEcho(loop, std::move(listener)));
}

PathEcho::PathEcho(Loop& loop, TcpListener listener) : loop_(loop), listener_(std::move(listener)) {
  arrivals_ = loop_.watch(listener_.descriptor().get(), [this] { on_client(); });
}

PathEcho::~PathEcho() {
  loop_.unwatch(arrivals_);
  while (!clients_.empty()) drop(clients_.begin()->first);
}

void PathEcho::on_client() {
  auto arrived = listener_.accept();
  if (!arrived) return;
  if (clients_.size() >= kClientsMax) drop(clients_.begin()->first);
  const Id id = next_++;
  PendingClient& client = clients_[id];
  client.socket = std::move(arrived->socket);
  client.reads = loop_.watch(client.socket.get(), [this, id] { on_readable(id); });
  client.timer = loop_.after(kGuestTime, [this, id] { drop(id); });
}

void PathEcho::on_readable(Id id) {
  PendingClient& client = clients_.at(id);
  std::array<char, kTrialPiece> piece;
  const ssize_t n = ::recv(client.socket.get(), piece.data(), piece.size(), MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (n <= 0) return drop(id);
  const auto count = static_cast<std::size_t>(n);
  for (std::size_t i = 0; i < count && client.heard + i < kPathHead.size(); ++i)
    if (piece[i] != kPathHead[client.heard + i]) return drop(id);
  client.heard += count;
  if (client.heard > kPathHead.size() + kPathBytes) return drop(id);
  answer(id);
}

void PathEcho::answer(Id id) {
  PendingClient& client = clients_.at(id);
  const bool all = client.heard == kPathHead.size() + kPathBytes;
  const std::size_t until = all ? kAnswerBytes : client.heard >= kPathHead.size() ? kPathHead.size() : 0;
  while (client.sent < until) {
    const auto piece = piece_at(client.sent, 2);
    const ssize_t n = ::send(client.socket.get(), piece.data(), std::min(piece.size(), until - client.sent),
                             MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno != EAGAIN) return drop(id);
    if (n < 0) break;
    client.sent += static_cast<std::size_t>(n);
  }
  if (client.sent == until) {
    loop_.unwatch(std::exchange(client.writes, 0));
    client.for_writing.reset();
  } else if (client.writes == 0) {
    client.for_writing.reset(fcntl(client.socket.get(), F_DUPFD_CLOEXEC, 0));
    if (!client.for_writing.valid()) return drop(id);
    client.writes = loop_.watch_writable(client.for_writing.get(), [this, id] { answer(id); });
  }
}

void PathEcho::drop(Id id) {
  auto node = clients_.extract(id);
  if (node.empty()) return;
  for (const Loop::Watch watch : {node.mapped().reads, node.mapped().writes, node.mapped().timer})
    loop_.unwatch(watch);
}

PathTrial try_path(const IpAddress& from, const IpAddress& to, std::uint16_t port, Nanos time,
                   const Clock& clock) {
  const Instant begin = clock.now();
  Trial connection(clock, begin + time);
  PathTrial trial;
  const auto passes = [&trial](PathTrial::Stage stage, Status status) {
    trial.stage = stage;
    trial.why = std::move(status);
    return trial.why.ok();
  };
  constexpr std::size_t kHead = kPathHead.size();
  if (!passes(PathTrial::Stage::kConnect, connection.connect(from, *numeric({to.text(), port}))))
    return trial;
  trial.segment_bytes = connection.segment_bytes();
  if (!passes(PathTrial::Stage::kSmall, connection.send(kHead, 1))) return trial;
  if (!passes(PathTrial::Stage::kSmall, connection.receive(kHead))) return trial;
  if (!passes(PathTrial::Stage::kThere, connection.send(kPathBytes, 0))) return trial;
  if (!passes(PathTrial::Stage::kThere, connection.receive(kHead))) return trial;
  if (!passes(PathTrial::Stage::kBack, connection.receive(kPathBytes))) return trial;
  trial.stage = PathTrial::Stage::kGood;
  trial.took = clock.now() - begin;
  return trial;
}

}  // namespace muster::control
