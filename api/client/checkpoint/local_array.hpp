// A tensor of the caller, checked: which boxes this rank has, and where they lie in its memory.
#pragma once

#include "api/base/checkpoint/write_plan.hpp"
#include "api/base/layout/layout.hpp"
#include "api/base/result.hpp"
#include "api/client/checkpoint/group_members.hpp"

#include <muster/checkpoint.h>

#include <cstddef>
#include <string>
#include <vector>

namespace muster::client {

struct LocalArray {
  std::string name;
  muster_dtype dtype = MUSTER_U8;
  std::size_t dims = 0;
  Index shape{};  // of the whole tensor
  std::vector<Layout::Piece> pieces{};
  std::byte* first = nullptr;
  Index strides{};  // in elements
  checkpoint::OwnTensor own() const;
};

// Errors: kBadArgument naming tensor, field and value; kUnsupported (memory that this process does not see);
// those of muster_buffer_query.
Result<std::vector<LocalArray>> local_arrays(const GroupMembers& members,
                                             const muster_checkpoint_tensor* tensors, std::size_t count);

}  // namespace muster::client
