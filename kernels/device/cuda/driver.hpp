// The driver calls that we use, found at run time: nothing links libcuda, so one build runs without it too.
#pragma once

#include "api/base/result.hpp"

#include <cuda.h>

namespace muster::device::cuda {

// Owns    nothing: entry points of the driver, which stays loaded.
// Thread  any (immutable).
// Bound   one per process.
// Fails   in driver(): kUnsupported, naming the missing call.
struct Driver {
  decltype(&::cuDeviceGetAttribute) device_get_attribute = nullptr;
  decltype(&::cuMemGetAllocationGranularity) mem_get_allocation_granularity = nullptr;
  decltype(&::cuMemCreate) mem_create = nullptr;
  decltype(&::cuMemRelease) mem_release = nullptr;
  decltype(&::cuMemAddressReserve) mem_address_reserve = nullptr;
  decltype(&::cuMemAddressFree) mem_address_free = nullptr;
  decltype(&::cuMemMap) mem_map = nullptr;
  decltype(&::cuMemUnmap) mem_unmap = nullptr;
  decltype(&::cuMemSetAccess) mem_set_access = nullptr;
  decltype(&::cuMemExportToShareableHandle) mem_export = nullptr;
  decltype(&::cuMemImportFromShareableHandle) mem_import = nullptr;
};

// Loaded at the first call.
Result<const Driver*> driver();

}  // namespace muster::device::cuda
