// Doorbells: how a sleeping engine learns that a client has written a command.
//
// One eventfd per client, which the client also holds. It is watched edge-triggered and never read: a client
// that clears O_NONBLOCK or steals the count cannot make a read of ours block, because there is none
// (reliability: doorbell abuse).
#pragma once

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

  Status add(const shm::Descriptor& bell);
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

// A bell for a client: an eventfd. And a second descriptor of it, for the other side.
Result<shm::Descriptor> make_bell();
Result<shm::Descriptor> copy_bell(const shm::Descriptor& bell);

}  // namespace muster::engine
