// The device seam: Device, Stream, Event, Memory. Two backends: host/ and cuda/. Nothing above kernels/ and
// transport/nccl knows which one it has.
//
// The suite in tests/kernels/device/device_conformance.hpp says what every backend must do.
#pragma once

#include "api/base/clock.hpp"
#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace muster::device {

enum class Kind : std::uint8_t { kHost, kCuda };

// More urgent first. A stream's priority orders it against the device's other streams; it never pre-empts a
// running part.
enum class Priority : std::uint8_t { kUrgent, kHigh, kNormal, kLow };

// A mark in a stream's order.
//
// Owns    its backend object.
// Thread  query and synchronize: any; record, and waits for it: one at a time over all streams, which the
//         callers see to.
// Bound   reusable: each record starts a new life.
// Fails   never by itself; a device error shows in Stream::health(), and leaves query() false, since that
//         work did not finish, while synchronize() returns.
class Event {
 public:
  virtual ~Event() = default;
  // True once all work before the last record has finished; true for an event that was never recorded. Memory
  // written by that work is visible to a caller that saw true. No system call on the host backend.
  virtual bool query() const noexcept = 0;
  // Blocks until query() would say true.
  virtual void synchronize() const = 0;
  // For a host trace, on the monotonic clock: when the first work between the stream's previous record and
  // this one began, and when the last of it finished. Equal if there was none. Valid after query() said true.
  virtual Instant began_at() const noexcept = 0;
  virtual Instant reached_at() const noexcept = 0;
};

// An ordered queue of work on one device.
//
// Owns    its backend queue; once it is destroyed nothing of its work runs any more.
// Thread  one issuing thread at a time.
// Bound   Options::depth pieces of work in flight; a full stream refuses with kBusy.
// Fails   health() keeps the first device error; a stream with one is not used again.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Kind kind() const noexcept = 0;
  // Marks the end of the work enqueued so far.
  virtual Status record(Event& event) = 0;
  // Work enqueued from now on starts after the event's last record finished. A never-recorded event is no
  // wait.
  virtual Status wait(const Event& event) = 0;
  // Blocks until everything enqueued has finished.
  virtual Status synchronize() = 0;
  virtual Status health() const = 0;
};

// A range of device memory that can be handed to another process as a descriptor.
//
// Owns    the allocation and its descriptor. Thread  any (immutable).
// Bound   bytes() as granted: the request rounded up to the device's granule.  Fails  only at creation.
class Memory {
 public:
  virtual ~Memory() = default;
  // Address in this process; on cuda a device address. Zeroed at creation.
  virtual std::byte* data() const noexcept = 0;
  virtual std::size_t bytes() const noexcept = 0;
  // A descriptor that another process maps (host: sealed memfd; cuda: VMM posix descriptor). Owned by this
  // object: dup it to keep it. -1 if the device cannot export.
  virtual int descriptor() const noexcept = 0;
};

struct DeviceInfo {
  Kind kind = Kind::kHost;
  std::uint32_t ordinal = 0;
  std::string name;                // "host (2 workers, AVX2)", "NVIDIA H100 80GB HBM3"
  std::uint64_t memory_bytes = 0;  // total
  std::uint32_t units = 0;         // workers, or multiprocessors
};

// Owns    its queues and worker threads. Thread  open_stream, create_event, allocate, import: any.
// Bound   by the backend's Options.  Fails  with kNoResource (limits, memory) or kDevice (the device itself).
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const noexcept = 0;
  virtual Result<std::unique_ptr<Stream>> open_stream(Priority priority) = 0;
  virtual Result<std::unique_ptr<Event>> create_event() = 0;
  // At least `bytes` (> 0), zeroed and committed: a later touch cannot fail. kNoResource names need and
  // limit.
  virtual Result<std::unique_ptr<Memory>> allocate(std::size_t bytes) = 0;
  // All of the memory behind a descriptor that somebody else made and may go on writing; the descriptor stays
  // the caller's. Host: a memfd sealed against shrinking, of which bytes [first, first + bytes) are committed
  // before this returns. Cuda: what Memory::descriptor() of another process gave; all of its `bytes` are
  // there. kBadArgument for any other descriptor; kNoResource as allocate.
  virtual Result<std::unique_ptr<Memory>> import(int descriptor, std::uint64_t first,
                                                 std::uint64_t bytes) = 0;
};

}  // namespace muster::device
