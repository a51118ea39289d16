// The write plan: which member writes which box of which tensor, and where. Every member computes the same
// one.
#pragma once

#include "api/base/checkpoint/saved.hpp"

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace muster::checkpoint {

// One member's part of a tensor.
struct OwnTensor {
  std::string name;  // empty: the user's state
  muster_dtype dtype = MUSTER_U8;
  std::size_t dims = 0;
  Index shape{};             // of the whole tensor
  std::vector<Box> boxes{};  // none, where the member has nothing of it
  friend bool operator==(const OwnTensor&, const OwnTensor&) = default;
};

struct WritePlan {
  // A box, by its places in the record.
  struct BoxIndex {
    std::size_t tensor = 0;
    std::size_t box = 0;
    friend bool operator==(const BoxIndex&, const BoxIndex&) = default;
  };

  // A box that several members have.
  struct Replicas {
    BoxIndex place;
    std::vector<std::int64_t> members;  // rising
    friend bool operator==(const Replicas&, const Replicas&) = default;
  };

  CheckpointRecord record;            // without checksums
  std::vector<std::int64_t> writers;  // the member that writes each of the record's files
  std::vector<Replicas> replicas;     // by place
};

// 1. Empty boxes are dropped first. Equal boxes of a tensor count as one: offsets and lengths identify them.
// 2. Among the members that have a box, the one with the fewest bytes so far writes it; among equals the
// first.
// 3. A member's boxes lie in its file end to end, by name and then by offset.
//
// Errors: kBadArgument naming tensor and members: other dtypes or shapes, a name that one member gives twice,
// boxes that overlap or leave a part of the tensor out; more metadata than a reader accepts.
Result<WritePlan> plan_write(std::span<const std::vector<OwnTensor>> members, std::uint64_t step);

// The boxes that a member writes, in the order of its file.
std::vector<WritePlan::BoxIndex> boxes_of(const WritePlan& plan, std::int64_t member);

}  // namespace muster::checkpoint
