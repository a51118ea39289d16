// The seam to libraries that move bytes between nodes. A Network is one node's side of such a library; an
// Endpoint is its connection to one peer; a Transfer is one operation on it. Libraries: transport/ucx,
// transport/ofi. tests/transport/network_conformance.hpp is the suite.
//
// 1. Every operation ends once, by done(), which only progress() calls. Until then its memory, and the
//    Transfer, are the library's: also after a failure, because late bytes may still arrive.
// 2. Messages of one endpoint and one tag go to its receives in order. Nothing else is ordered, neither
//    between tags nor between messages and writes. flush() ends when the writes before it are in the peer's
//    memory. Nor are ends: done() of a short message may come before that of a long one sent earlier.
// 3. A peer that is gone fails its endpoint as soon as the library notices. All its operations end then, each
//    with the same Status; new ones are refused with it. A library may not notice for long, or never
//    (libfabric): a caller that knows better closes the endpoint.
// 4. A message may be shorter than the memory of its receive; done() reports its length. Nothing of a longer
//    message is written beyond that memory, and the receive ends with kProtocol. With libfabric, if the
//    message is long, it ends with its endpoint. The send of a longer one may not end before its network
//    does.
// 5. Keys and addresses are bytes of a peer: malformed ones are refused.
#pragma once

#include "api/base/ids.hpp"
#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace muster::transport {

using Bytes = std::span<const std::byte>;
using WritableBytes = std::span<std::byte>;

// Chooses which message a receive takes. The highest 16 bits are the library's, and one tag more.
using MessageTag = std::uint64_t;
constexpr MessageTag kMessageTagMax = (MessageTag{1} << 48) - 2;

// One operation on an endpoint, as its owner sees it.
//
// Owns    nothing. Thread  that of its network. Bound  one operation at a time. Fails  by done().
class Transfer {
 public:
  virtual ~Transfer() = default;
  // kOk; the Status of a failed endpoint; kProtocol: a message was longer than its memory; kAborted: the
  // endpoint was closed. `bytes`: for a receive the length of its message; for all others the length that was
  // asked; 0 after a failure. The transfer may be destroyed or used again from here on.
  virtual void done(const Status& status, std::size_t bytes) = 0;
};

// A peer's memory, into which this node may write and from which it may read.
//
// Owns    what the library needs for it; it ends before its endpoint.
// Thread  that of its network. Bound  bytes(). Fails  never.
class RemoteMemory {
 public:
  virtual ~RemoteMemory() = default;
  virtual std::uint64_t bytes() const noexcept = 0;
};

// Memory of this node that peers may reach by its key, until this object is destroyed.
//
// Owns    the registration, not the memory. It ends before its network.
// Thread  that of its network. Bound  -. Fails  never.
class RegisteredMemory {
 public:
  virtual ~RegisteredMemory() = default;
  // For Endpoint::open_memory() of a peer. No two registrations of a network have the same key.
  virtual Bytes key() const noexcept = 0;
};

// Owns    the connection. To destroy it closes it: no peer is waited for, and operations that have not ended
//         end with kAborted. A library may keep the memory of a write or send until it fails.
// Thread  that of its network.
// Bound   -. The caller bounds what it begins.
// Fails   each call: the Status of a failed endpoint, kBadArgument, kNoResource. Nothing was begun then.
class Endpoint {
 public:
  virtual ~Endpoint() = default;
  virtual NodeIndex peer() const noexcept = 0;
  // OK, or why it has failed: kPeerLost with the library's reason.
  virtual Status status() const = 0;

  // One message. It may be shorter than the memory of its receive; zero is a length.
  virtual Status send(MessageTag tag, Bytes from, Transfer& transfer) = 0;
  virtual Status receive(MessageTag tag, WritableBytes into, Transfer& transfer) = 0;

  // kBadArgument: no key of the peer.
  virtual Result<std::unique_ptr<RemoteMemory>> open_memory(Bytes key) = 0;
  // Writes to, or reads from, the memory at `offset`. kBadArgument: beyond its end.
  virtual Status put(Bytes from, const RemoteMemory& memory, std::uint64_t offset, Transfer& transfer) = 0;
  virtual Status get(WritableBytes into, const RemoteMemory& memory, std::uint64_t offset,
                     Transfer& transfer) = 0;
  // Done once all puts that were begun before are in the peer's memory.
  virtual Status flush(Transfer& transfer) = 0;
};

// Owns    the library's state; endpoints and registrations end before it.
// Thread  one at a time, its endpoints included: the owner sees to that.
// Bound   progress: never waits.
// Fails   connect: kBadArgument (no address), kNoResource. register_memory: kNoResource.
class Network {
 public:
  virtual ~Network() = default;
  // This node's address, for connect() at a peer. It tells of former connections: two nodes take both
  // addresses anew for each attempt, before either of them connects. The bytes are valid until the next
  // connect().
  virtual Bytes address() const noexcept = 0;
  // `peer`: that node's index. The two ends find each other with the first operations.
  virtual Result<std::unique_ptr<Endpoint>> connect(NodeIndex peer, Bytes address) = 0;
  virtual Result<std::unique_ptr<RegisteredMemory>> register_memory(WritableBytes memory) = 0;

  // Moves all that can be moved, and calls done() of each operation that has ended. Returns their number.
  virtual std::size_t progress() = 0;
  // False: progress() has something to do. True: descriptor() becomes readable once it has.
  virtual bool arm() = 0;
  virtual int descriptor() const noexcept = 0;
  // Messages of at least so many bytes: all operations of an endpoint end soon after it is closed, whatever
  // its peer does, and their memory is free then. SIZE_MAX: the library may keep memory until it ends.
  virtual std::size_t freed_on_close_from() const noexcept = 0;
  // The name for reports: "UCX 1.13.1", "libfabric 1.17: tcp;ofi_rxm".
  virtual std::string describe() const = 0;
};

}  // namespace muster::transport
