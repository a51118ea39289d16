// From the placements of a case to the shares of its members.
#pragma once

#include "api/base/collective/collective.hpp"
#include "tests/transport/oracle.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace muster::transport::test {

inline Share::Counts said_by(const Placement& p) {
  const bool in_place = p.source == p.target && p.source != kNowhere;
  return {p.count,          p.source_counts, p.source_offsets, p.target_counts,
          p.target_offsets, p.piece_counts,  p.pieces,         in_place};
}

inline Face face_of(const FacePlace& place, muster_dtype dtype, std::byte* arena) {
  Face face;
  face.dtype = dtype;
  face.peer = place.peer;
  face.tag = place.tag;
  face.dims = static_cast<std::int32_t>(place.size.size());
  std::copy(place.size.begin(), place.size.end(), face.size.begin());
  std::copy(place.stride.begin(), place.stride.end(), face.stride.begin());
  face.data = arena + place.at;
  return face;
}

inline Result<Share> share_of(const Collective& collective, std::int32_t ranks, const Placement& p,
                              std::byte* arena) {
  MUSTER_ASSIGN_OR_RETURN(Share share, make_share(collective, p.index, ranks, said_by(p)));
  share.source = p.source == kNowhere ? nullptr : arena + p.source;
  share.target = p.target == kNowhere ? nullptr : arena + p.target;
  for (const FacePlace& place : p.sends) share.sends.push_back(face_of(place, collective.dtype, arena));
  for (const FacePlace& place : p.receives) share.receives.push_back(face_of(place, collective.dtype, arena));
  MUSTER_RETURN_IF_ERROR(check_share(collective, share, ranks));
  return share;
}

inline Result<std::vector<Share>> shares_of(const Collective& collective, std::int32_t ranks,
                                            std::span<const Placement> placements, std::byte* arena) {
  std::vector<Share> shares;
  for (const Placement& p : placements) {
    MUSTER_ASSIGN_OR_RETURN(Share share, share_of(collective, ranks, p, arena));
    shares.push_back(std::move(share));
  }
  return shares;
}

inline std::vector<const Share*> pointers_to(const std::vector<Share>& shares) {
  std::vector<const Share*> pointers;
  for (const Share& share : shares) pointers.push_back(&share);
  return pointers;
}

// Whether the targets of the members for which `is_asked` are as they are in `right`.
template<class IsAsked>
bool are_right(std::span<const Placement> members, std::span<const Share> shares,
               std::span<const std::byte> arena, std::span<const std::byte> right, IsAsked is_asked) {
  for (std::size_t i = 0; i < shares.size(); ++i) {
    const std::size_t target = members[i].target;
    if (target == kNowhere || !is_asked(static_cast<std::uint32_t>(shares[i].index))) continue;
    std::size_t next = arena.size();
    for (const Placement& other : members)
      for (const std::size_t at : {other.source, other.target})
        if (at != kNowhere && at > target) next = std::min(next, at);
    if (!std::equal(arena.begin() + static_cast<std::ptrdiff_t>(target),
                    arena.begin() + static_cast<std::ptrdiff_t>(next),
                    right.begin() + static_cast<std::ptrdiff_t>(target)))
      return false;
  }
  return true;
}

}  // namespace muster::transport::test
