#include "kernels/table.hpp"

#include "kernels/device/host/device.hpp"

#include <algorithm>
#include <utility>

#include "api/base/assert.hpp"

namespace muster::kernels {
namespace {

// The most rows of the table; one runner is compiled for each.
constexpr std::size_t kRowsMax = 64;

struct Table {
  std::array<Kernel, kRowsMax> rows{};
  std::size_t count = 0;

  void append(std::span<const Kernel> family) {
    for (const Kernel& row : family) {
      MUSTER_ASSERT(count < kRowsMax);
      // Families come in order of their ops, so this finds a number that is used twice.
      MUSTER_ASSERT(count == 0 || rows[count - 1].op < row.op);
      rows[count++] = row;
    }
  }
};

const Table& table() noexcept {
  static const Table written_out = [] {
    Table t;
    for (const FamilyRows rows : families()) t.append(rows());
    return t;
  }();
  return written_out;
}

// A task carries one pointer. That is the args, which live until the work has finished, so the row has to be
// part of the runner's type.
template<std::size_t I>
void run_row(const void* args, std::uint32_t part) {
  table().rows[I].run(*static_cast<const Args*>(args), part);
}

template<std::size_t I>
void fold_row(const void* args, std::uint32_t) {
  table().rows[I].fold(*static_cast<const Args*>(args));
}

using Runner = void (*)(const void*, std::uint32_t);

template<std::size_t... I>
constexpr std::array<Runner, sizeof...(I)> runners(std::index_sequence<I...>) {
  return {&run_row<I>...};
}
template<std::size_t... I>
constexpr std::array<Runner, sizeof...(I)> folders(std::index_sequence<I...>) {
  return {&fold_row<I>...};
}

constexpr std::array<Runner, kRowsMax> kRunners = runners(std::make_index_sequence<kRowsMax>{});
constexpr std::array<Runner, kRowsMax> kFolders = folders(std::make_index_sequence<kRowsMax>{});

// A kernel whose outputs are all empty has nothing to do, however large its other sizes are.
bool writes_something(const Kernel& row, const Args& args) {
  for (std::size_t i = 0; i < row.operands.size(); ++i)
    if (row.operands[i].intent != Intent::kRead && args.tensors[i].present() && args.tensors[i].count() > 0)
      return true;
  return false;
}

}  // namespace

std::span<const Kernel> all() noexcept {
  return {table().rows.data(), table().count};
}

const Kernel* find(std::int32_t op) noexcept {
  const auto rows = all();
  const auto at = std::lower_bound(rows.begin(), rows.end(), op,
                                   [](const Kernel& k, std::int32_t o) { return k.op < o; });
  return at != rows.end() && at->op == op ? &*at : nullptr;
}

Status launch(device::Stream& stream, const Kernel& kernel, const Args& args) {
  const Kernel* row = find(kernel.op);
  MUSTER_ASSERT(row != nullptr);
  if (stream.kind() != device::Kind::kHost || row->run == nullptr)
    return failure(Code::kUnsupported, "{}: this build has no implementation of it for a {} device; use {}",
                   row->name, stream.kind() == device::Kind::kHost ? "host" : "cuda",
                   row->run != nullptr ? "a host device" : "another device");
  const auto index = static_cast<std::size_t>(row - all().data());
  const std::uint32_t parts = writes_something(*row, args) ? row->parts(args) : 0;
  MUSTER_RETURN_IF_ERROR(device::host::enqueue(stream, {kRunners[index], &args, parts}));
  if (row->fold == nullptr || parts < 2) return {};
  // A stream runs its tasks in order, so this one part runs after all parts above.
  return device::host::enqueue(stream, {kFolders[index], &args, 1});
}

}  // namespace muster::kernels
