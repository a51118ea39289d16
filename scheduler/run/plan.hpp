// Plan: validated work that a client may start any number of times (decision D5).
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/collective/rooms.hpp"
#include "api/base/collective/signature.hpp"
#include "api/base/ids.hpp"
#include "kernels/kernel.hpp"

#include <cstdint>
#include <string>
#include <variant>
#include <vector>

namespace muster::scheduler {

// One kernel on one rank's device.
struct KernelWork {
  const kernels::Kernel* kernel = nullptr;
  kernels::Args args;
};

// One rank's part in a collective of its group.
struct CollectiveWork {
  GroupId group;
  Collective collective;
  Share share;
  Signature signature;
  std::string site;  // place in the client's program, for reports; may be empty
  Rooms rooms{};     // for starts with offsets of their own

  std::int32_t index() const { return share.index; }  // of this rank in the group
  bool point_to_point() const { return is_transfer(collective.op); }
};

// The object behind a client's plan handle. Only starts_in_flight changes after creation.
struct Plan {
  std::variant<KernelWork, CollectiveWork> work;
  SessionId owner;          // the attachment that made it
  std::uint64_t bytes = 0;  // payload at this rank's target; 0 for kernels
  std::uint32_t starts_in_flight = 0;
  std::vector<Handle> buffers;  // held as long as the plan lives; each once

  const CollectiveWork* collective() const { return std::get_if<CollectiveWork>(&work); }
  const KernelWork* kernel() const { return std::get_if<KernelWork>(&work); }
  // "linear_forward", "all_reduce".
  const char* label() const;
};

}  // namespace muster::scheduler
