// A daemon that gives a test's answers, and remembers the questions.
#pragma once

#include "api/shm/socket.hpp"
#include "daemon/control/packet.hpp"
#include "tests/daemon/cli/program.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

namespace muster::test {

// Owns    its socket and a thread that answers there.
// Thread  the script is called on that thread; the rest is the test's.
// Bound   -
// Fails   aborts the test program where the socket cannot be opened.
class ScriptedDaemon {
 public:
  // The answer to a command, or a refusal: control::failed(). Nothing leaves the question open.
  using Script = std::function<std::optional<Json>(const std::string& command)>;

  explicit ScriptedDaemon(Script script, std::uint16_t interface = shm::kAbiVersion)
      : script_(std::move(script)), interface_(interface) {
    auto listener = shm::Listener::open(path_, {});
    if (!listener) std::abort();
    listener_.emplace(*std::move(listener));
    thread_ = std::thread([this] { serve(); });
  }
  ~ScriptedDaemon() {
    over_ = true;
    thread_.join();
  }
  ScriptedDaemon(const ScriptedDaemon&) = delete;
  ScriptedDaemon& operator=(const ScriptedDaemon&) = delete;

  std::string socket() const { return path_; }
  std::vector<std::string> asked() const {
    const std::lock_guard lock(mutex_);
    return asked_;
  }
  // How often it was asked so, and whether it is asked within the time limit.
  std::ptrdiff_t count(const std::string& command) const {
    const std::vector<std::string> all = asked();
    return std::count(all.begin(), all.end(), command);
  }
  bool was_asked(const std::string& command) const {
    for (int waited = 0; waited < kPatienceMs; waited += 5) {
      if (count(command) > 0) return true;
      usleep(5000);
    }
    return false;
  }

 private:
  void serve() {
    std::map<int, shm::Descriptor> connections;
    while (!over_) {
      std::vector<pollfd> watched{{listener_->descriptor().get(), POLLIN, 0}};
      for (const auto& [fd, connection] : connections) watched.push_back({fd, POLLIN, 0});
      if (poll(watched.data(), watched.size(), 10) <= 0) continue;
      for (const pollfd& entry : std::span(watched).subspan(1))
        if (entry.revents != 0 && !hear(connections.at(entry.fd))) connections.erase(entry.fd);
      if (watched.front().revents == 0) continue;
      if (auto connection = listener_->accept())
        connections.emplace(connection->get(), *std::move(connection));
    }
  }

  // False once the other side has left.
  bool hear(const shm::Descriptor& connection) {
    const auto packet = control::receive_packet(connection);
    if (!packet) return packet.error().code() == Code::kPending;
    const auto command = packet->body.value("command", "");
    {
      const std::lock_guard lock(mutex_);
      asked_.push_back(command);
    }
    if (interface_ != shm::kAbiVersion) return speak_otherwise(connection, packet->serial);
    if (const auto result = script_(command)) {
      const bool refused = result->is_object() && result->contains("ok");
      const Json answer = refused ? *result : control::success(*result);
      static_cast<void>(control::send_packet(connection, shm::MessageKind::kReply, packet->serial, answer));
    }
    return true;
  }

  // Answers as a daemon of another release: only its header can be read.
  bool speak_otherwise(const shm::Descriptor& connection, std::uint32_t serial) const {
    shm::MessageHeader header;
    header.version = interface_;
    header.kind = shm::MessageKind::kReply;
    header.serial = serial;
    header.bytes = sizeof header;
    return shm::send_message(connection, std::as_bytes(std::span(&header, 1))).ok();
  }

  Folder folder_;
  std::string path_ = folder_.path() + "/musterd.sock";
  Script script_;
  std::uint16_t interface_;
  std::optional<shm::Listener> listener_;
  mutable std::mutex mutex_;
  std::vector<std::string> asked_;
  std::atomic<bool> over_ = false;
  std::thread thread_;
};

}  // namespace muster::test
