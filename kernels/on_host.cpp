#include "kernels/on_host.hpp"

#include "kernels/device/host/device.hpp"

#include <cstddef>

namespace muster::kernels {
namespace {

// A kernel whose outputs are all empty has nothing to do, however large its other sizes are.
bool writes_something(const Kernel& row, const Args& args) {
  for (std::size_t i = 0; i < row.operands.size(); ++i)
    if (row.operands[i].intent != Operand::kRead && args.tensors[i].present() && args.tensors[i].count() > 0)
      return true;
  return false;
}

}  // namespace

Status enqueue_parts(device::Stream& stream, const Kernel& row, const Args& args,
                     void (*run)(const void* args, std::uint32_t part),
                     void (*fold)(const void* args, std::uint32_t part)) {
  const std::uint32_t parts = writes_something(row, args) ? row.parts(args) : 0;
  MUSTER_RETURN_IF_ERROR(device::host::enqueue(stream, {run, &args, parts}));
  if (fold == nullptr || parts < 2) return {};
  // A stream runs its tasks in order, so this one part runs after all parts above.
  return device::host::enqueue(stream, {fold, &args, 1});
}

}  // namespace muster::kernels
