#include "kernels/device/host/device.hpp"

#include "api/shm/headroom.hpp"
#include "kernels/device/host/crew.hpp"
#include "kernels/device/host/memory.hpp"
#include "kernels/math/reduce.hpp"

#include <utility>

namespace muster::device::host {

// Owns    its slot. Thread  query, synchronize: any.  Bound  reusable.  Fails  never.
class HostEvent final : public Event {
 public:
  explicit HostEvent(std::shared_ptr<Crew> crew) : crew_(std::move(crew)), slot_(crew_->create_event()) {}
  ~HostEvent() override { crew_->destroy_event(slot_); }
  HostEvent(const HostEvent&) = delete;
  HostEvent& operator=(const HostEvent&) = delete;

  bool query() const noexcept override { return slot_->pending.load(std::memory_order_acquire) == 0; }
  void synchronize() const override { crew_->await_event(slot_); }
  Instant began_at() const noexcept override { return slot_->began; }
  Instant reached_at() const noexcept override { return slot_->reached; }

  const Crew* crew() const noexcept { return crew_.get(); }
  EventSlot* slot() const noexcept { return slot_; }

 private:
  std::shared_ptr<Crew> crew_;
  EventSlot* slot_;
};

// Owns    its slot. The destructor drops tasks that have not started.
// Thread  one issuing thread at a time. Bound  PoolOptions::depth.  Fails  kBusy; kState after the pool
// closed.
class HostStream final : public TaskStream {
 public:
  HostStream(std::shared_ptr<Crew> crew, StreamSlot* slot) : crew_(std::move(crew)), slot_(slot) {}
  ~HostStream() override { crew_->close_stream(slot_); }
  HostStream(const HostStream&) = delete;
  HostStream& operator=(const HostStream&) = delete;

  Status record(Event& event) override {
    auto* mine = dynamic_cast<HostEvent*>(&event);
    MUSTER_RETURN_IF_ERROR(check(mine, "record"));
    return crew_->record(slot_, mine->slot());
  }
  Status wait(const Event& event) override {
    const auto* mine = dynamic_cast<const HostEvent*>(&event);
    MUSTER_RETURN_IF_ERROR(check(mine, "wait"));
    return crew_->wait(slot_, mine->slot());
  }
  Status synchronize() override { return crew_->await_stream(slot_); }
  Status health() const override {
    if (crew_->stopped()) return failure(Code::kState, "the stream's pool is closed");
    return {};
  }

  Status submit(const Task& task) override { return crew_->submit(slot_, task); }

 private:
  Status check(const HostEvent* event, const char* what) const {
    if (event == nullptr)
      return failure(Code::kBadArgument,
                     "{}: the event belongs to another kind of device than this host stream", what);
    if (event->crew() != crew_.get())
      return failure(Code::kBadArgument, "{}: the event belongs to another pool than this host stream", what);
    return {};
  }

  std::shared_ptr<Crew> crew_;
  StreamSlot* slot_;
};

// Owns    a share of the crew. Thread  any.
// Bound   streams_max of the pool; memory by limits of process, cgroup and node.  Fails  kNoResource,
// kBadArgument.
class HostDevice final : public Device {
 public:
  HostDevice(std::shared_ptr<Crew> crew, std::uint32_t ordinal) : crew_(std::move(crew)) {
    info_.kind = Kind::kHost;
    info_.ordinal = ordinal;
    info_.node_memory = true;
    info_.memory_bytes = shm::memory_capacity();
    info_.units = crew_->workers() > 0 ? crew_->workers() : 1;
    info_.name = crew_->workers() > 0
                     ? fmt::format("host ({} workers, {})", crew_->workers(), math::simd_target())
                     : "host (driven by hand)";
  }

  const Device::Info& info() const noexcept override { return info_; }

  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override {
    MUSTER_ASSIGN_OR_RETURN(StreamSlot * slot, crew_->open_stream(priority));
    return std::make_unique<HostStream>(crew_, slot);
  }
  Result<std::unique_ptr<Event>> create_event() override { return std::make_unique<HostEvent>(crew_); }
  Result<std::unique_ptr<Memory>> allocate(std::size_t bytes) override { return allocate_shared(bytes); }
  Result<std::unique_ptr<Memory>> import(int descriptor, std::uint64_t first, std::uint64_t bytes) override {
    return import_shared(descriptor, first, bytes);
  }

 private:
  std::shared_ptr<Crew> crew_;
  Device::Info info_;
};

std::unique_ptr<Device> open_device(std::shared_ptr<Crew> crew, std::uint32_t ordinal) {
  return std::make_unique<HostDevice>(std::move(crew), ordinal);
}

Status enqueue(Stream& stream, const Task& task) {
  if (stream.kind() != Kind::kHost)
    return failure(Code::kBadArgument,
                   "a host task was put on a stream that is not a host stream; launch it through the table");
  if (task.run == nullptr && task.parts > 0)
    return failure(Code::kBadArgument, "a task of {} parts has no function to run", task.parts);
  return static_cast<TaskStream&>(stream).submit(task);
}

}  // namespace muster::device::host
