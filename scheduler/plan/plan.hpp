// Plan: validated work, ready to start as often as wanted (decision D5). And its signature, by which ranks
// agree.
#pragma once

#include "api/base/ids.hpp"
#include "kernels/kernel.hpp"
#include "transport/collective/communicator.hpp"

#include <array>
#include <cstdint>
#include <string>
#include <variant>

namespace muster::scheduler {

// 128 bits over every field that the members of a group must agree on. Equal signatures: same operation.
struct Signature {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  friend bool operator==(const Signature&, const Signature&) = default;
};

Signature signature_of(const transport::Collective& collective);

// The first field in which two collectives differ, as words: "count: 4096 and 4097". Empty if none.
std::string difference(const transport::Collective& a, const transport::Collective& b);

// One kernel on one rank's device.
struct KernelWork {
  const kernels::Kernel* kernel = nullptr;
  kernels::Args args;
};

// One rank's part in a collective of its group.
struct CollectiveWork {
  GroupId group;
  std::int32_t index = 0;  // this rank in the group
  transport::Collective collective;
  Signature signature;
  const std::byte* source = nullptr;
  std::byte* target = nullptr;

  bool point_to_point() const { return collective.op == MUSTER_SEND || collective.op == MUSTER_RECV; }
};

// What a client's handle names. Immutable after creation, but for starts_in_flight.
struct Plan {
  std::variant<KernelWork, CollectiveWork> work;
  SessionId owner;          // the attachment that made it
  std::uint64_t bytes = 0;  // payload at this rank's target; 0 for kernels
  std::uint32_t starts_in_flight = 0;
  std::array<Handle, MUSTER_KERNEL_TENSORS_MAX> buffers{};  // held as long as the plan lives
  std::uint32_t buffer_count = 0;

  const CollectiveWork* collective() const { return std::get_if<CollectiveWork>(&work); }
  const KernelWork* kernel() const { return std::get_if<KernelWork>(&work); }
  // "linear_forward", "all_reduce".
  const char* label() const;
};

const char* op_name(muster_op op) noexcept;          // "all_reduce"
const char* redop_name(muster_redop op) noexcept;    // "sum"
const char* lane_name(std::uint32_t lane) noexcept;  // "gather"

}  // namespace muster::scheduler
