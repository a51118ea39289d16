// The device seam: Device, Stream, Event, Memory. It has two backends, host/ and cuda/. Code above kernels/
// does not depend on the backend.
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
inline constexpr std::size_t kKinds = 2;

// More urgent first. A stream's priority orders it against the device's other streams; it never pre-empts a
// running part.
enum class Priority : std::uint8_t { kUrgent, kHigh, kNormal, kLow };

// A mark in a stream's order.
//
// Owns    its backend object.
// Thread  query and synchronize: any. The callers make sure that records of an event, and waits for it, come
//         one at a time over all streams.
// Bound   reusable: each record replaces the one before.
// Fails   never by itself. After a device error, which Stream::health() shows, query() stays false because
//         the work did not finish, and synchronize() returns.
class Event {
 public:
  virtual ~Event() = default;
  // True once all work before the last record has finished; true for an event that was never recorded. Memory
  // written by that work is visible to a caller that saw true. No system call on the host backend.
  virtual bool query() const noexcept = 0;
  // Blocks until query() would say true.
  virtual void synchronize() const = 0;
  // For a trace, on the host's monotonic clock: when the first work between the stream's previous record and
  // this one began, and when the last of it ended. Equal if there was none. Valid once query() was true.
  virtual Instant began_at() const noexcept = 0;
  virtual Instant reached_at() const noexcept = 0;
};

// An ordered queue of work on one device.
//
// Owns    its backend queue. When the destructor returns, none of its work runs.
// Thread  one issuing thread at a time.
// Bound   Options::depth pieces of work in flight; a full stream refuses with kBusy.
// Fails   health() keeps the first device error. Do not use a stream that has one.
class Stream {
 public:
  virtual ~Stream() = default;
  virtual Kind kind() const noexcept = 0;
  // Marks the end of the work enqueued so far.
  virtual Status record(Event& event) = 0;
  // Work enqueued from now on starts after the event's last record finished. An event that was never recorded
  // delays nothing.
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

// Owns    its queues and worker threads. Thread  open_stream, create_event, allocate, import: any.
// Bound   by the backend's Options.  Fails  with kNoResource (limits, memory) or kDevice (the device itself).
class Device {
 public:
  struct Info {
    Kind kind = Kind::kHost;
    std::uint32_t ordinal = 0;
    std::string name;                // "host (2 workers, AVX2)", "NVIDIA H100 80GB HBM3"
    std::uint64_t memory_bytes = 0;  // total
    std::uint32_t units = 0;         // workers, or multiprocessors
    // Its memory is the node's: threads and other processes read and write what they map of it.
    bool node_memory = false;
    // It pays to enqueue work before the work of other streams has ended that it waits for (Stream::wait).
    bool stream_waits = false;
  };

  virtual ~Device() = default;
  virtual const Info& info() const noexcept = 0;
  virtual Result<std::unique_ptr<Stream>> open_stream(Priority priority) = 0;
  virtual Result<std::unique_ptr<Event>> create_event() = 0;
  // At least `bytes` (> 0), zeroed and committed, so that no later access fails. kNoResource names the need
  // and the limit.
  virtual Result<std::unique_ptr<Memory>> allocate(std::size_t bytes) = 0;
  // All memory behind a descriptor that another process made and may still write. The descriptor stays the
  // caller's. Host: a memfd sealed against shrinking, whose bytes [first, first + bytes) are committed here.
  // Cuda: a Memory::descriptor() of another process, whose size is `bytes`. kBadArgument: any other
  // descriptor. kNoResource: as allocate().
  virtual Result<std::unique_ptr<Memory>> import(int descriptor, std::uint64_t first,
                                                 std::uint64_t bytes) = 0;
};

}  // namespace muster::device
