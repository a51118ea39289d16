#include "api/client/run/described.hpp"

#include "api/base/collective/collective.hpp"

#include <algorithm>
#include <numeric>
#include <span>
#include <vector>

namespace muster::client {
namespace {

std::span<const std::uint64_t> list_if(const std::uint64_t* list, bool used, std::int32_t ranks) {
  return list != nullptr && used ? std::span(list, static_cast<std::size_t>(ranks))
                                 : std::span<const std::uint64_t>();
}

std::vector<Face> faces_of(const Buffers& buffers, const muster_face* faces, std::uint32_t count,
                           std::vector<shm::PayloadLocation>* locations) {
  std::vector<Face> list;
  for (std::uint32_t i = 0; i < count; ++i) {
    const muster_tensor& view = faces[i].view;
    const muster_range start{view.buffer, view.offset_bytes};
    list.push_back(make_face(faces[i], buffers.address_of(start)));
    if (locations != nullptr) locations->push_back(buffers.location_of(start));
  }
  return list;
}

}  // namespace

Result<Described> described_of(Buffers& buffers, const muster_collective& said, std::int32_t index,
                               std::int32_t ranks) {
  const bool root = has_root(said.op) && said.peer == index;
  const bool sources = has_source_blocks(said.op, root);
  const bool targets = has_target_blocks(said.op, root);
  const muster_blocks& cut = targets ? said.target_blocks : said.source_blocks;
  const std::span piece_counts(cut.piece_counts,
                               cut.piece_counts == nullptr ? 0 : static_cast<std::size_t>(ranks));
  const std::size_t pieces = std::accumulate(piece_counts.begin(), piece_counts.end(), std::size_t{0});
  const Share::Counts counts{
      has_vectors(said.op) ? said.count : 0,
      list_if(said.source_blocks.counts, sources, ranks),
      list_if(said.source_blocks.offsets, sources, ranks),
      list_if(said.target_blocks.counts, targets, ranks),
      list_if(said.target_blocks.offsets, targets, ranks),
      piece_counts,
      {cut.pieces, pieces},
      said.source.buffer == said.target.buffer && said.source.offset_bytes == said.target.offset_bytes};
  Described described;
  described.group = said.group;
  MUSTER_ASSIGN_OR_RETURN(described.what, make_collective(said, index, ranks, counts));
  if (may_share_target(said.op)) {
    MUSTER_ASSIGN_OR_RETURN(described.what.shared_memory,
                            buffers.shared_target(said.target.buffer, said.group));
    if (described.what.shared_memory != 0) described.what.shared_offset = said.target.offset_bytes;
  }
  MUSTER_ASSIGN_OR_RETURN(described.mine, make_share(described.what, index, ranks, counts));
  if (has_faces(said.op)) {
    described.mine.sends = faces_of(buffers, said.sends, said.send_count, &described.sends);
    described.mine.receives = faces_of(buffers, said.receives, said.receive_count, nullptr);
    return described;
  }
  if (!described.mine.source_blocks.empty()) described.mine.source = buffers.address_of(said.source);
  if (said.target.buffer == 0 && may_lack_target(described.what, index)) described.mine.target_blocks.clear();
  if (!described.mine.target_blocks.empty()) described.mine.target = buffers.address_of(said.target);
  described.home = buffers.location_of(said.source);
  return described;
}

}  // namespace muster::client
