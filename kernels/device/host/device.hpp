// Host devices: their streams are lists of tasks, which the workers of a pool run.
#pragma once

#include "kernels/device/device.hpp"
#include "kernels/device/host/task.hpp"

#include <cstdint>
#include <memory>

namespace muster::device::host {

class Crew;

// Owns    as a Stream. Thread  as a Stream. Bound  as its pool says. Fails  submit: kBusy when it is full.
//
// All streams of kind host are of this class.
class TaskStream : public Stream {
 public:
  Kind kind() const noexcept final { return Kind::kHost; }
  virtual Status submit(const Task& task) = 0;
};

// A host device on a pool's crew. Devices of other ordinals on the same crew share its workers. The pool
// outlives the device; the device outlives its streams.
std::unique_ptr<Device> open_device(std::shared_ptr<Crew> crew, std::uint32_t ordinal);

// Puts a task on a host stream. kBusy when the stream is full; kBadArgument for a stream of another kind.
Status enqueue(Stream& stream, const Task& task);

}  // namespace muster::device::host
