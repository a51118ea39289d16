#include "daemon/supervisor/acceptor.hpp"

#include "api/base/log.hpp"
#include "daemon/supervisor/refusals.hpp"

#include <fcntl.h>

namespace muster::supervisor {
namespace {

shm::Descriptor spare_descriptor() {
  return shm::Descriptor(::open("/dev/null", O_RDONLY | O_CLOEXEC));
}

}  // namespace

Acceptor::Acceptor(control::Loop& loop, const Clock& clock, DescriptorStore& store, Entrance entrance,
                   Accepted accepted)
    : loop_(loop),
      clock_(clock),
      store_(store),
      entrance_(std::move(entrance)),
      accepted_(std::move(accepted)),
      reserve_(spare_descriptor()) {}

// The path may lead elsewhere by now: a cleaner or an attacker has removed it.
void Acceptor::look() {
  const bool healed = entrance_.look(clock_.now());
  std::set<std::string> none;
  keep(none);
  if (healed || socket_watch_ == 0) {
    watch(socket_watch_, entrance_.socket());
    if (const ListenSocket* managers = entrance_.managers()) watch(managers_watch_, *managers);
  }
  // No client can reach the former socket any more, so at most its queue is left.
  for (int i = 0; i < shm::Listener::Options().backlog && entrance_.has_former_guest(); ++i) accept();
  loop_.after(Entrance::kLookPeriod, [this] { look(); });
}

void Acceptor::watch(control::Loop::Watch& watch, const ListenSocket& socket) {
  loop_.unwatch(watch);
  watch = loop_.watch(socket.descriptor().get(), [this] { accept(); });
}

void Acceptor::accept() {
  auto socket = entrance_.accept();
  if (!socket) {
    if (socket.error().code() == Code::kNoResource) refuse_for_descriptors();
    return;
  }
  auto peer = shm::peer_identity(*socket);
  if (!peer) return send_refusal(*socket, 0, peer.error());  // it has left, or there is no free descriptor
  accepted_(*std::move(socket), *std::move(peer));
}

// Without a free descriptor, accept() fails and the socket stays readable, so the loop would spin.
void Acceptor::refuse_for_descriptors() {
  reserve_.reset();
  if (auto socket = entrance_.accept()) {
    send_refusal(*socket, 0,
                 failure(Code::kNoResource,
                         "the daemon is out of file descriptors; raise its limit (LimitNOFILE, ulimit -n)"));
    socket->reset();
  }
  reserve_ = spare_descriptor();
  MUSTER_LOG(kError, "supervisor", "out of file descriptors; raise the limit (LimitNOFILE, ulimit -n)");
}

}  // namespace muster::supervisor
