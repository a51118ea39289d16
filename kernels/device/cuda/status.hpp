// CUDA errors as Status.
#pragma once

#include "api/base/result.hpp"

#include <cstdint>
#include <string>

#include <cuda.h>
#include <cuda_runtime_api.h>

namespace muster::device::cuda {

// "cudaErrorIllegalAddress (700): an illegal memory access was encountered". Static parts only; never empty.
std::string cuda_status_text(cudaError_t error);
std::string cuda_status_text(CUresult error);

// OK, kUnsupported (no driver, or one too old), kNoResource (memory) or kDevice; `what` names the call for a
// person.
Status cuda_status(cudaError_t error, const char* what);
Status cuda_status(CUresult error, const char* what);

// Makes a device current in this scope, and then restores the caller's device.
//
// Owns    nothing. Thread  the one that made it.  Bound  a scope.  Fails  status().
class CurrentDevice {
 public:
  explicit CurrentDevice(std::uint32_t ordinal);
  ~CurrentDevice();
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  Status status() const { return cuda_status(error_, "cudaSetDevice"); }

 private:
  cudaError_t error_ = cudaSuccess;
  int before_ = -1;  // -1: nothing to restore
};

}  // namespace muster::device::cuda
