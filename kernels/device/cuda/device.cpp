#include "kernels/device/cuda/device.hpp"

#include "kernels/device/cuda/memory.hpp"
#include "kernels/device/cuda/status.hpp"
#include "kernels/device/cuda/stream.hpp"

#include <mutex>
#include <utility>

namespace muster::device::cuda {
namespace {

constexpr std::uint32_t kDepthMax = 1 << 20;

// Owns    a stream for zeroing; the primary context stays with the process.
// Thread  any. Bound  the GPU's memory; `depth` of open_device() per stream.  Fails  kNoResource, kDevice.
class CudaDevice final : public Device {
 public:
  CudaDevice(Device::Info info, std::uint32_t depth, cudaStream_t zeroing)
      : info_(std::move(info)), depth_(depth), zeroing_(zeroing) {}
  ~CudaDevice() override {
    const CurrentDevice current(info_.ordinal);
    (void)cudaStreamDestroy(zeroing_);
  }
  CudaDevice(const CudaDevice&) = delete;
  CudaDevice& operator=(const CudaDevice&) = delete;

  const Device::Info& info() const noexcept override { return info_; }
  Result<std::unique_ptr<Stream>> open_stream(Priority priority) override {
    return CudaStream::open(info_.ordinal, priority, depth_);
  }
  Result<std::unique_ptr<Event>> create_event() override { return CudaEvent::create(info_.ordinal); }
  Result<std::unique_ptr<Memory>> allocate(std::size_t bytes) override {
    const std::lock_guard<std::mutex> lock(allocating_);  // one user of the zeroing stream at a time
    return allocate_memory(info_.ordinal, bytes, zeroing_);
  }
  Result<std::unique_ptr<Memory>> import(int descriptor, std::uint64_t, std::uint64_t bytes) override {
    return import_memory(info_.ordinal, descriptor, bytes);
  }

 private:
  Device::Info info_;
  std::uint32_t depth_;
  cudaStream_t zeroing_;
  std::mutex allocating_;
};

}  // namespace

Result<std::uint32_t> device_count() {
  int count = 0;
  MUSTER_RETURN_IF_ERROR(cuda_status(cudaGetDeviceCount(&count), "cudaGetDeviceCount"));
  if (count == 0) return fail(cuda_status(cudaErrorNoDevice, "cudaGetDeviceCount"));
  return static_cast<std::uint32_t>(count);
}

Result<std::unique_ptr<Device>> open_device(std::uint32_t ordinal, std::uint32_t depth) {
  if (depth == 0 || depth > kDepthMax)
    return fail(Code::kBadArgument, "depth is {}; a stream has 1..{}", depth, kDepthMax);
  MUSTER_ASSIGN_OR_RETURN(const std::uint32_t count, device_count());
  if (ordinal >= count)
    return fail(Code::kBadArgument, "cuda device {} was asked for; this process sees devices 0..{}", ordinal,
                count - 1);
  const CurrentDevice current(ordinal);
  MUSTER_RETURN_IF_ERROR(current.status());
  cudaDeviceProp properties{};
  MUSTER_RETURN_IF_ERROR(cuda_status(cudaGetDeviceProperties(&properties, static_cast<int>(ordinal)),
                                     "cudaGetDeviceProperties"));
  cudaStream_t zeroing = nullptr;
  MUSTER_RETURN_IF_ERROR(
      cuda_status(cudaStreamCreateWithFlags(&zeroing, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"));
  Device::Info info;
  info.kind = Kind::kCuda;
  info.ordinal = ordinal;
  info.name = properties.name;
  info.memory_bytes = properties.totalGlobalMem;
  info.units = static_cast<std::uint32_t>(properties.multiProcessorCount);
  info.stream_waits = true;
  return std::make_unique<CudaDevice>(std::move(info), depth, zeroing);
}

}  // namespace muster::device::cuda
