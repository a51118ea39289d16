#include "kernels/device/cuda/status.hpp"

#include <string>

namespace muster::device::cuda {

std::string cuda_status_text(cudaError_t error) {
  return fmt::format("{} ({}): {}", cudaGetErrorName(error), static_cast<int>(error),
                     cudaGetErrorString(error));
}

// The driver's own names need the driver. The runtime has the same numbers, so its names serve for both.
std::string cuda_status_text(CUresult error) {
  return cuda_status_text(static_cast<cudaError_t>(error));
}

Status cuda_status(cudaError_t error, const char* what) {
  switch (error) {
    case cudaSuccess:
      return {};
    case cudaErrorInsufficientDriver:
    case cudaErrorStubLibrary:
    case cudaErrorSystemDriverMismatch:
      return failure(Code::kUnsupported,
                     "no CUDA driver on this node, or one older than CUDA {}.{} needs ({}); install the "
                     "NVIDIA driver, or use "
                     "devices of kind host",
                     CUDART_VERSION / 1000, CUDART_VERSION % 1000 / 10, cuda_status_text(error));
    case cudaErrorNoDevice:
      return failure(Code::kUnsupported,
                     "no CUDA device is visible to this process ({}); check nvidia-smi and "
                     "CUDA_VISIBLE_DEVICES, or use devices "
                     "of kind host",
                     cuda_status_text(error));
    case cudaErrorMemoryAllocation:
      return failure(Code::kNoResource, "{}: {}", what, cuda_status_text(error));
    default:
      return failure(Code::kDevice, "{}: {}", what, cuda_status_text(error));
  }
}

Status cuda_status(CUresult error, const char* what) {
  return cuda_status(static_cast<cudaError_t>(error), what);
}

CurrentDevice::CurrentDevice(std::uint32_t ordinal) {
  int before = -1;
  error_ = cudaGetDevice(&before);
  if (error_ != cudaSuccess || before == static_cast<int>(ordinal)) {
    // In a fresh thread the current device is only a number; cudaSetDevice makes its context current too.
    if (error_ == cudaSuccess) error_ = cudaSetDevice(before);
    return;
  }
  error_ = cudaSetDevice(static_cast<int>(ordinal));
  if (error_ == cudaSuccess) before_ = before;
}

CurrentDevice::~CurrentDevice() {
  if (before_ >= 0) (void)cudaSetDevice(before_);
}

}  // namespace muster::device::cuda
