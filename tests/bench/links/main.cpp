// link_pair: two processes that send each other messages over one network, or over a plain TCP stream.
//
//   link_pair ucx --networks build/release/bin/networks --bytes 8 4194304
//   link_pair ucx … --port 7744                      one side, which waits for the other
//   link_pair ucx … --port 7744 --peer 10.66.0.2     the other side, on another node; it prints
//
// Prints a line of JSON: for each size half a round trip in µs, and GB/s of a one-way stream of messages.
#include "transport/endpoint/library.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <deque>
#include <functional>
#include <vector>

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>
#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace {

using namespace muster;
using Clock = std::chrono::steady_clock;
using Block = std::vector<std::byte>;

constexpr std::size_t kWindow = 16;  // messages of a stream that are under way
constexpr std::size_t kRoundsMax = 20'000;

[[noreturn]] void die(const std::string& what) {
  std::fprintf(stderr, "link_pair: %s\n", what.c_str());
  std::exit(EXIT_FAILURE);
}

// One side of a connection to one peer.
class Side {
 public:
  virtual ~Side() = default;
  virtual void send(transport::Bytes from) = 0;
  virtual void receive(transport::WritableBytes into) = 0;
  // A window of messages of this size, of which the receiver acknowledges the last.
  virtual void stream(bool sends, Block& block, std::size_t messages) = 0;
  virtual std::string describe() const = 0;
};

struct Awaited final : transport::Transfer {
  explicit Awaited(std::size_t bytes) : expected(bytes) {}
  void done(const Status& said, std::size_t bytes) override {
    if (!said.ok()) die(said.text());
    if (bytes != expected) die(fmt::format("{} bytes came where {} were expected", bytes, expected));
    over = true;
  }
  const std::size_t expected;
  bool over = false;
};

class NetworkSide final : public Side {
 public:
  NetworkSide(const std::string& folder, const std::string& name, std::uint32_t here, int channel) {
    auto opened = transport::open_network(folder, name, NodeIndex(here));
    if (!opened) die(opened.error().text());
    network_ = *std::move(opened);
    const transport::Bytes own = network_->address();
    const std::size_t bytes = own.size();
    if (write(channel, &bytes, sizeof bytes) != sizeof bytes ||
        write(channel, own.data(), bytes) != static_cast<ssize_t>(bytes))
      die("the address cannot be passed on");
    std::size_t peer_bytes = 0;
    if (read(channel, &peer_bytes, sizeof peer_bytes) != sizeof peer_bytes) die("the peer is gone");
    Block address(peer_bytes);
    if (recv(channel, address.data(), peer_bytes, MSG_WAITALL) != static_cast<ssize_t>(peer_bytes))
      die("the peer is gone");
    auto endpoint = network_->connect(NodeIndex(1 - here), address);
    if (!endpoint) die(endpoint.error().text());
    endpoint_ = *std::move(endpoint);
  }
  void send(transport::Bytes from) override {
    Awaited sent(from.size());
    begin(endpoint_->send(0, from, sent));
    await(sent);
  }
  void receive(transport::WritableBytes into) override {
    Awaited received(into.size());
    begin(endpoint_->receive(0, into, received));
    await(received);
  }
  void stream(bool sends, Block& block, std::size_t messages) override {
    std::deque<Awaited> window;
    for (std::size_t i = 0; i < kWindow; ++i) window.emplace_back(block.size());
    for (std::size_t i = 0; i < messages + kWindow; ++i) {
      Awaited& slot = window[i % kWindow];
      if (i >= kWindow) await(slot);
      if (i >= messages) continue;
      slot.over = false;
      begin(sends ? endpoint_->send(1, block, slot) : endpoint_->receive(1, block, slot));
    }
    Block one(1);
    sends ? receive(one) : send(one);
  }
  std::string describe() const override { return network_->describe(); }

 private:
  static void begin(const Status& status) {
    if (!status.ok()) die(status.text());
  }
  void await(const Awaited& transfer) {
    while (!transfer.over) network_->progress();
  }
  std::unique_ptr<transport::Network> network_;
  std::unique_ptr<transport::Endpoint> endpoint_;
};

// Plain TCP of the kernel, for comparison.
class StreamSide final : public Side {
 public:
  explicit StreamSide(int socket) : socket_(socket) {}
  void send(transport::Bytes from) override {
    for (std::size_t at = 0; at < from.size();) {
      const ssize_t n = ::send(socket_, from.data() + at, from.size() - at, MSG_NOSIGNAL);
      if (n <= 0) die("the stream is gone");
      at += static_cast<std::size_t>(n);
    }
  }
  void receive(transport::WritableBytes into) override {
    for (std::size_t at = 0; at < into.size();) {
      const ssize_t n = recv(socket_, into.data() + at, into.size() - at, 0);
      if (n <= 0) die("the stream is gone");
      at += static_cast<std::size_t>(n);
    }
  }
  void stream(bool sends, Block& block, std::size_t messages) override {
    for (std::size_t i = 0; i < messages; ++i) sends ? send(block) : receive(block);
    Block one(1);
    sends ? receive(one) : send(one);
  }
  std::string describe() const override { return "a TCP stream"; }

 private:
  int socket_;
};

double seconds(Clock::duration span) {
  return std::chrono::duration<double>(span).count();
}

// Both sides call it. So many rounds as fit: the first few say how long one takes.
nlohmann::json measure(Side& side, bool leads, std::size_t bytes, std::chrono::milliseconds time) {
  Block out(bytes, std::byte{1});
  Block in(bytes);
  const auto rounds_of = [&](std::size_t rounds) {
    const auto begun = Clock::now();
    for (std::size_t i = 0; i < rounds; ++i) {
      if (leads) side.send(out);
      side.receive(in);
      if (!leads) side.send(out);
    }
    return seconds(Clock::now() - begun) / static_cast<double>(rounds);
  };
  // The leader decides, and says so.
  const auto agree = [&](double each) {
    std::uint64_t rounds = static_cast<std::uint64_t>(seconds(time) / std::max(each, 1e-9));
    rounds = std::clamp<std::uint64_t>(rounds, 3, kRoundsMax);
    if (leads)
      side.send(std::as_bytes(std::span(&rounds, 1)));
    else
      side.receive(std::as_writable_bytes(std::span(&rounds, 1)));
    return static_cast<std::size_t>(rounds);
  };
  rounds_of(3);
  const double trip = rounds_of(agree(rounds_of(5)));
  side.stream(leads, out, kWindow);
  const std::size_t messages = std::max<std::size_t>(kWindow, agree(trip / 2));
  double best = 0;
  for (int turn = 0; turn < 3; ++turn) {
    const auto begun = Clock::now();
    side.stream(leads, out, messages);
    best = std::max(best, static_cast<double>(bytes * messages) / seconds(Clock::now() - begun));
  }
  return {{"bytes", bytes}, {"half_trip_us", trip / 2 * 1e6}, {"stream_gb_per_s", best / 1e9}};
}

sockaddr_in address_of(const std::string& host, int port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) die(host + " is no address");
  return address;
}

// A connection to the side on another node: to the one that listens at `peer`, or from whoever comes.
int connection(const std::string& peer, int port) {
  const int on = 1;
  const int own = socket(AF_INET, SOCK_STREAM, 0);
  const sockaddr_in address = address_of(peer.empty() ? "0.0.0.0" : peer, port);
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  int connected = own;
  if (peer.empty()) {
    setsockopt(own, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (bind(own, where, sizeof address) != 0 || listen(own, 1) != 0) die("the port is not free");
    connected = accept(own, nullptr, nullptr);
    close(own);
  } else if (connect(own, where, sizeof address) != 0) {
    die("no connection");
  }
  setsockopt(connected, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return connected;
}

// Connected sockets of the loopback device.
std::pair<int, int> tcp_pair() {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), bytes) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    die("no port is free");
  const int one = socket(AF_INET, SOCK_STREAM, 0);
  if (connect(one, reinterpret_cast<sockaddr*>(&address), bytes) != 0) die("no connection");
  const int two = accept(listener, nullptr, nullptr);
  close(listener);
  const int on = 1;
  for (const int end : {one, two}) setsockopt(end, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return {one, two};
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Messages between two processes over one network.", "link_pair");
  std::string name, folder;
  std::vector<std::size_t> sizes{8, 65536, 4 << 20};
  int milliseconds = 400;
  int port = 0;
  std::string peer;
  app.add_option("network", name, "ucx, ofi, or tcp: a plain stream")->required();
  app.add_option("--networks", folder, "Folder of the modules");
  app.add_option("--bytes", sizes, "Of a message")->check(CLI::PositiveNumber);
  app.add_option("--milliseconds", milliseconds, "Of each measurement")->check(CLI::PositiveNumber);
  app.add_option("--port", port, "Be one side alone, which meets the other one at this port")
      ->check(CLI::Range(1, 65535));
  app.add_option("--peer", peer, "Address at which the other side listens; else this one does");
  CLI11_PARSE(app, argc, argv);

  pid_t child = -1;  // none, on this node
  bool leads = !peer.empty();
  int channel = -1;
  if (port != 0) {
    channel = connection(peer, port);
  } else {
    const auto [here, there] = tcp_pair();
    child = fork();
    if (child == 0) prctl(PR_SET_PDEATHSIG, SIGKILL);
    leads = child != 0;
    channel = leads ? here : there;
    close(leads ? there : here);
  }
  std::unique_ptr<Side> side;
  if (name == "tcp")
    side = std::make_unique<StreamSide>(channel);
  else
    side = std::make_unique<NetworkSide>(folder, name, leads ? 0 : 1, channel);
  nlohmann::json rows = nlohmann::json::array();
  for (const std::size_t bytes : sizes)
    rows.push_back(measure(*side, leads, bytes, std::chrono::milliseconds(milliseconds)));
  if (!leads) return EXIT_SUCCESS;
  const nlohmann::json all{{"network", name}, {"describe", side->describe()}, {"rows", std::move(rows)}};
  std::puts(all.dump().c_str());
  if (child < 0) return EXIT_SUCCESS;
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : EXIT_FAILURE;
}
