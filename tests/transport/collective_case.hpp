// One collective with its memory, made from a few numbers: where every vector lies, what it holds, what must
// come out.
#pragma once

#include "api/base/collective/collective.hpp"
#include "api/base/dtype.hpp"
#include "tests/kernels/math/values.hpp"
#include "tests/transport/face_layout.hpp"
#include "tests/transport/oracle.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace muster::transport::test {

enum class Place : std::uint8_t { kApart, kInPlace };

// Bytes at which a path chooses another place, algorithm or cut: what goes with an arrival or a request, what
// is copied, staged or packed, and where parts and chunks end.
inline constexpr std::uint64_t kThresholds[] = {32,       1 << 10,   1216,      8 << 10,   16 << 10, 32 << 10,
                                                64 << 10, 128 << 10, 256 << 10, 512 << 10, 1 << 20};

struct Edge {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::uint32_t tag = 0;
  std::uint64_t count = 0;
};

// The description from which a case is made.
struct Shape {
  Collective collective;
  std::int32_t ranks = 1;
  Place place = Place::kApart;
  std::size_t misaligned_bytes = 0;  // added to every vector's 64-byte aligned start
  std::uint64_t seed = 0;
  // Elements from member i to member j, at i · ranks + j: ALL_TO_ALL, and of the root in GATHER and SCATTER.
  std::vector<std::uint64_t> pairs{};
  std::vector<Edge> edges{};  // EXCHANGE
  // Each rank has its blocks at offsets of its own, and its faces in an order of its own; else end to end,
  // and in the order of the edges.
  bool scattered = false;
  bool silent_root = false;            // the root of a BROADCAST takes no copy
  std::uint64_t apart_mask = 0;        // members that are not in place, although the shape is: ALL_TO_ALL
  std::vector<muster_piece> pieces{};  // of all blocks, where Collective::first_piece says how many each has
  bool exact = false;                  // sources are numbers whose reduction is exact in any order

  std::uint64_t pair(std::size_t from, std::size_t to) const {
    return pairs[from * static_cast<std::size_t>(ranks) + to];
  }
  std::vector<std::uint64_t> given_by(std::int32_t index) const {
    std::vector<std::uint64_t> row;
    for (std::int32_t to = 0; to < ranks; ++to)
      row.push_back(pair(static_cast<std::size_t>(index), static_cast<std::size_t>(to)));
    return row;
  }
  std::vector<std::uint64_t> got_by(std::int32_t index) const {
    std::vector<std::uint64_t> column;
    for (std::int32_t from = 0; from < ranks; ++from)
      column.push_back(pair(static_cast<std::size_t>(from), static_cast<std::size_t>(index)));
    return column;
  }
  bool in_place(std::int32_t index) const {
    return place == Place::kInPlace && (apart_mask >> (index % 64) & 1) == 0;
  }
  std::string text() const {
    const Collective& c = collective;
    std::string out = std::string(op_name(c.op)) + " " + dtype_name(c.dtype) + " " + redop_name(c.redop) +
                      ", ranks " + std::to_string(ranks) + ", count " + std::to_string(c.count) +
                      ", counts {";
    for (const std::uint64_t count : c.counts) out += std::to_string(count) + " ";
    out += "}, pairs {";
    for (const std::uint64_t count : pairs) out += std::to_string(count) + " ";
    out += "}, edges {";
    for (const Edge& e : edges)
      out += std::to_string(e.from) + "→" + std::to_string(e.to) + " tag " + std::to_string(e.tag) + ": " +
             std::to_string(e.count) + "  ";
    return out + "}, root " + std::to_string(c.root) + ", receiver " + std::to_string(c.receiver) +
           (place == Place::kInPlace ? ", in place" : ", apart") + (scattered ? ", scattered" : "") +
           ", pieces " + std::to_string(pieces.size()) + ", apart mask " + std::to_string(apart_mask) +
           (exact ? ", exact" : "") + ", misaligned by " + std::to_string(misaligned_bytes) + ", seed " +
           std::to_string(seed);
  }
};

// The memory of a case. Everything that is no vector is a fence, and must stay as it is.
struct Case {
  std::vector<Placement> members;  // in order of index; SEND, RECV: sender, receiver
  std::vector<std::byte> before;
  std::vector<std::byte> after;  // what the oracle says
};

template<class T>
void shuffle(Random& random, std::vector<T>& list) {
  for (std::size_t i = list.size(); i > 1; --i) std::swap(list[i - 1], list[random.below(i)]);
}

namespace detail {

// Makes the placements of one shape.
class Placer {
 public:
  explicit Placer(const Shape& shape)
      : shape_(shape),
        c_(shape.collective),
        bytes_(dtype_bytes(c_.dtype)),
        layout_(shape.misaligned_bytes),
        random_(shape.seed * 31 + 7) {}

  Placement member(std::int32_t index) {
    Placement m{index};
    const bool is_root = index == c_.root;
    switch (c_.op) {
      case MUSTER_ALL_REDUCE:
      case MUSTER_BROADCAST:
      case MUSTER_REDUCE:
      case MUSTER_SEND:
      case MUSTER_RECV:
        vectors(m, is_root);
        break;
      case MUSTER_ALL_GATHER:
      case MUSTER_REDUCE_SCATTER:
        agreed_blocks(m);
        break;
      case MUSTER_GATHER:
      case MUSTER_SCATTER:
        rooted_blocks(m, is_root);
        break;
      case MUSTER_ALL_TO_ALL:
        pairs(m);
        break;
      case MUSTER_EXCHANGE:
        faces(m);
        break;
      default:
        break;
    }
    return m;
  }
  std::size_t arena_bytes() const { return layout_.bytes(); }

 private:
  std::size_t take(std::uint64_t elements) { return layout_.take(elements * bytes_); }

  void vectors(Placement& m, bool is_root) {
    m.count = c_.count;
    const bool sends = c_.op == MUSTER_SEND || c_.op == MUSTER_RECV;
    const bool reads = c_.op == MUSTER_ALL_REDUCE || c_.op == MUSTER_REDUCE || is_root;
    const bool writes = c_.op == MUSTER_ALL_REDUCE ||
                        (c_.op == MUSTER_BROADCAST && !(is_root && shape_.silent_root)) ||
                        (c_.op == MUSTER_REDUCE && is_root) || (sends && m.index == c_.receiver);
    if (reads) m.source = take(c_.count);
    if (writes) m.target = reads && shape_.in_place(m.index) ? m.source : take(c_.count);
  }

  // Where the blocks of a vector with these lengths begin, and how long it is: end to end, or in any order
  // with gaps, or for what is only read even one over the other.
  std::uint64_t lay_out(const std::vector<std::uint64_t>& lengths, bool may_overlap,
                        std::vector<std::uint64_t>& offsets) {
    std::uint64_t end = 0;
    offsets.clear();
    if (!shape_.scattered) {
      for (const std::uint64_t length : lengths) end += length;
      return end;
    }
    std::vector<std::size_t> order(lengths.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    shuffle(random_, order);
    offsets.resize(lengths.size());
    const bool overlaps = may_overlap && random_.below(2) == 0;
    const std::uint64_t gaps = random_.below(4) == 0 ? 400 : 4;
    std::uint64_t at = 0;
    for (const std::size_t i : order) {
      at += random_.below(gaps);
      // An empty block lies nowhere, whatever its offset says.
      offsets[i] = lengths[i] == 0 && random_.below(2) == 0 ? UINT64_MAX - 5 : at;
      if (lengths[i] > 0) end = std::max(end, at + lengths[i]);
      if (!overlaps) at += lengths[i];
    }
    return end;
  }

  // The own block inside the whole vector, or apart from it.
  std::size_t own_block(const Placement& m, std::size_t whole, const std::vector<std::uint64_t>& offsets,
                        const std::vector<std::uint64_t>& lengths) {
    const auto i = static_cast<std::size_t>(m.index);
    const bool inside = shape_.in_place(m.index) && lengths[i] > 0;
    return inside ? whole + Placement::offset(offsets, lengths, i) * bytes_ : take(lengths[i]);
  }

  // Vectors whose blocks are pieces. In place both begin at the same byte.
  void in_pieces(Placement& m) {
    const auto own = static_cast<std::size_t>(m.index);
    const std::uint64_t length = block_lengths(c_, shape_.ranks)[own];
    m.pieces = shape_.pieces;
    for (std::size_t i = 1; i < c_.first_piece.size(); ++i)
      m.piece_counts.push_back(c_.first_piece[i] - c_.first_piece[i - 1]);
    std::uint64_t end = 0;
    for (const muster_piece& piece : m.pieces)
      if (piece.count > 0) end = std::max(end, piece.offset + piece.count);
    const std::size_t whole = take(end);
    const std::size_t block = shape_.in_place(m.index) && length > 0 ? whole : take(length);
    const bool gather = c_.op == MUSTER_ALL_GATHER;
    m.source = gather ? block : whole;
    m.target = gather ? whole : block;
  }

  void agreed_blocks(Placement& m) {
    if (!c_.first_piece.empty()) return in_pieces(m);
    const bool gather = c_.op == MUSTER_ALL_GATHER;
    const std::vector<std::uint64_t> lengths = block_lengths(c_, shape_.ranks);
    auto& offsets = gather ? m.target_offsets : m.source_offsets;
    const std::size_t whole = take(lay_out(lengths, !gather && !shape_.in_place(m.index), offsets));
    const std::size_t block = own_block(m, whole, offsets, lengths);
    m.source = gather ? block : whole;
    m.target = gather ? whole : block;
  }

  // Equal lengths may be said by `count` alone. Beside a list it means nothing.
  void say(const std::vector<std::uint64_t>& lengths, std::vector<std::uint64_t>& list,
           std::uint64_t& count) {
    const bool even = std::all_of(lengths.begin(), lengths.end(),
                                  [&](std::uint64_t length) { return length == lengths.front(); });
    const bool briefly = even && shape_.seed % 2 == 0;
    if (!briefly) list = lengths;
    count = briefly ? lengths.front() : UINT64_MAX / 3;
  }

  void rooted_blocks(Placement& m, bool is_root) {
    const bool gather = c_.op == MUSTER_GATHER;
    const std::vector<std::uint64_t> lengths = gather ? shape_.got_by(c_.root) : shape_.given_by(c_.root);
    std::size_t& block = gather ? m.source : m.target;
    if (!is_root) {
      m.count = lengths[static_cast<std::size_t>(m.index)];
      block = take(m.count);
      return;
    }
    auto& offsets = gather ? m.target_offsets : m.source_offsets;
    std::size_t& whole = gather ? m.target : m.source;
    say(lengths, gather ? m.target_counts : m.source_counts, m.count);
    whole = take(lay_out(lengths, !gather && !shape_.in_place(m.index), offsets));
    block = own_block(m, whole, offsets, lengths);
  }

  void pairs(Placement& m) {
    const std::vector<std::uint64_t> given = shape_.given_by(m.index);
    const std::vector<std::uint64_t> got = shape_.got_by(m.index);
    std::uint64_t count = 0;
    say(given, m.source_counts, m.count);
    say(got, m.target_counts, count);
    if (m.source_counts.empty() != m.target_counts.empty() || m.count != count) {
      m.source_counts = given;  // one count cannot stand for both
      m.target_counts = got;
    }
    const std::uint64_t length = lay_out(given, !shape_.in_place(m.index), m.source_offsets);
    if (shape_.in_place(m.index)) {
      m.target_offsets = m.source_offsets;
      const std::uint64_t earlier = shape_.scattered ? random_.below(2) * 3 : 0;
      m.source = take(earlier + length);
      m.target = m.source + earlier * bytes_;
      // The same blocks, of vectors that begin elsewhere.
      for (std::size_t i = 0; i < m.source_offsets.size(); ++i)
        if (given[i] > 0) m.source_offsets[i] += earlier;
      return;
    }
    m.source = take(length);
    m.target = take(lay_out(got, false, m.target_offsets));
  }

  void faces(Placement& m) {
    std::vector<std::uint64_t> sent;
    std::vector<std::uint64_t> got;
    std::vector<Edge> edges = shape_.edges;
    if (shape_.scattered) shuffle(random_, edges);
    for (const Edge& edge : edges) {
      if (edge.from == m.index) {
        m.sends.push_back({edge.to, edge.tag, {}, {}, 0});
        sent.push_back(edge.count);
      }
      if (edge.to == m.index) {
        m.receives.push_back({edge.from, edge.tag, {}, {}, 0});
        got.push_back(edge.count);
      }
    }
    place_faces(m, random_, layout_, bytes_, sent, got);
  }

  const Shape& shape_;
  const Collective& c_;
  std::size_t bytes_;
  Layout layout_;
  Random random_;
};

// Elements of a member's source in a reduction, from its start to its end.
inline std::uint64_t source_length(const Shape& shape, const Placement& member) {
  const Collective& c = shape.collective;
  if (c.op != MUSTER_REDUCE_SCATTER) return c.count;
  const std::vector<std::uint64_t> lengths = block_lengths(c, shape.ranks);
  std::uint64_t end = 0;
  for (const muster_piece& piece : member.pieces)
    if (piece.count > 0) end = std::max(end, piece.offset + piece.count);
  if (!member.piece_counts.empty()) return end;
  for (std::size_t i = 0; i < lengths.size(); ++i)
    if (lengths[i] > 0)
      end = std::max(end, Placement::offset(member.source_offsets, lengths, i) + lengths[i]);
  return end;
}

}  // namespace detail

// The members of a shape, as they will name their memory.
inline std::vector<Placement> placements_of(const Shape& shape, std::size_t* arena_bytes = nullptr) {
  const Collective& c = shape.collective;
  std::vector<std::int32_t> indices;
  if (is_transfer(c.op))
    indices = {c.root, c.receiver};
  else
    for (std::int32_t i = 0; i < shape.ranks; ++i) indices.push_back(i);
  detail::Placer placer(shape);
  std::vector<Placement> members;
  for (const std::int32_t index : indices) members.push_back(placer.member(index));
  if (arena_bytes != nullptr) *arena_bytes = placer.arena_bytes();
  return members;
}

inline Case make_case(const Shape& shape) {
  const Collective& c = shape.collective;
  Case made;
  std::size_t arena_bytes = 0;
  made.members = placements_of(shape, &arena_bytes);
  made.before.resize((arena_bytes + 7) / 8 * 8, std::byte{0xC3});
  if (has_reduction(c.op)) {
    for (const Placement& member : made.members)
      (shape.exact ? math::test::fill_exactly : math::test::fill)(
          c.dtype, made.before.data() + member.source, detail::source_length(shape, member),
          shape.seed * 1000 + static_cast<std::uint64_t>(member.index));
  } else {  // any bytes will do, also for what must stay as it is
    math::test::fill(MUSTER_I64, made.before.data(), made.before.size() / 8, shape.seed);
  }
  made.after = oracle(c, shape.ranks, made.members, made.before, dtype_bytes(c.dtype));
  return made;
}

inline constexpr auto kOps = [] {
  std::array<muster_op, kOperations> ops{};
  for (std::size_t i = 0; i < ops.size(); ++i) ops[i] = kOperationRows[i].op;
  return ops;
}();

// Counts of pairs at random below `end`, a third of them 0; alike in both directions where blocks change
// places.
inline std::vector<std::uint64_t> random_pairs(Random& random, std::size_t ranks, bool symmetric,
                                               std::uint64_t end) {
  std::vector<std::uint64_t> pairs(ranks * ranks);
  for (std::uint64_t& count : pairs) count = random.below(3) == 0 ? 0 : random.below(end);
  for (std::size_t i = 0; symmetric && i < ranks; ++i)
    for (std::size_t j = 0; j < i; ++j) pairs[i * ranks + j] = pairs[j * ranks + i];
  return pairs;
}

// Any directed graph: with edges to oneself, several between two members, and empty ones. Each edge has at
// most 150 elements, or all have about `total` together.
inline std::vector<Edge> random_edges(Random& random, std::uint64_t ranks, std::uint64_t total) {
  std::vector<Edge> edges(random.below(3 * ranks + 1));
  const std::uint64_t end = total > 0 ? 2 * total / (edges.size() + 1) + 1 : 150;
  std::uint32_t tag = 0;
  for (Edge& edge : edges) {
    edge.from = static_cast<std::int32_t>(random.below(ranks));
    edge.to = static_cast<std::int32_t>(random.below(ranks));
    edge.tag = tag += static_cast<std::uint32_t>(1 + random.below(3));
    edge.count = random.below(8) == 0 ? 0 : random.below(end);
  }
  return edges;
}

// Cuts the blocks of an ALL_GATHER or REDUCE_SCATTER into 1 to `most` pieces each, some of them empty, and
// lays them out in any order with gaps; what is only read even one over the other.
inline void cut_into_pieces(Random& random, std::uint64_t most, Shape& shape) {
  Collective& c = shape.collective;
  shape.scattered = false;
  shape.pieces.clear();
  c.first_piece.assign(1, 0);
  for (std::uint64_t left : block_lengths(c, shape.ranks)) {
    const std::uint64_t pieces = left == 0 ? random.below(3) : 1 + random.below(most);
    for (std::uint64_t k = 1; k <= pieces; ++k) {
      const std::uint64_t count = k == pieces ? left : random.below(4) == 0 ? 0 : random.below(left + 1);
      shape.pieces.push_back({0, count});
      left -= count;
    }
    c.first_piece.push_back(static_cast<std::uint32_t>(shape.pieces.size()));
  }
  std::vector<std::size_t> order(shape.pieces.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  shuffle(random, order);
  const bool overlaps = c.op == MUSTER_REDUCE_SCATTER && shape.place == Place::kApart && random.below(2) == 0;
  std::uint64_t at = 0;
  for (const std::size_t i : order) {
    muster_piece& piece = shape.pieces[i];
    at += random.below(4);
    piece.offset = piece.count == 0 && random.below(2) == 0 ? UINT64_MAX - 5 : at;
    if (!overlaps) at += piece.count;
  }
}

// Gives each block, message or face, or all that one member gives, a size on one side or the other of one of
// kThresholds.
inline void size_at_threshold(Random& random, Shape& shape) {
  constexpr std::uint64_t kBytesMax = 4 << 20;  // of all members; beyond it the thresholds are of all blocks
  Collective& c = shape.collective;
  const std::uint64_t bytes = dtype_bytes(c.dtype);
  const auto ranks = static_cast<std::uint64_t>(shape.ranks);
  std::uint64_t elements = kThresholds[random.below(std::size(kThresholds))] / bytes;
  elements = elements - std::min<std::uint64_t>(elements, 2) + random.below(5);
  const bool faces = c.op == MUSTER_EXCHANGE;
  const std::uint64_t blocks = faces ? std::max<std::uint64_t>(shape.edges.size(), 1) : ranks;
  const bool of_all = random.below(2) == 0 || elements * bytes * blocks * ranks > kBytesMax;
  const std::uint64_t each = of_all ? elements / blocks : elements;
  const std::uint64_t last = of_all ? elements - each * (blocks - 1) : elements;
  for (Edge& edge : shape.edges) edge.count = &edge == &shape.edges.back() ? last : each;
  if (has_agreed_blocks(c.op)) {
    c.count = 0;
    c.counts.assign(blocks, each);
    c.counts[random.below(blocks)] = last;
  } else if (is_pairwise(c.op) && !faces) {
    shape.pairs.assign(ranks * ranks, each);
    for (std::uint64_t i = 0; i < ranks; ++i) shape.pairs[i * ranks + i] = last;
  } else if (c.op != MUSTER_BARRIER && !faces) {
    c.count = elements;
  }
}

// A case of any kind from one seed: operation, dtype, operator, ranks, uneven and empty blocks, their order,
// place, misalignment, graphs. One in eight is long, 3,000 to 384,000 elements in all: beyond the sizes at
// which other algorithms are chosen and work is cut into parts. Longer cases are rarer, or the longest would
// take all the time. One in sixteen of the others has a size at a threshold.
inline constexpr std::int32_t kRanksDrawnMax = 9;
inline Shape random_shape(std::uint64_t seed, std::int32_t ranks_max = kRanksDrawnMax) {
  Random random(seed);
  Shape shape;
  Collective& c = shape.collective;
  shape.seed = seed;
  shape.ranks = static_cast<std::int32_t>(1 + random.below(static_cast<std::uint64_t>(ranks_max)));
  c.op = kOps[random.below(std::size(kOps))];
  if (is_transfer(c.op) && shape.ranks == 1) shape.ranks = 2;
  const auto ranks = static_cast<std::uint64_t>(shape.ranks);
  c.dtype = math::test::kDtypes[random.below(std::size(math::test::kDtypes))];
  if (has_reduction(c.op)) c.redop = math::test::kRedops[random.below(std::size(math::test::kRedops))];
  if (c.redop == MUSTER_PREMUL_SUM) c.scale = math::test::scale_for(c.dtype);
  shape.place = random.below(2) == 0 ? Place::kApart : Place::kInPlace;
  const std::uint64_t octave = std::uint64_t{3'000} << std::min(random.below(7), random.below(7));
  const std::uint64_t total = random.below(8) == 0 ? octave + random.below(octave) : 0;
  const bool blocks = has_agreed_blocks(c.op) || is_pairwise(c.op);
  std::uint64_t count = random.below(4) == 0 ? random.below(3) : random.below(300);
  if (total > 0) count = c.op == MUSTER_ALL_TO_ALL ? total / ranks / ranks : blocks ? total / ranks : total;
  if (!is_pairwise(c.op) && c.op != MUSTER_BARRIER) c.count = count;
  if (has_agreed_blocks(c.op) && random.below(2) == 0) {
    c.count = 0;
    for (std::uint64_t k = 0; k < ranks; ++k)
      c.counts.push_back(random.below(3) == 0 ? 0 : random.below(total > 0 ? 2 * count : 200));
  }
  if (has_root(c.op) || is_transfer(c.op)) c.root = static_cast<std::int32_t>(random.below(ranks));
  if (is_transfer(c.op))
    c.receiver =
        static_cast<std::int32_t>((static_cast<std::uint64_t>(c.root) + 1 + random.below(ranks - 1)) % ranks);
  if (c.op == MUSTER_EXCHANGE)
    shape.edges = random_edges(random, ranks, total);
  else if (is_pairwise(c.op))
    shape.pairs = random.below(4) == 0 ? std::vector<std::uint64_t>(ranks * ranks, count)
                                       : random_pairs(random, ranks, shape.place == Place::kInPlace,
                                                      total > 0 ? 2 * count + 1 : 120);
  if (c.op == MUSTER_ALL_TO_ALL && random.below(2) == 0) shape.apart_mask = random.next();
  if (total == 0 && random.below(16) == 0) size_at_threshold(random, shape);
  shape.scattered = random.below(2) == 0;
  shape.silent_root = random.below(3) == 0;
  shape.misaligned_bytes = random.below(2) == 0 ? 0 : random.below(64);
  if (has_agreed_blocks(c.op) && random.below(2) == 0) cut_into_pieces(random, 40, shape);
  return shape;
}

// The same, so that the order in which floats are added or multiplied changes no bit.
inline Shape added_exactly(Shape shape) {
  Collective& c = shape.collective;
  const bool rounds = c.redop != MUSTER_MAX && c.redop != MUSTER_MIN;
  shape.exact = has_reduction(c.op) && rounds && (c.dtype == MUSTER_F32 || c.dtype == MUSTER_F64);
  if (shape.exact && c.redop == MUSTER_PREMUL_SUM) c.scale = 0.5;
  return shape;
}

// A ring with edges to oneself and to the one after the next; members may have several edges to one other.
inline std::vector<Edge> ring_edges(std::int32_t ranks, std::uint64_t count) {
  std::vector<Edge> edges;
  for (std::int32_t i = 0; i < ranks; ++i)
    for (std::int32_t step = 0; step < 3; ++step)
      edges.push_back({i, (i + step) % ranks, static_cast<std::uint32_t>(step), count});
  return edges;
}

inline Shape shape_of(muster_op op, muster_dtype dtype, muster_redop redop, std::int32_t ranks,
                      std::uint64_t count, Place place) {
  Shape shape;
  Collective& c = shape.collective;
  c.op = op;
  c.dtype = dtype;
  c.redop = redop;
  c.scale = math::test::scale_for(dtype);
  const auto members = static_cast<std::size_t>(ranks);
  if (op == MUSTER_EXCHANGE)
    shape.edges = ring_edges(ranks, count);
  else if (is_pairwise(op))
    shape.pairs.assign(members * members, count);
  else
    c.count = count;
  if (has_root(op) || is_transfer(op)) c.root = ranks - 1;
  shape.ranks = ranks;
  shape.place = place;
  shape.seed = count + static_cast<std::uint64_t>(ranks);
  return shape;
}

// The same with blocks of other lengths, `total` in all.
inline Shape long_shape(muster_op op, muster_dtype dtype, muster_redop redop, std::int32_t ranks,
                        std::uint64_t total, Place place) {
  Shape shape = shape_of(op, dtype, redop, ranks, total, place);
  const auto members = static_cast<std::size_t>(ranks);
  std::vector<std::uint64_t> counts;
  std::uint64_t left = total;
  for (std::size_t k = 0; k + 1 < members; ++k) {
    counts.push_back(left / 3);
    left -= left / 3;
  }
  counts.push_back(left);
  if (has_agreed_blocks(op)) {
    shape.collective.count = 0;
    shape.collective.counts = counts;
  } else if (op == MUSTER_EXCHANGE) {
    shape.edges = ring_edges(ranks, total / (3 * members));
  } else if (is_pairwise(op)) {
    // The same for both directions of a pair, so that they may change places.
    for (std::size_t i = 0; i < members; ++i)
      for (std::size_t j = 0; j < members; ++j)
        shape.pairs[i * members + j] = counts[(i + j) % members] / (op == MUSTER_ALL_TO_ALL ? members : 1);
  }
  return shape;
}

// The same with another root or pair, elsewhere in its words, and with its blocks in another order: by seed.
inline Shape varied(Shape shape, std::uint64_t seed) {
  Random random(seed);
  Collective& c = shape.collective;
  const auto ranks = static_cast<std::uint64_t>(shape.ranks);
  if (has_root(c.op) || is_transfer(c.op)) c.root = static_cast<std::int32_t>(random.below(ranks));
  if (is_transfer(c.op))
    c.receiver =
        static_cast<std::int32_t>((static_cast<std::uint64_t>(c.root) + 1 + random.below(ranks - 1)) % ranks);
  shape.misaligned_bytes = random.below(3) == 0 ? 0 : random.below(64);
  shape.scattered = random.below(2) == 0;
  shape.seed = seed;
  if (has_agreed_blocks(c.op) && random.below(3) == 0) cut_into_pieces(random, 12, shape);
  return shape;
}

}  // namespace muster::transport::test
