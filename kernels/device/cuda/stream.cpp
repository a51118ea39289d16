#include "kernels/device/cuda/stream.hpp"

#include <algorithm>
#include <utility>

namespace muster::device::cuda {
namespace {

// Maps the four priorities to the device's range. In CUDA a larger number is less urgent.
int native_priority(Priority priority, int least, int greatest) {
  const int step = static_cast<int>(priority);
  return greatest + (least - greatest) * step / static_cast<int>(Priority::kLow);
}

}  // namespace

Result<std::unique_ptr<Event>> CudaEvent::create(std::uint32_t ordinal) {
  const CurrentDevice current(ordinal);
  MUSTER_RETURN_IF_ERROR(current.status());
  cudaEvent_t native = nullptr;
  cudaEvent_t begin = nullptr;
  MUSTER_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&native), "cudaEventCreate"));
  if (const cudaError_t error = cudaEventCreate(&begin); error != cudaSuccess) {
    (void)cudaEventDestroy(native);
    return fail(cuda_status(error, "cudaEventCreate"));
  }
  return std::unique_ptr<Event>(new CudaEvent(ordinal, native, begin));
}

CudaEvent::~CudaEvent() {
  (void)cudaEventDestroy(native_);
  (void)cudaEventDestroy(begin_);
}

cudaEvent_t CudaEvent::renew(cudaEvent_t begin, bool has_work) noexcept {
  seen_ns_.store(0, std::memory_order_release);
  has_work_ = has_work;
  return std::exchange(begin_, begin);
}

bool CudaEvent::query() const noexcept {
  if (cudaEventQuery(native_) != cudaSuccess) return false;
  std::int64_t unseen = 0;
  if (seen_ns_.load(std::memory_order_relaxed) == 0)
    seen_ns_.compare_exchange_strong(unseen, clock_.now().count(), std::memory_order_acq_rel);
  return true;
}

Instant CudaEvent::began_at() const noexcept {
  float milliseconds = 0.0f;
  if (!has_work_ || cudaEventElapsedTime(&milliseconds, begin_, native_) != cudaSuccess) return reached_at();
  return reached_at() - Nanos(static_cast<std::int64_t>(static_cast<double>(milliseconds) * 1e6));
}

CudaStream::CudaStream(std::uint32_t ordinal, std::uint32_t depth, cudaStream_t native)
    : ordinal_(ordinal),
      depth_(depth),
      stride_(std::max(1u, depth / static_cast<std::uint32_t>(kFences))),
      native_(native) {}

Result<std::unique_ptr<Stream>> CudaStream::open(std::uint32_t ordinal, Priority priority,
                                                 std::uint32_t depth) {
  const CurrentDevice current(ordinal);
  MUSTER_RETURN_IF_ERROR(current.status());
  int least = 0, greatest = 0;
  MUSTER_RETURN_IF_ERROR(
      cuda_status(cudaDeviceGetStreamPriorityRange(&least, &greatest), "cudaDeviceGetStreamPriorityRange"));
  cudaStream_t native = nullptr;
  // Non-blocking, so that a library that uses the legacy default stream puts no barrier between our streams.
  MUSTER_RETURN_IF_ERROR(cuda_status(cudaStreamCreateWithPriority(&native, cudaStreamNonBlocking,
                                                                  native_priority(priority, least, greatest)),
                                     "cudaStreamCreateWithPriority"));
  std::unique_ptr<CudaStream> stream(new CudaStream(ordinal, depth, native));
  for (cudaEvent_t& fence : stream->fences_)
    MUSTER_RETURN_IF_ERROR(
        cuda_status(cudaEventCreateWithFlags(&fence, cudaEventDisableTiming), "cudaEventCreateWithFlags"));
  MUSTER_RETURN_IF_ERROR(cuda_status(cudaEventCreate(&stream->begin_), "cudaEventCreate"));
  return stream;
}

CudaStream::~CudaStream() {
  const CurrentDevice current(ordinal_);
  (void)cudaStreamSynchronize(native_);
  for (cudaEvent_t fence : fences_)
    if (fence != nullptr) (void)cudaEventDestroy(fence);
  if (begin_ != nullptr) (void)cudaEventDestroy(begin_);
  (void)cudaStreamDestroy(native_);
}

Status CudaStream::fail_with(cudaError_t error, const char* what) const {
  const std::lock_guard<std::mutex> lock(failing_);
  if (failure_.ok()) failure_ = cuda_status(error, what);
  return failure_;
}

Status CudaStream::health() const {
  {
    const std::lock_guard<std::mutex> lock(failing_);
    if (!failure_.ok()) return failure_;
  }
  const CurrentDevice current(ordinal_);
  const cudaError_t error = cudaStreamQuery(native_);
  if (error == cudaSuccess || error == cudaErrorNotReady) return {};
  return fail_with(error, "work on the stream");
}

Status CudaStream::admit() {
  {
    const std::lock_guard<std::mutex> lock(failing_);
    if (!failure_.ok()) return failure_;
  }
  if (issued_ - passed_ < depth_) return {};
  while (fences_passed_ < fences_set_) {
    const cudaError_t error = cudaEventQuery(fences_[fences_passed_ % kFences]);
    if (error == cudaErrorNotReady) break;
    if (error != cudaSuccess) return fail_with(error, "work on the stream");
    passed_ = fence_at_[fences_passed_ % kFences];
    ++fences_passed_;
  }
  if (issued_ - passed_ < depth_) return {};
  return failure(Code::kBusy, "{} pieces of work are in flight, the stream's depth; wait for one",
                 issued_ - passed_);
}

// A passed fence frees its slot. At most depth / stride_ fences are pending, so a slot is free, except where
// the division leaves a remainder. Then the fence is set at a later piece.
Status CudaStream::admitted(cudaError_t error, const char* what) {
  if (error != cudaSuccess) return fail_with(error, what);
  ++issued_;
  const std::uint64_t last = fences_set_ == 0 ? 0 : fence_at_[(fences_set_ - 1) % kFences];
  if (issued_ - last < stride_) return {};
  if (fences_set_ - fences_passed_ == kFences) {
    const cudaError_t oldest = cudaEventQuery(fences_[fences_passed_ % kFences]);
    if (oldest == cudaErrorNotReady) return {};
    if (oldest != cudaSuccess) return fail_with(oldest, "work on the stream");
    passed_ = fence_at_[fences_passed_ % kFences];
    ++fences_passed_;
  }
  if (const cudaError_t set = cudaEventRecord(fences_[fences_set_ % kFences], native_); set != cudaSuccess)
    return fail_with(set, "cudaEventRecord of a fence");
  fence_at_[fences_set_ % kFences] = issued_;
  ++fences_set_;
  return {};
}

Status CudaStream::record(Event& event) {
  auto* mine = dynamic_cast<CudaEvent*>(&event);
  if (mine == nullptr || mine->ordinal() != ordinal_)
    return failure(Code::kBadArgument, "record: the event does not belong to cuda device {}", ordinal_);
  const CurrentDevice current(ordinal_);
  MUSTER_RETURN_IF_ERROR(current.status());
  MUSTER_RETURN_IF_ERROR(admit());
  begin_ = mine->renew(begin_, std::exchange(span_open_, false));
  return admitted(cudaEventRecord(mine->native(), native_), "cudaEventRecord");
}

Status CudaStream::note_begin() {
  if (std::exchange(span_open_, true)) return {};
  const cudaError_t error = cudaEventRecord(begin_, native_);
  return error == cudaSuccess ? Status() : fail_with(error, "cudaEventRecord of a span's begin");
}

Status CudaStream::wait(const Event& event) {
  const auto* mine = dynamic_cast<const CudaEvent*>(&event);
  if (mine == nullptr)
    return failure(Code::kBadArgument,
                   "wait: the event belongs to another kind of device than cuda device {}", ordinal_);
  const CurrentDevice current(ordinal_);
  MUSTER_RETURN_IF_ERROR(current.status());
  MUSTER_RETURN_IF_ERROR(admit());
  return admitted(cudaStreamWaitEvent(native_, mine->native(), 0), "cudaStreamWaitEvent");
}

Status CudaStream::synchronize() {
  MUSTER_RETURN_IF_ERROR(health());
  const CurrentDevice current(ordinal_);
  if (const cudaError_t error = cudaStreamSynchronize(native_); error != cudaSuccess)
    return fail_with(error, "cudaStreamSynchronize");
  return {};
}

Launch::Launch(Stream& stream)
    : stream_(dynamic_cast<CudaStream*>(&stream)), current_(stream_ != nullptr ? stream_->ordinal() : 0) {
  if (stream_ == nullptr) {
    status_ = failure(Code::kBadArgument, "a cuda launch was put on a stream of another kind of device");
    return;
  }
  status_ = current_.status();
  if (status_.ok()) status_ = stream_->admit();
  if (status_.ok()) status_ = stream_->note_begin();
  // A query of an event that was not ready leaves that answer as this thread's last error. Clear it.
  (void)cudaGetLastError();
}

Status Launch::finish(const char* what) {
  return stream_->admitted(cudaGetLastError(), what);
}

}  // namespace muster::device::cuda
