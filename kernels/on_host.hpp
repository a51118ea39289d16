// The launcher of a row for host devices, made of the row's code for one part and for its fold.
#pragma once

#include "kernels/kernel.hpp"

#include <array>
#include <cstdint>

namespace muster::kernels {

// Those of a row, for each kind of device.
constexpr std::array<Kernel::Launcher, device::kKinds> launchers(Kernel::Launcher host,
                                                                 Kernel::Launcher cuda = nullptr) {
  return {host, cuda};
}

// `run` once for each of the row's parts, then `fold`, if there is one and several parts. Both get the args.
// No part runs if all outputs are empty.
Status enqueue_parts(device::Stream& stream, const Kernel& row, const Args& args,
                     void (*run)(const void* args, std::uint32_t part),
                     void (*fold)(const void* args, std::uint32_t part));

// Run     Runs one part on a worker, and writes only that part of the outputs.
// Fold    Adds up Args::partials.
//
// A task carries one pointer, that of the args. So the code has to be part of the launcher's type.
template<void (*Run)(const Args&, std::uint32_t), void (*Fold)(const Args&) = nullptr>
Status on_host(device::Stream& stream, const Kernel& row, const Args& args) {
  const auto run = [](const void* of, std::uint32_t part) { Run(*static_cast<const Args*>(of), part); };
  if constexpr (Fold == nullptr) {
    return enqueue_parts(stream, row, args, run, nullptr);
  } else {
    const auto fold = [](const void* of, std::uint32_t) { Fold(*static_cast<const Args*>(of)); };
    return enqueue_parts(stream, row, args, run, fold);
  }
}

}  // namespace muster::kernels
