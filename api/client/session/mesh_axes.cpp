#include "api/client/session/mesh_axes.hpp"

#include "api/client/session/session.hpp"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <string_view>
#include <vector>

namespace muster::client {
namespace {

// The ranks of the group along the dim through this rank, in order. Empty for a dim of one rank, which
// overlaps nothing.
Result<std::vector<std::int32_t>> ranks_along(muster_session& session, const char* dim) {
  MUSTER_ASSIGN_OR_RETURN(const auto answer, session.groups().dim(dim));
  if (answer.group == MUSTER_GROUP_SELF) return std::vector<std::int32_t>();
  MUSTER_ASSIGN_OR_RETURN(const Groups::Facts* facts, session.groups().facts(answer.group));
  std::vector<std::int32_t> ranks = facts->ranks;
  std::ranges::sort(ranks);
  return ranks;
}

}  // namespace

Status check_apart(muster_session* session, std::span<const NamedAxis> axes) {
  std::vector<std::vector<std::int32_t>> ranks(axes.size());
  for (std::size_t i = 0; i < axes.size(); ++i) {
    if (axes[i].name == nullptr) continue;
    for (std::size_t j = 0; j < i; ++j)
      if (axes[j].name != nullptr && std::string_view(axes[i].name) == axes[j].name)
        return failure(Code::kBadArgument,
                       "axes {} and {} are both {}; a dim of the mesh can be one axis of a layout, so leave "
                       "one of them out",
                       j, i, axes[i].name);
    if (!axes[i].of_mesh || session == nullptr) continue;
    MUSTER_ASSIGN_OR_RETURN(ranks[i], ranks_along(*session, axes[i].name));
    for (std::size_t j = 0; j < i; ++j) {
      std::vector<std::int32_t> common;
      std::ranges::set_intersection(ranks[j], ranks[i], std::back_inserter(common));
      if (common.size() > 1)
        return failure(Code::kBadArgument,
                       "axes {} ({}) and {} ({}) overlap: these dims of the mesh have more than one rank in "
                       "common; name dims that are not parts of each other",
                       j, axes[j].name, i, axes[i].name);
    }
  }
  return {};
}

}  // namespace muster::client
