// check_share(): whether a member's half can be carried out.
#include "api/base/collective/collective.hpp"
#include "api/base/collective/overlap.hpp"
#include "api/base/collective/rooms.hpp"
#include "api/base/dtype.hpp"
#include "api/base/empty_view.hpp"

#include <algorithm>
#include <limits>
#include <string>

namespace muster {
namespace {

__extension__ using Wide = unsigned __int128;

constexpr std::uint64_t kBytesMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());

// Blocks that are written must lie apart, and also apart from what is read, but for places "in place".
Status check_places(const Collective& c, const Share& share) {
  const std::span<const Block> blocks = share.target_blocks;
  const std::vector<std::uint32_t> order = in_order(blocks);
  for (std::size_t k = 1; k < order.size(); ++k)
    if (blocks[order[k - 1]].offset + blocks[order[k - 1]].count > blocks[order[k]].offset)
      return failure(Code::kBadArgument, "blocks {} and {} of member {}'s target overlap", order[k - 1],
                     order[k], share.index);
  const Rooms::Offsets at{reinterpret_cast<std::uintptr_t>(share.source),
                          reinterpret_cast<std::uintptr_t>(share.target)};
  return check_reads(c, share, at, order);
}

Status check_memory(const Collective& c, const Share& share, std::size_t bytes) {
  const std::uint64_t gives = count_of(share.source_blocks);
  const std::uint64_t gets = count_of(share.target_blocks);
  if (gives > 0 && share.source == nullptr)
    return failure(Code::kBadArgument, "member {} has no source; {} bytes are read from it", share.index,
                   gives * bytes);
  if (gets > 0 && share.target == nullptr && !may_lack_target(c, share.index))
    return failure(Code::kBadArgument, "member {} has no target; {} bytes are written to it", share.index,
                   gets * bytes);
  return Status();
}

std::string name_of(const Share& share, const char* list, std::size_t i) {
  const Face& face = (list[0] == 's' ? share.sends : share.receives)[i];
  return fmt::format("{}[{}] of member {} (peer {}, tag {})", list, i, share.index, face.peer, face.tag);
}

// One face by itself. `data` of an empty face is not looked at.
Status check_face(const Face& face, std::int32_t ranks, const std::string& name) {
  const std::size_t bytes = face.element_bytes();
  if (bytes == 0)
    return failure(Code::kBadArgument, "{}: dtype {} is none that muster.h names", name, face.dtype);
  if (face.peer < 0 || face.peer >= ranks)
    return failure(Code::kBadArgument, "{}: the peer is not a member: the group has 0..{}", name, ranks - 1);
  if (face.dims < 0 || face.dims > MUSTER_TENSOR_DIMS_MAX)
    return failure(Code::kBadArgument, "{}: {} dims; 0 to {} are possible", name, face.dims,
                   MUSTER_TENSOR_DIMS_MAX);
  Wide count = 1;
  Wide last = 0;
  const bool empty = has_no_elements(face);
  bool large = false;
  for (std::size_t d = 0; d < static_cast<std::size_t>(face.dims); ++d) {
    const std::int64_t size = face.size[d];
    const std::int64_t stride = face.stride[d];
    if (size < 0 || (!empty && (stride < 0 || (size > 1 && stride == 0))))
      return failure(Code::kBadArgument,
                     "{}: size {} and stride {} of dim {}: a size is 0 or more, a stride 1 or more", name,
                     size, stride, d);
    if (empty || size <= 1 || large) continue;
    count *= static_cast<Wide>(size);
    last += static_cast<Wide>(size - 1) * static_cast<Wide>(stride);
    large = count > kBytesMax / bytes || last > kBytesMax / bytes - 1;
  }
  if (empty) return Status();
  if (large) return failure(Code::kBadArgument, "{}: the view has, or spans, more than 2^63 bytes", name);
  if (face.data == nullptr)
    return failure(Code::kBadArgument, "{}: there is no memory for its {} elements", name, face.count());
  return Status();
}

Status check_tags(const Share& share, const char* list, std::span<const Face> faces) {
  std::vector<std::size_t> order(faces.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return std::pair(faces[a].peer, faces[a].tag) < std::pair(faces[b].peer, faces[b].tag);
  });
  for (std::size_t k = 1; k < order.size(); ++k) {
    const Face& a = faces[order[k - 1]];
    const Face& b = faces[order[k]];
    if (a.peer == b.peer && a.tag == b.tag)
      return failure(Code::kBadArgument, "{} and {}[{}] are one edge; give each its own tag",
                     name_of(share, list, std::min(order[k - 1], order[k])), list,
                     std::max(order[k - 1], order[k]));
  }
  return Status();
}

// A face that lies somewhere, by the address range that it spans.
struct Placed {
  std::uintptr_t first = 0;
  std::uintptr_t last = 0;
  const Face* face = nullptr;
  const char* list = nullptr;
  std::size_t place = 0;
};

void place_faces(std::vector<Placed>& placed, const char* list, std::span<const Face> faces) {
  for (std::size_t i = 0; i < faces.size(); ++i) {
    const Face& face = faces[i];
    if (face.count() == 0) continue;
    std::uint64_t last = 0;
    for (std::size_t d = 0; d < static_cast<std::size_t>(face.dims); ++d)
      if (face.size[d] > 1)
        last += static_cast<std::uint64_t>(face.size[d] - 1) * static_cast<std::uint64_t>(face.stride[d]);
    const auto first = reinterpret_cast<std::uintptr_t>(face.data);
    placed.push_back({first, first + (last + 1) * face.element_bytes(), &face, list, i});
  }
}

// A face that is written must overlap no other face.
Status check_faces_apart(const Share& share) {
  std::vector<Placed> placed;
  place_faces(placed, "sends", share.sends);
  const std::size_t reads = placed.size();
  place_faces(placed, "receives", share.receives);
  for (std::size_t i = reads; i < placed.size(); ++i)
    if (!is_nested(*placed[i].face))
      return failure(Code::kBadArgument,
                     "{}: elements may overlap: each stride must be beyond the extent of the dims inside it",
                     name_of(share, placed[i].list, placed[i].place));
  std::sort(placed.begin(), placed.end(), [](const Placed& a, const Placed& b) { return a.first < b.first; });
  OverlapBudget budget;
  for (std::size_t i = 0; i < placed.size(); ++i)
    for (std::size_t j = i + 1; j < placed.size() && placed[j].first < placed[i].last; ++j) {
      const bool both_read = placed[i].list[0] == 's' && placed[j].list[0] == 's';
      if (both_read) continue;
      const BytesShared found = overlap_of(*placed[i].face, *placed[j].face, budget);
      if (found == BytesShared::kNone) continue;
      return failure(Code::kBadArgument, "{} and {} {}; what is received must lie apart from the rest",
                     name_of(share, placed[i].list, placed[i].place),
                     name_of(share, placed[j].list, placed[j].place),
                     found == BytesShared::kSome ? "overlap" : "interleave in a way that is not told apart");
    }
  return Status();
}

Status check_faces(const Share& share, std::int32_t ranks) {
  for (std::size_t i = 0; i < share.sends.size(); ++i)
    MUSTER_RETURN_IF_ERROR(check_face(share.sends[i], ranks, name_of(share, "sends", i)));
  for (std::size_t i = 0; i < share.receives.size(); ++i)
    MUSTER_RETURN_IF_ERROR(check_face(share.receives[i], ranks, name_of(share, "receives", i)));
  MUSTER_RETURN_IF_ERROR(check_tags(share, "sends", share.sends));
  MUSTER_RETURN_IF_ERROR(check_tags(share, "receives", share.receives));
  return check_faces_apart(share);
}

}  // namespace

Status check_share(const Collective& collective, const Share& share, std::int32_t ranks) {
  if (share.index < 0 || share.index >= ranks)
    return failure(Code::kBadArgument, "member index {} is not in the group's 0..{}", share.index, ranks - 1);
  if (!has_data(collective.op)) return Status();
  if (has_faces(collective.op)) return check_faces(share, ranks);
  const std::size_t bytes = dtype_bytes(collective.dtype);
  MUSTER_RETURN_IF_ERROR(check_memory(collective, share, bytes));
  if (share.target == nullptr) return Status();  // nothing is written: what is read may overlap
  if (collective.shared_memory != 0 && has_reduction(collective.op) && collective.count > 0 &&
      share.source == share.target)
    return failure(Code::kBadArgument,
                   "member {} gives what lies in the node-shared target, where all members' results are one: "
                   "the source of an all_reduce must lie elsewhere",
                   share.index);
  return check_places(collective, share);
}

}  // namespace muster
