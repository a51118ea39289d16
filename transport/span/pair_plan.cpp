#include "transport/span/pair_plan.hpp"

#include "api/base/collective/signature.hpp"
#include "api/base/dtype.hpp"
#include "transport/span/wire.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <tuple>

namespace muster::transport::span {
namespace {

constexpr std::size_t kPieceBytes = kChunkBytes / 2;
constexpr std::size_t kLongBytes = 64 << 10;  // of a segment
// A short stream of faces has shorter pieces. A library moves longer ones by rendezvous: its answer to a node
// would wait behind all that this node sends there.
constexpr std::size_t kShortFacesBytes = 256 << 10;
constexpr std::size_t kPieceOfFacesBytes = (64 << 10) - 64;
static_assert(kPieceBytes % 8 == 0 && kPieceOfFacesBytes % 8 == 0, "a piece has whole elements");

std::size_t at(std::int32_t member) {
  return static_cast<std::size_t>(member);
}

// Members [first, last) of a group.
struct MemberRange {
  std::int32_t first = 0, last = 0;
  bool has(std::int32_t member) const { return first <= member && member < last; }
};
MemberRange givers_of(const Collective& c, std::int32_t ranks) {
  return is_transfer(c.op) || c.op == MUSTER_SCATTER ? MemberRange{c.root, c.root + 1}
                                                     : MemberRange{0, ranks};
}
MemberRange getters_of(const Collective& c, std::int32_t ranks) {
  if (is_transfer(c.op)) return {c.receiver, c.receiver + 1};
  return c.op == MUSTER_GATHER ? MemberRange{c.root, c.root + 1} : MemberRange{0, ranks};
}

}  // namespace

std::size_t PairStream::Segment::element_bytes() const {
  if (const auto* face = std::get_if<const Face*>(&data)) return (*face)->element_bytes();
  return std::get<BlockOfMember>(data).element;
}

void PairStream::add(std::uint64_t length, std::variant<BlockOfMember, const Face*> data) {
  if (length == 0) return;
  const std::size_t element = Segment{0, length, data}.element_bytes();
  bytes = (bytes + element - 1) / element * element;
  segments.push_back({bytes, length, data});
  bytes += length;
}

void PairStream::cut(std::size_t piece_bytes) {
  bool is_open = false;  // the last chunk takes more short segments
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const std::uint64_t begin = segments[i].begin, end = begin + segments[i].bytes;
    if (segments[i].bytes >= std::min(kLongBytes, piece_bytes)) {
      for (std::uint64_t from = begin; from < end; from += piece_bytes)
        chunks.push_back({from, std::min(end, from + piece_bytes), i, i + 1});
      is_open = false;
    } else if (is_open && end - chunks.back().begin <= piece_bytes) {
      chunks.back().end = end;
      chunks.back().last = i + 1;
    } else {
      chunks.push_back({begin, end, i, i + 1});
      is_open = true;
    }
  }
}

bool PairStream::goes_inline() const {
  return bytes <= kInlineBytes;
}

PairPlan::PairPlan(const Collective& c, const Span& span, std::span<const LocalMember> members,
                   std::size_t direct_from) {
  find_nodes(c, span, members);
  between.resize(nodes.size());
  has_faces(c.op) ? add_faces(span, members) : add_blocks(c, span, members);
  for (Between& each : between) {
    for (PairStream* const stream : {&each.out, &each.in})
      stream->cut(has_faces(c.op) && stream->bytes < kShortFacesBytes ? kPieceOfFacesBytes : kPieceBytes);
    most_chunks = std::max<std::uint64_t>({most_chunks, each.out.chunks.size(), each.in.chunks.size()});
    chunks_out += each.out.chunks.size();
    chunks += each.out.chunks.size() + (&each != &between[here] ? each.in.chunks.size() : 0);
    is_large =
        is_large || (&each != &between[here] && std::max(each.out.bytes, each.in.bytes) >= direct_from);
  }
  if (c.op != MUSTER_ALL_TO_ALL) return;
  const std::size_t element = dtype_bytes(c.dtype);
  for (const LocalMember& each : members)
    extents_.push_back(
        {extent_of(each.share->source_blocks) * element, extent_of(each.share->target_blocks) * element});
}

// In a SEND or RECV the two members' nodes take part, in an exchange of faces those of neighbours.
void PairPlan::find_nodes(const Collective& c, const Span& span, std::span<const LocalMember> members) {
  if (is_transfer(c.op)) {
    partners = {static_cast<std::uint32_t>(c.root), static_cast<std::uint32_t>(c.receiver)};
  } else if (has_faces(c.op)) {
    for (const LocalMember& each : members)
      for (const auto* faces : {&each.share->sends, &each.share->receives})
        for (const Face& face : *faces) partners.push_back(static_cast<std::uint32_t>(face.peer));
  } else {
    nodes.resize(span.nodes.size());
    std::iota(nodes.begin(), nodes.end(), 0u);
    here = span.here;
    return;
  }
  std::sort(partners.begin(), partners.end());
  partners.erase(std::unique(partners.begin(), partners.end()), partners.end());
  nodes.push_back(span.here);
  for (const std::uint32_t member : partners) nodes.push_back(span.node_of[member]);
  std::sort(nodes.begin(), nodes.end());
  nodes.erase(std::unique(nodes.begin(), nodes.end()), nodes.end());
  here = static_cast<std::uint32_t>(std::lower_bound(nodes.begin(), nodes.end(), span.here) - nodes.begin());
  std::erase_if(partners, [&](std::uint32_t member) { return span.node_of[member] == span.here; });
}

PairPlan::Between& PairPlan::with(const Span& span, std::int32_t member) {
  const auto found = std::lower_bound(nodes.begin(), nodes.end(), span.node_of[at(member)]);
  return between[static_cast<std::size_t>(found - nodes.begin())];
}

void PairPlan::add_blocks(const Collective& c, const Span& span, std::span<const LocalMember> members) {
  const std::size_t element = dtype_bytes(c.dtype);
  const MemberRange givers = givers_of(c, span.ranks()), getters = getters_of(c, span.ranks());
  const auto block_of = [&](const LocalMember& member, std::span<const Block> entries) {
    return PairStream::BlockOfMember{static_cast<std::uint32_t>(&member - members.data()), entries, element};
  };
  for (const LocalMember& from : members) {
    if (!givers.has(from.share->index)) continue;
    for (std::int32_t getter = getters.first; getter < getters.last; ++getter) {
      const auto entries = source_block(c, from, at(getter), element).entries;
      with(span, getter).out.add(count_of(entries) * element, block_of(from, entries));
    }
  }
  for (std::int32_t giver = givers.first; giver < givers.last; ++giver)
    for (const LocalMember& to : members) {
      if (!getters.has(to.share->index)) continue;
      const auto entries = target_block(c, to, at(giver), element).entries;
      with(span, giver).in.add(count_of(entries) * element, block_of(to, entries));
    }
}

void PairPlan::add_faces(const Span& span, std::span<const LocalMember> members) {
  // Edges by giver, getter and tag, each with its face as the member here has it.
  std::vector<std::tuple<std::int32_t, std::int32_t, std::uint32_t, const Face*>> out, in;
  balances.resize(nodes.size());
  std::vector<Hash128> by_node(span.nodes.size());
  for (const LocalMember& each : members) {
    const Share& share = *each.share;
    for (const Face& face : share.sends) out.emplace_back(share.index, face.peer, face.tag, &face);
    for (const Face& face : share.receives) in.emplace_back(face.peer, share.index, face.tag, &face);
    add_face_balances(share, span.node_of, by_node);
  }
  std::sort(out.begin(), out.end());
  std::sort(in.begin(), in.end());
  for (const auto& [giver, getter, tag, face] : out) with(span, getter).out.add(face->bytes(), face);
  for (const auto& [giver, getter, tag, face] : in) with(span, giver).in.add(face->bytes(), face);
  for (std::size_t i = 0; i < nodes.size(); ++i) balances[i] = by_node[nodes[i]];
}

std::uint64_t PairPlan::bytes() const {
  std::uint64_t bytes = between.size() * (sizeof(Between) + sizeof(Hash128)) + partners.size() * 8;
  for (const Between& each : between)
    for (const PairStream* stream : {&each.out, &each.in})
      bytes += stream->segments.size() * sizeof(PairStream::Segment) +
               stream->chunks.size() * sizeof(PairStream::Chunk);
  return bytes;
}

bool PairPlan::in_place(std::span<const LocalMember> members) const {
  for (std::size_t i = 0; i < extents_.size(); ++i) {
    const Share::Bases& bases = members[i].bases;
    const auto [given, got] = extents_[i];
    if (given > 0 && got > 0 && std::less<>()(bases.source, bases.target + got) &&
        std::less<>()(static_cast<const std::byte*>(bases.target), bases.source + given))
      return true;
  }
  return false;
}

}  // namespace muster::transport::span
