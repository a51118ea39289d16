#include "kernels/device/cuda/driver.hpp"

#include "kernels/device/cuda/status.hpp"

namespace muster::device::cuda {
namespace {

// The CUDA version whose signatures of the calls we use; later drivers still provide them.
constexpr unsigned kSignature = 11000;

template<class Function>
Status find(const char* symbol, Function* function) {
  void* address = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  const cudaError_t error =
      cudaGetDriverEntryPointByVersion(symbol, &address, kSignature, cudaEnableDefault, &found);
  if (error != cudaSuccess) return cuda_status(error, symbol);
  if (found != cudaDriverEntryPointSuccess || address == nullptr)
    return failure(Code::kUnsupported,
                   "the CUDA driver of this node has no {}; install one for CUDA 11.0 or later", symbol);
  *function = reinterpret_cast<Function>(address);
  return {};
}

Status load(Driver* d) {
  MUSTER_RETURN_IF_ERROR(find("cuDeviceGetAttribute", &d->device_get_attribute));
  MUSTER_RETURN_IF_ERROR(find("cuMemGetAllocationGranularity", &d->mem_get_allocation_granularity));
  MUSTER_RETURN_IF_ERROR(find("cuMemCreate", &d->mem_create));
  MUSTER_RETURN_IF_ERROR(find("cuMemRelease", &d->mem_release));
  MUSTER_RETURN_IF_ERROR(find("cuMemAddressReserve", &d->mem_address_reserve));
  MUSTER_RETURN_IF_ERROR(find("cuMemAddressFree", &d->mem_address_free));
  MUSTER_RETURN_IF_ERROR(find("cuMemMap", &d->mem_map));
  MUSTER_RETURN_IF_ERROR(find("cuMemUnmap", &d->mem_unmap));
  MUSTER_RETURN_IF_ERROR(find("cuMemSetAccess", &d->mem_set_access));
  MUSTER_RETURN_IF_ERROR(find("cuMemExportToShareableHandle", &d->mem_export));
  return find("cuMemImportFromShareableHandle", &d->mem_import);
}

}  // namespace

Result<const Driver*> driver() {
  static Driver table;
  static const Status loaded = load(&table);
  if (!loaded.ok()) return fail(loaded);
  return &table;
}

}  // namespace muster::device::cuda
