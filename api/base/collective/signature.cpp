#include "api/base/collective/signature.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <map>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace muster {
namespace {

Hash128 hash_of(std::span<const std::uint64_t> words) {
  const XXH128_hash_t hash = XXH3_128bits(words.data(), words.size_bytes());
  return {hash.low64, hash.high64};
}

// `dtype`: of a face.
Hash128 edge(std::int32_t from, std::int32_t to, std::uint32_t tag, std::uint64_t elements,
             muster_dtype dtype = 0) {
  const std::array<std::uint64_t, 5> words{static_cast<std::uint64_t>(from), static_cast<std::uint64_t>(to),
                                           tag, elements, static_cast<std::uint64_t>(dtype)};
  return hash_of(words);
}

std::uint64_t agreed_scale(const Collective& c) {
  return std::bit_cast<std::uint64_t>(c.redop == MUSTER_PREMUL_SUM ? c.scale : 0.0);
}

// Hashed before the words of a shared target, and of pieces, so that they are not taken for counts.
constexpr std::uint64_t kSharedTarget = UINT64_MAX;
constexpr std::uint64_t kInPieces = UINT64_MAX - 1;

Hash128 common_of(const Collective& c, const Share& share, std::int32_t ranks) {
  if (!has_data(c.op))
    return hash_of(std::array{static_cast<std::uint64_t>(c.op), static_cast<std::uint64_t>(ranks)});
  const std::array<std::uint64_t, 10> fields{static_cast<std::uint64_t>(agreed_op(c.op)),
                                             static_cast<std::uint64_t>(ranks),
                                             static_cast<std::uint64_t>(c.dtype),
                                             static_cast<std::uint64_t>(c.redop),
                                             static_cast<std::uint64_t>(c.root),
                                             static_cast<std::uint64_t>(c.receiver),
                                             c.tag,
                                             c.counts.empty() ? c.count : 0,
                                             agreed_scale(c),
                                             c.counts.size()};
  if (c.counts.empty() && c.shared_memory == 0 && c.first_piece.empty()) return hash_of(fields);
  std::vector<std::uint64_t> words(fields.begin(), fields.end());
  if (c.shared_memory != 0) words.insert(words.end(), {kSharedTarget, c.shared_memory, c.shared_offset});
  words.insert(words.end(), c.counts.begin(), c.counts.end());
  if (!c.first_piece.empty()) {
    words.push_back(kInPieces);
    words.insert(words.end(), c.first_piece.begin(), c.first_piece.end());
    for (const Block& piece : has_target_blocks(c.op, false) ? share.target_blocks : share.source_blocks)
      words.insert(words.end(), {piece.offset, piece.count});
    return hash_of(words);
  }
  // Members that share a target must agree on the place of each block too.
  if (c.shared_memory != 0 && has_target_blocks(c.op, false))
    for (const Block& block : share.target_blocks)
      if (block.count > 0) words.push_back(block.offset);
  return hash_of(words);
}

// `balance_with` a member: to which its edges are added.
template<class BalanceWith>
void add_face_balances(const Share& share, BalanceWith balance_with) {
  for (const Face& face : share.sends)
    balance_with(face.peer) += edge(share.index, face.peer, face.tag, face.count(), face.dtype);
  for (const Face& face : share.receives)
    balance_with(face.peer) -= edge(face.peer, share.index, face.tag, face.count(), face.dtype);
}

// A member's block to itself is an edge too: its two ends cancel if they are equally long.
Hash128 balance_of(const Collective& c, const Share& share) {
  Hash128 balance;
  if (!is_pairwise(c.op)) return balance;
  const std::int32_t self = share.index;
  if (has_faces(c.op)) {
    add_face_balances(share, [&](std::int32_t) -> Hash128& { return balance; });
    return balance;
  }
  const auto add = [&](std::span<const Block> blocks, bool sends) {
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i].count == 0) continue;
      const auto peer = static_cast<std::int32_t>(i);
      if (sends)
        balance += edge(self, peer, 0, blocks[i].count);
      else
        balance -= edge(peer, self, 0, blocks[i].count);
    }
  };
  const auto add_one = [&](std::span<const Block> blocks, bool sends) {
    for (const Block& block : blocks) {
      if (block.count == 0) continue;
      if (sends)
        balance += edge(self, c.root, 0, block.count);
      else
        balance -= edge(c.root, self, 0, block.count);
    }
  };
  has_source_blocks(c.op, true) ? add(share.source_blocks, true) : add_one(share.source_blocks, true);
  has_target_blocks(c.op, true) ? add(share.target_blocks, false) : add_one(share.target_blocks, false);
  return balance;
}

}  // namespace

Signature signature_of(const Collective& collective, const Share& share, std::int32_t ranks) {
  return {common_of(collective, share, ranks), balance_of(collective, share)};
}

void add_face_balances(const Share& share, std::span<const std::uint32_t> node_of,
                       std::span<Hash128> by_node) {
  add_face_balances(share, [&](std::int32_t member) -> Hash128& {
    return by_node[node_of[static_cast<std::size_t>(member)]];
  });
}

std::vector<FaceBalance> face_balances(const Share& share) {
  std::map<std::int32_t, Hash128> by_peer;
  add_face_balances(share, [&](std::int32_t peer) -> Hash128& { return by_peer[peer]; });
  std::vector<FaceBalance> all;
  for (const auto& [peer, balance] : by_peer) all.push_back({peer, balance});
  return all;
}

}  // namespace muster
