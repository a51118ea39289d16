// Stream and Event of the cuda backend, and the launch of a kernel on a stream:
//
//   Launch launch(stream);                    // room, health and kind checked; the device is current
//   if (!launch.status().ok()) return launch.status();
//   my_kernel<<<grid, block, 0, launch.native()>>>(…);
//   return launch.finish("my_kernel");
#pragma once

#include "api/base/clock.hpp"
#include "kernels/device/cuda/status.hpp"
#include "kernels/device/device.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

#include <cuda_runtime_api.h>

namespace muster::device::cuda {

// Owns    two native events: the mark, and one at the beginning of the first work before it.
// Thread  query, synchronize: any. began_at, reached_at: a thread that has seen query() return true.
// Bound   reusable. reached_at() is when query() first returned true, because CUDA measures spans between
//         events, not the time of one.
// Fails   after a device error query() stays false, because the work did not finish, and synchronize()
//         returns.
class CudaEvent final : public Event {
 public:
  static Result<std::unique_ptr<Event>> create(std::uint32_t ordinal);
  ~CudaEvent() override;
  CudaEvent(const CudaEvent&) = delete;
  CudaEvent& operator=(const CudaEvent&) = delete;

  bool query() const noexcept override;
  void synchronize() const override { (void)cudaEventSynchronize(native_); }
  Instant began_at() const noexcept override;
  Instant reached_at() const noexcept override { return Instant(seen_ns_.load(std::memory_order_acquire)); }

  cudaEvent_t native() const noexcept { return native_; }
  std::uint32_t ordinal() const noexcept { return ordinal_; }
  // Prepares a new record. `begin` is recorded where the first work since the stream's last record began, if
  // `has_work`. Returns the former begin event, for the stream's next span.
  cudaEvent_t renew(cudaEvent_t begin, bool has_work) noexcept;

 private:
  CudaEvent(std::uint32_t ordinal, cudaEvent_t native, cudaEvent_t begin)
      : ordinal_(ordinal), native_(native), begin_(begin) {}

  SteadyClock clock_;
  std::uint32_t ordinal_;
  cudaEvent_t native_;
  cudaEvent_t begin_;
  bool has_work_ = false;
  mutable std::atomic<std::int64_t> seen_ns_{0};
};

// Owns    its cudaStream_t and fences. The destructor waits for the work in flight, which cannot be
//         cancelled.
// Thread  one issuing thread at a time; health() any.
// Bound   depth pieces in flight, counted at fences. Every depth/8-th piece is followed by a fence, so kBusy
//         lasts until a fence is passed.
// Fails   kBusy; the first device error stays in health().
class CudaStream final : public Stream {
 public:
  static Result<std::unique_ptr<Stream>> open(std::uint32_t ordinal, Priority priority, std::uint32_t depth);
  ~CudaStream() override;
  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  Kind kind() const noexcept override { return Kind::kCuda; }
  Status record(Event& event) override;
  Status wait(const Event& event) override;
  Status synchronize() override;
  Status health() const override;

  cudaStream_t native() const noexcept { return native_; }
  std::uint32_t ordinal() const noexcept { return ordinal_; }
  // Call before each piece of work. kBusy: `depth` pieces are in flight.
  Status admit();
  // Call after each piece of work. `error`: the result of its call; an error goes to health().
  Status admitted(cudaError_t error, const char* what);
  // Call before each launch: the first one since a record marks the beginning of the span.
  Status note_begin();

 private:
  static constexpr std::size_t kFences = 8;

  CudaStream(std::uint32_t ordinal, std::uint32_t depth, cudaStream_t native);
  Status fail_with(cudaError_t error, const char* what) const;

  std::uint32_t ordinal_;
  std::uint32_t depth_;
  std::uint32_t stride_;  // pieces between fences
  cudaStream_t native_;
  cudaEvent_t begin_ = nullptr;                // of the span since the last record
  bool span_open_ = false;                     // begin_ is recorded
  std::array<cudaEvent_t, kFences> fences_{};  // made at open
  std::array<std::uint64_t, kFences> fence_at_{};
  std::uint64_t issued_ = 0;
  std::uint64_t passed_ = 0;
  std::uint64_t fences_set_ = 0;
  std::uint64_t fences_passed_ = 0;
  mutable std::mutex failing_;
  mutable Status failure_;
};

// One launch on a stream: from the check to the report.
//
// Owns    nothing. Thread  the stream's issuing thread.  Bound  one piece of work.  Fails  status(),
// finish().
class Launch {
 public:
  explicit Launch(Stream& stream);
  Launch(const Launch&) = delete;
  Launch& operator=(const Launch&) = delete;

  const Status& status() const noexcept { return status_; }
  cudaStream_t native() const noexcept { return stream_->native(); }
  // Call after the launch. kDevice, also in the stream's health: CUDA refused the launch.
  Status finish(const char* what);

 private:
  CudaStream* stream_;
  CurrentDevice current_;
  Status status_;
};

}  // namespace muster::device::cuda
