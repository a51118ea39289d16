#include "kernels/device/registry.hpp"

#include "api/base/node_limits.hpp"
#include "kernels/device/host/device.hpp"

#ifdef MUSTER_HAVE_CUDA
#include "kernels/device/cuda/device.hpp"
#endif

namespace muster::device {
namespace {

#ifdef MUSTER_HAVE_CUDA
Result<std::uint32_t> cuda_count() {
  return cuda::device_count();
}
Result<std::unique_ptr<Device>> cuda_open(std::uint32_t ordinal) {
  return cuda::open_device(ordinal);
}
#else
tl::unexpected<Status> not_built() {
  return fail(Code::kUnsupported,
              "this build has no cuda devices; configure with MUSTER_CUDA=ON, or use devices of kind host");
}
Result<std::uint32_t> cuda_count() {
  return not_built();
}
Result<std::unique_ptr<Device>> cuda_open(std::uint32_t) {
  return not_built();
}
#endif

}  // namespace

const char* kind_name(Kind kind) noexcept {
  switch (kind) {
    case Kind::kHost:
      return "host";
    case Kind::kCuda:
      return "cuda";
  }
  return "unknown";
}

Result<std::uint32_t> device_count(Kind kind) {
  switch (kind) {
    case Kind::kHost:
      return 1u;
    case Kind::kCuda:
      return cuda_count();
  }
  return fail(Code::kBadArgument, "device kind {} is neither host nor cuda", static_cast<unsigned>(kind));
}

Result<std::unique_ptr<Device>> open(const DeviceId& id, const Pool& pool) {
  switch (id.kind) {
    case Kind::kHost:
      if (id.ordinal >= kRanksOnNodeMax)
        return fail(Code::kBadArgument, "host device {} was asked for; a node has 0..{}", id.ordinal,
                    kRanksOnNodeMax - 1);
      return host::open_device(pool.crew(), id.ordinal);
    case Kind::kCuda:
      return cuda_open(id.ordinal);
  }
  return fail(Code::kBadArgument, "device kind {} is neither host nor cuda", static_cast<unsigned>(id.kind));
}

}  // namespace muster::device
