#include "kernels/device/cuda/memory.hpp"

#include "kernels/device/cuda/driver.hpp"
#include "kernels/device/cuda/status.hpp"

#include <bit>

#include <fcntl.h>
#include <unistd.h>

namespace muster::device::cuda {
namespace {

// Owns    an address range, the allocation mapped there, and the descriptor; each only if it was made.
// Thread  any (immutable once returned). Bound  bytes().
// Fails   never after creation. No work in flight may use it when it is destroyed.
class MappedMemory final : public Memory {
 public:
  MappedMemory(const Driver* driver, std::uint32_t ordinal) : driver_(driver), ordinal_(ordinal) {}
  ~MappedMemory() override {
    const CurrentDevice current(ordinal_);
    if (mapped_) (void)driver_->mem_unmap(address_, bytes_);
    if (address_ != 0) (void)driver_->mem_address_free(address_, bytes_);
    if (allocation_ != 0) (void)driver_->mem_release(allocation_);
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;

  // Takes the allocation over, also on failure.
  Status map(CUmemGenericAllocationHandle allocation, std::size_t bytes) {
    allocation_ = allocation;
    bytes_ = bytes;
    MUSTER_RETURN_IF_ERROR(
        cuda_status(driver_->mem_address_reserve(&address_, bytes, 0, 0, 0), "cuMemAddressReserve"));
    MUSTER_RETURN_IF_ERROR(cuda_status(driver_->mem_map(address_, bytes, 0, allocation, 0), "cuMemMap"));
    mapped_ = true;
    CUmemAccessDesc access{};
    access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    access.location.id = static_cast<int>(ordinal_);
    access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
    return cuda_status(driver_->mem_set_access(address_, bytes, &access, 1), "cuMemSetAccess");
  }

  Status export_descriptor() {
    int descriptor = -1;
    MUSTER_RETURN_IF_ERROR(cuda_status(
        driver_->mem_export(&descriptor, allocation_, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0),
        "cuMemExportToShareableHandle"));
    descriptor_ = descriptor;
    (void)::fcntl(descriptor_, F_SETFD, FD_CLOEXEC);
    return {};
  }

  std::byte* data() const noexcept override { return std::bit_cast<std::byte*>(address_); }
  std::size_t bytes() const noexcept override { return bytes_; }
  int descriptor() const noexcept override { return descriptor_; }

 private:
  const Driver* driver_;
  std::uint32_t ordinal_;
  CUmemGenericAllocationHandle allocation_ = 0;
  CUdeviceptr address_ = 0;
  std::size_t bytes_ = 0;
  bool mapped_ = false;
  int descriptor_ = -1;
};

// Owns    one cudaMalloc. Thread  any (immutable).  Bound  bytes().  Fails  never after creation.
class PlainMemory final : public Memory {
 public:
  PlainMemory(std::uint32_t ordinal, std::byte* data, std::size_t bytes)
      : ordinal_(ordinal), data_(data), bytes_(bytes) {}
  ~PlainMemory() override {
    const CurrentDevice current(ordinal_);
    (void)cudaFree(data_);
  }
  PlainMemory(const PlainMemory&) = delete;
  PlainMemory& operator=(const PlainMemory&) = delete;

  std::byte* data() const noexcept override { return data_; }
  std::size_t bytes() const noexcept override { return bytes_; }
  int descriptor() const noexcept override { return -1; }

 private:
  std::uint32_t ordinal_;
  std::byte* data_;
  std::size_t bytes_;
};

bool has(const Driver& driver, CUdevice_attribute attribute, std::uint32_t ordinal) {
  int value = 0;
  return driver.device_get_attribute(&value, attribute, static_cast<CUdevice>(ordinal)) == CUDA_SUCCESS &&
         value != 0;
}

Status short_of(std::size_t bytes, std::uint32_t ordinal, const char* call) {
  std::size_t free = 0, total = 0;
  (void)cudaMemGetInfo(&free, &total);
  return failure(Code::kNoResource,
                 "{} bytes of memory of cuda device {} are needed, {} are free of its {} ({}); ask for less "
                 "or free buffers",
                 bytes, ordinal, free, total, call);
}

Result<std::unique_ptr<Memory>> allocate_mapped(const Driver& driver, std::uint32_t ordinal,
                                                std::size_t bytes) {
  CUmemAllocationProp wanted{};
  wanted.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  wanted.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  wanted.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  wanted.location.id = static_cast<int>(ordinal);
  std::size_t granule = 0;
  MUSTER_RETURN_IF_ERROR(cuda_status(
      driver.mem_get_allocation_granularity(&granule, &wanted, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED),
      "cuMemGetAllocationGranularity"));
  const std::size_t granted = (bytes + granule - 1) / granule * granule;
  CUmemGenericAllocationHandle allocation = 0;
  const CUresult error = driver.mem_create(&allocation, granted, &wanted, 0);
  if (error == CUDA_ERROR_OUT_OF_MEMORY) return fail(short_of(granted, ordinal, "cuMemCreate"));
  MUSTER_RETURN_IF_ERROR(cuda_status(error, "cuMemCreate"));
  auto memory = std::make_unique<MappedMemory>(&driver, ordinal);
  MUSTER_RETURN_IF_ERROR(memory->map(allocation, granted));
  MUSTER_RETURN_IF_ERROR(memory->export_descriptor());
  return memory;
}

Result<std::unique_ptr<Memory>> allocate_plain(std::uint32_t ordinal, std::size_t bytes) {
  void* data = nullptr;
  const cudaError_t error = cudaMalloc(&data, bytes);
  if (error == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();  // clear it, so that the check of a later launch does not find this refusal
    return fail(short_of(bytes, ordinal, "cudaMalloc"));
  }
  MUSTER_RETURN_IF_ERROR(cuda_status(error, "cudaMalloc"));
  return std::make_unique<PlainMemory>(ordinal, static_cast<std::byte*>(data), bytes);
}

}  // namespace

Result<std::unique_ptr<Memory>> allocate_memory(std::uint32_t ordinal, std::size_t bytes,
                                                cudaStream_t stream) {
  if (bytes == 0)
    return fail(Code::kBadArgument, "0 bytes of cuda memory were asked for; ask for at least 1");
  const CurrentDevice current(ordinal);
  MUSTER_RETURN_IF_ERROR(current.status());
  std::size_t free = 0, total = 0;
  MUSTER_RETURN_IF_ERROR(cuda_status(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  if (bytes > total) return fail(short_of(bytes, ordinal, "more than the device has"));
  MUSTER_ASSIGN_OR_RETURN(const Driver* const calls, driver());
  const bool exports = has(*calls, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, ordinal) &&
                       has(*calls, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, ordinal);
  MUSTER_ASSIGN_OR_RETURN(std::unique_ptr<Memory> memory,
                          exports ? allocate_mapped(*calls, ordinal, bytes) : allocate_plain(ordinal, bytes));
  MUSTER_RETURN_IF_ERROR(cuda_status(cudaMemsetAsync(memory->data(), 0, memory->bytes(), stream),
                                     "zeroing with cudaMemsetAsync"));
  MUSTER_RETURN_IF_ERROR(cuda_status(cudaStreamSynchronize(stream), "zeroing with cudaMemsetAsync"));
  return memory;
}

Result<std::unique_ptr<Memory>> import_memory(std::uint32_t ordinal, int descriptor, std::size_t bytes) {
  if (descriptor < 0 || bytes == 0)
    return fail(Code::kBadArgument, "descriptor {} of {} bytes is no exported cuda memory", descriptor,
                bytes);
  const CurrentDevice current(ordinal);
  MUSTER_RETURN_IF_ERROR(current.status());
  MUSTER_ASSIGN_OR_RETURN(const Driver* const calls, driver());
  CUmemGenericAllocationHandle allocation = 0;
  MUSTER_RETURN_IF_ERROR(
      cuda_status(calls->mem_import(&allocation, std::bit_cast<void*>(static_cast<std::intptr_t>(descriptor)),
                                    CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR),
                  "cuMemImportFromShareableHandle"));
  auto memory = std::make_unique<MappedMemory>(calls, ordinal);
  MUSTER_RETURN_IF_ERROR(memory->map(allocation, bytes));
  return memory;
}

}  // namespace muster::device::cuda
