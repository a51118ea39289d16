#include "daemon/supervisor/listener/acceptor.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/listener/refusals.hpp"

#include <fcntl.h>

namespace muster::supervisor {
namespace {

shm::Descriptor spare_descriptor() {
  return shm::Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

Acceptor::Acceptor(control::Loop& loop, const Clock& clock, DescriptorStore& store, Listeners listeners,
                   Accepted accepted)
    : loop_(loop),
      clock_(clock),
      store_(store),
      listeners_(std::move(listeners)),
      accepted_(std::move(accepted)),
      reserve_(spare_descriptor()) {}

// The path may lead elsewhere by now: a cleaner or an attacker has removed it.
void Acceptor::look() {
  const bool healed = listeners_.look(clock_.now());
  std::set<std::string> none;
  keep(none);
  if (healed || watches_.front().socket == 0) {
    for (std::size_t i = 0; i < watches_.size(); ++i) {
      const Door door = Listeners::kDoors[i];
      watch(watches_[i].socket, listeners_.socket(door), door);
      watch(watches_[i].managers, listeners_.managers(door), door);
    }
  }
  // No client can reach a former socket any more, so at most its queue is left.
  for (const Door door : Listeners::kDoors)
    for (int i = 0; i < shm::Listener::Options().backlog && listeners_.has_former_client(door); ++i)
      accept(door);
  loop_.after(Listeners::kLookPeriod, [this] { look(); });
}

void Acceptor::watch(control::Loop::Watch& watch, const ListenSocket* socket, Door door) {
  loop_.unwatch(watch);
  watch = socket == nullptr ? 0 : loop_.watch(socket->descriptor().get(), [this, door] { accept(door); });
}

void Acceptor::accept(Door door) {
  auto socket = listeners_.accept(door);
  if (!socket) {
    if (socket.error().code() == Code::kNoResource) refuse_for_descriptors(door);
    return;
  }
  auto peer = shm::peer_identity(*socket);
  if (!peer) return send_refusal(*socket, 0, peer.error());  // it has left, or there is no free descriptor
  accepted_(*std::move(socket), *std::move(peer), door);
}

// Without a free descriptor, accept() fails and the socket stays readable, so the loop would spin.
void Acceptor::refuse_for_descriptors(Door door) {
  reserve_.reset();
  if (auto socket = listeners_.accept(door)) {
    send_refusal(*socket, 0,
                 failure(Code::kNoResource,
                         "the daemon is out of file descriptors; raise its limit (LimitNOFILE, ulimit -n)"));
    socket->reset();
  }
  reserve_ = spare_descriptor();
  MUSTER_LOG(kError, "supervisor", "out of file descriptors; raise the limit (LimitNOFILE, ulimit -n)");
}

}  // namespace muster::supervisor
