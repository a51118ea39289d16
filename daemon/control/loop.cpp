#include "daemon/control/loop.hpp"

#include <cstring>
#include <map>
#include <utility>

#include <asio/executor_work_guard.hpp>
#include <asio/io_context.hpp>
#include <asio/ip/tcp.hpp>
#include <asio/posix/stream_descriptor.hpp>
#include <asio/post.hpp>
#include <asio/signal_set.hpp>
#include <asio/steady_timer.hpp>

namespace muster::control {

struct Loop::State {
  struct Registration {
    virtual ~Registration() = default;
  };

  struct DescriptorWatch final : Registration, std::enable_shared_from_this<DescriptorWatch> {
    using Wait = asio::posix::descriptor_base::wait_type;
    DescriptorWatch(asio::io_context& io, int fd, Wait what, Callback cb)
        : descriptor(io, fd), wait(what), callback(std::move(cb)) {}
    ~DescriptorWatch() override { end(); }

    // At once, though its callback may be on the stack: its owner closes the descriptor next, and the number
    // may then be another's.
    void end() {
      if (std::exchange(live, false)) descriptor.release();
    }

    void arm() {
      descriptor.async_wait(wait, [self = weak_from_this()](const asio::error_code& error) {
        const auto watch = self.lock();
        if (!watch || !watch->live || error == asio::error::operation_aborted) return;
        watch->callback();  // may unwatch this very watch
        if (watch->live) watch->arm();
      });
    }

    asio::posix::stream_descriptor descriptor;
    Wait wait;
    Callback callback;
    bool live = true;
  };

  struct TimerWatch final : Registration {
    TimerWatch(asio::io_context& io, Nanos delay) : timer(io, delay) {}
    asio::steady_timer timer;
  };

  struct SignalWatch final : Registration, std::enable_shared_from_this<SignalWatch> {
    SignalWatch(asio::io_context& io, int number, Callback cb)
        : signals(io, number), callback(std::move(cb)) {}
    void arm() {
      signals.async_wait([self = weak_from_this()](const asio::error_code& error, int) {
        const auto watch = self.lock();
        if (!watch || error) return;
        watch->callback();
        watch->arm();
      });
    }
    asio::signal_set signals;
    Callback callback;
  };

  struct HostLookup final : Registration {
    explicit HostLookup(asio::io_context& io) : resolver(io) {}
    asio::ip::tcp::resolver resolver;
  };

  asio::io_context io{1};
  asio::executor_work_guard<asio::io_context::executor_type> work{asio::make_work_guard(io)};
  std::map<Watch, std::shared_ptr<Registration>> entries;
  Watch next = 1;

  Watch watch(int fd, DescriptorWatch::Wait what, Callback callback);
};

Loop::Loop() : state_(std::make_unique<State>()) {}
Loop::~Loop() {
  while (!state_->entries.empty()) unwatch(state_->entries.begin()->first);
}

Loop::Watch Loop::State::watch(int fd, DescriptorWatch::Wait what, Callback callback) {
  auto entry = std::make_shared<DescriptorWatch>(io, fd, what, std::move(callback));
  entry->arm();
  entries.emplace(next, std::move(entry));
  return next++;
}

Loop::Watch Loop::watch(int fd, Callback callback) {
  return state_->watch(fd, State::DescriptorWatch::Wait::wait_read, std::move(callback));
}
Loop::Watch Loop::watch_writable(int fd, Callback callback) {
  return state_->watch(fd, State::DescriptorWatch::Wait::wait_write, std::move(callback));
}

void Loop::unwatch(Watch watch) {
  const auto it = state_->entries.find(watch);
  if (it == state_->entries.end()) return;
  if (auto* descriptor = dynamic_cast<State::DescriptorWatch*>(it->second.get())) descriptor->end();
  state_->entries.erase(it);
}

Loop::Watch Loop::after(Nanos delay, Callback callback) {
  const Watch id = state_->next++;
  auto entry = std::make_shared<State::TimerWatch>(state_->io, delay);
  entry->timer.async_wait([this, id, call = std::move(callback)](const asio::error_code& error) {
    // A handler before this one may have unwatched an expired timer, which no error shows.
    if (error || state_->entries.erase(id) == 0) return;
    call();
  });
  state_->entries.emplace(id, std::move(entry));
  return id;
}

Loop::Watch Loop::on_signal(int number, Callback callback) {
  auto entry = std::make_shared<State::SignalWatch>(state_->io, number, std::move(callback));
  entry->arm();
  state_->entries.emplace(state_->next, std::move(entry));
  return state_->next++;
}

Loop::Watch Loop::resolve(const std::string& host, std::uint16_t port,
                          std::function<void(Result<std::vector<SocketAddress>>)> callback) {
  const Watch id = state_->next++;
  auto entry = std::make_shared<State::HostLookup>(state_->io);
  const auto flags = asio::ip::resolver_base::numeric_service;
  entry->resolver.async_resolve(
      host, std::to_string(port), flags,
      [this, id, host, call = std::move(callback)](const asio::error_code& error, const auto& found) {
        if (error == asio::error::operation_aborted || state_->entries.erase(id) == 0) return;
        if (error) return call(fail(Code::kNotFound, "host {}: {}", host, error.message()));
        std::vector<SocketAddress> all;
        for (const auto& one : found) {
          SocketAddress& address = all.emplace_back();
          address.bytes = static_cast<socklen_t>(one.endpoint().size());
          std::memcpy(&address.address, one.endpoint().data(), address.bytes);
        }
        call(std::move(all));
      });
  state_->entries.emplace(id, std::move(entry));
  return id;
}

void Loop::post(Callback callback) {
  asio::post(state_->io, std::move(callback));
}
void Loop::run() {
  state_->io.run();
}
bool Loop::turn() {
  return state_->io.poll_one() != 0;
}
void Loop::stop() {
  state_->io.stop();
}

}  // namespace muster::control
