// Doorbells: how a sleeping engine learns that a client has written a command.
//
// Each client has one eventfd, of which it holds a copy. The engine watches it edge-triggered and never reads
// it. So a client that clears O_NONBLOCK or steals the count cannot block the engine (reliability: doorbell
// abuse).
#pragma once

#include <utility>

#include "api/base/clock.hpp"
#include "api/base/result.hpp"
#include "api/shm/descriptor.hpp"

namespace muster::engine {

// Owns    the epoll instance and its own bell; not the clients' bells.
// Thread  add, remove, ring: any. wait: any, several at a time.
// Bound   by the descriptor limit.
// Fails   open and add: kNoResource.
class Doorbells {
 public:
  static Result<Doorbells> open();
  Doorbells(Doorbells&& other) noexcept : epoll_(std::move(other.epoll_)), own_(std::move(other.own_)) {}

  Status add(const shm::Descriptor& bell) { return add(bell.get()); }
  Status add(int bell);  // of a backend
  void remove(const shm::Descriptor& bell);
  // Ends a wait, now or the next one. Never blocks.
  void ring() noexcept;
  // Sleeps until a bell, ring(), or `bound`.
  void wait(Nanos bound);

 private:
  Doorbells() = default;
  shm::Descriptor epoll_;
  shm::Descriptor own_;
};

// Makes an eventfd for a client; copy_bell() makes the client's descriptor of it.
Result<shm::Descriptor> make_bell();
Result<shm::Descriptor> copy_bell(const shm::Descriptor& bell);

}  // namespace muster::engine
