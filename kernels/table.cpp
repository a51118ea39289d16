#include "kernels/table.hpp"

#include "kernels/device/registry.hpp"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "api/base/assert.hpp"

namespace muster::kernels {
namespace {

const std::vector<Kernel>& table() noexcept {
  static const std::vector<Kernel> written_out = [] {
    std::vector<Kernel> all;
    for (const FamilyRows rows : families())
      for (const Kernel& row : rows()) {
        // Families come in order of their ops, so this finds a number that is used twice.
        MUSTER_ASSERT(all.empty() || all.back().op < row.op);
        all.push_back(row);
      }
    return all;
  }();
  return written_out;
}

}  // namespace

std::span<const Kernel> all() noexcept {
  return table();
}

const Kernel* find(std::int32_t op) noexcept {
  const auto rows = all();
  const auto at = std::lower_bound(rows.begin(), rows.end(), op,
                                   [](const Kernel& k, std::int32_t o) { return k.op < o; });
  return at != rows.end() && at->op == op ? &*at : nullptr;
}

Status launch(device::Stream& stream, const Kernel& kernel, const Args& args) {
  const device::Kind kind = stream.kind();
  if (const Kernel::Launcher launcher = kernel.launchers[static_cast<std::size_t>(kind)]; launcher != nullptr)
    return launcher(stream, kernel, args);
  return failure(Code::kUnsupported,
                 "{}: this build has no implementation of it for a {} device; use a device of another kind",
                 kernel.name, device::kind_name(kind));
}

}  // namespace muster::kernels
