// CUDA's errors as Status.
#pragma once

#include "api/base/result.hpp"

#include <cstddef>
#include <cstdint>

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

// Makes a device current for the calls of this scope and puts the caller's back.
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
  int before_ = -1;  // -1: nothing to put back
};

}  // namespace muster::device::cuda
