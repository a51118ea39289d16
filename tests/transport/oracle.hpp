// The right result of a collective in memory: plain loops over one byte array that holds every member's
// vectors. It shares no code with the backends; reductions follow the documented order through
// tests/kernels/math/scalar_reduce.hpp.
#pragma once

#include "api/base/collective/collective.hpp"
#include "tests/kernels/math/scalar_reduce.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

namespace muster::transport::test {

inline constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

// One end of an edge, and where it lies in the arena.
struct FacePlace {
  std::int32_t peer = 0;
  std::uint32_t tag = 0;
  std::vector<std::int64_t> size, stride;
  std::size_t at = 0;  // byte of the first element

  std::uint64_t count() const {
    std::uint64_t elements = 1;
    for (const std::int64_t s : size) elements *= static_cast<std::uint64_t>(s);
    return elements;
  }
  // Byte of element `i` in row-major order.
  std::size_t element(std::uint64_t i, std::size_t bytes) const {
    std::int64_t offset = 0;
    for (std::size_t d = size.size(); d-- > 0;) {
      offset += static_cast<std::int64_t>(i % static_cast<std::uint64_t>(size[d])) * stride[d];
      i /= static_cast<std::uint64_t>(size[d]);
    }
    return at + static_cast<std::size_t>(offset) * bytes;
  }
};

// One member's description, and the places of its vectors in the arena; kNowhere for an unused side.
struct Placement {
  std::int32_t index = 0;
  std::size_t source = kNowhere;
  std::size_t target = kNowhere;
  std::uint64_t count = 0;  // where members agree pair by pair: of the one block, and of each without counts
  std::vector<std::uint64_t> source_counts{}, source_offsets{}, target_counts{}, target_offsets{};
  std::vector<std::uint32_t> piece_counts{};
  std::vector<muster_piece> pieces{};
  std::vector<FacePlace> sends{}, receives{};

  // Element at which block `i` of a side begins, if the blocks have these counts.
  static std::uint64_t offset(const std::vector<std::uint64_t>& offsets,
                              const std::vector<std::uint64_t>& counts, std::size_t i) {
    if (!offsets.empty()) return offsets[i];
    std::uint64_t sum = 0;
    for (std::size_t k = 0; k < i; ++k) sum += counts[k];
    return sum;
  }
};

// Elements of each member's block, where all agree on all.
inline std::vector<std::uint64_t> block_lengths(const Collective& c, std::int32_t ranks) {
  return c.counts.empty() ? std::vector<std::uint64_t>(static_cast<std::size_t>(ranks), c.count) : c.counts;
}

// A list of a member's own, where pairs agree.
inline std::vector<std::uint64_t> own_lengths(const std::vector<std::uint64_t>& list, std::uint64_t count,
                                              std::size_t ranks) {
  return list.empty() ? std::vector<std::uint64_t>(ranks, count) : list;
}

// The arena of one collective, before and after.
struct Oracle {
  const Collective& c;
  std::size_t ranks;
  const std::vector<Placement>& members;  // in order of index (SEND, RECV: sender, receiver)
  const std::vector<std::byte>& before;
  std::size_t bytes;  // of an element
  std::vector<std::byte> after = before;

  const Placement& root() const { return members[static_cast<std::size_t>(c.root)]; }
  void copy(std::size_t to, std::uint64_t to_element, std::size_t from, std::uint64_t from_element,
            std::uint64_t count) {
    if (count > 0 && to != kNowhere)
      std::memcpy(after.data() + to + to_element * bytes, before.data() + from + from_element * bytes,
                  count * bytes);
  }
  // The reduction of `count` elements, of member m's source from element first[m] on.
  std::vector<std::byte> reduced(const std::vector<std::uint64_t>& first, std::uint64_t count) const {
    std::vector<const std::byte*> sources;
    for (std::size_t m = 0; m < members.size(); ++m)
      sources.push_back(before.data() + (count == 0 ? 0 : members[m].source + first[m] * bytes));
    std::vector<std::byte> result(count * bytes);
    math::test::scalar_reduce(c.dtype, c.redop, sources, result.data(), count, c.scale);
    return result;
  }
  void store(std::size_t to, const std::vector<std::byte>& result) {
    if (!result.empty()) std::memcpy(after.data() + to, result.data(), result.size());
  }

  void all_reduce() {
    const std::vector<std::byte> result = reduced(std::vector<std::uint64_t>(ranks), c.count);
    for (const Placement& m : members) store(m.target, result);
  }
  // Calls body(piece, element of the block at which it begins) for each piece of block `r`.
  template<class Body>
  void for_each_piece(std::size_t r, Body body) const {
    const std::vector<std::uint32_t>& counts = members.front().piece_counts;
    std::size_t next = 0;
    for (std::size_t k = 0; k < r; ++k) next += counts[k];
    std::uint64_t at = 0;
    for (std::uint32_t k = 0; k < counts[r]; ++k, ++next) {
      body(members.front().pieces[next], at);
      at += members.front().pieces[next].count;
    }
  }
  bool in_pieces() const { return !members.front().piece_counts.empty(); }
  // Element of the own block's vector at which a piece begins: there, or in place.
  static std::uint64_t own(const Placement& m, const muster_piece& piece, std::uint64_t at) {
    return m.source == m.target ? piece.offset : at;
  }
  void reduce_scatter_pieces() {
    for (std::size_t r = 0; r < ranks; ++r)
      for_each_piece(r, [&](const muster_piece& piece, std::uint64_t at) {
        if (piece.count == 0) return;
        store(members[r].target + own(members[r], piece, at) * bytes,
              reduced(std::vector<std::uint64_t>(ranks, piece.offset), piece.count));
      });
  }
  void all_gather_pieces() {
    for (std::size_t r = 0; r < ranks; ++r)
      for_each_piece(r, [&](const muster_piece& piece, std::uint64_t at) {
        for (const Placement& m : members)
          copy(m.target, piece.offset, members[r].source, own(members[r], piece, at), piece.count);
      });
  }
  void reduce_scatter() {
    if (in_pieces()) return reduce_scatter_pieces();
    const std::vector<std::uint64_t> lengths = block_lengths(c, static_cast<std::int32_t>(ranks));
    for (std::size_t r = 0; r < ranks; ++r) {
      std::vector<std::uint64_t> first;
      for (const Placement& m : members) first.push_back(Placement::offset(m.source_offsets, lengths, r));
      store(members[r].target, reduced(first, lengths[r]));
    }
  }
  void all_gather() {
    if (in_pieces()) return all_gather_pieces();
    const std::vector<std::uint64_t> lengths = block_lengths(c, static_cast<std::int32_t>(ranks));
    for (std::size_t r = 0; r < ranks; ++r)
      for (const Placement& m : members)
        copy(m.target, Placement::offset(m.target_offsets, lengths, r), members[r].source, 0, lengths[r]);
  }
  void gather() {
    const std::vector<std::uint64_t> lengths = own_lengths(root().target_counts, root().count, ranks);
    for (std::size_t r = 0; r < ranks; ++r)
      copy(root().target, Placement::offset(root().target_offsets, lengths, r), members[r].source, 0,
           lengths[r]);
  }
  void scatter() {
    const std::vector<std::uint64_t> lengths = own_lengths(root().source_counts, root().count, ranks);
    for (std::size_t r = 0; r < ranks; ++r)
      copy(members[r].target, 0, root().source, Placement::offset(root().source_offsets, lengths, r),
           lengths[r]);
  }
  void all_to_all() {
    for (std::size_t to = 0; to < ranks; ++to) {
      const Placement& target = members[to];
      const std::vector<std::uint64_t> got = own_lengths(target.target_counts, target.count, ranks);
      for (std::size_t from = 0; from < ranks; ++from) {
        const Placement& source = members[from];
        const std::vector<std::uint64_t> given = own_lengths(source.source_counts, source.count, ranks);
        copy(target.target, Placement::offset(target.target_offsets, got, from), source.source,
             Placement::offset(source.source_offsets, given, to), given[to]);
      }
    }
  }
  void exchange() {
    for (const Placement& from : members)
      for (const FacePlace& sent : from.sends)
        for (const FacePlace& face : members[static_cast<std::size_t>(sent.peer)].receives)
          if (face.peer == from.index && face.tag == sent.tag)
            for (std::uint64_t i = 0; i < face.count(); ++i)
              std::memcpy(after.data() + face.element(i, bytes), before.data() + sent.element(i, bytes),
                          bytes);
  }
  void run() {
    switch (c.op) {
      case MUSTER_ALL_REDUCE:
        return all_reduce();
      case MUSTER_ALL_GATHER:
        return all_gather();
      case MUSTER_REDUCE_SCATTER:
        return reduce_scatter();
      case MUSTER_BROADCAST:
        for (const Placement& m : members) copy(m.target, 0, root().source, 0, c.count);
        return;
      case MUSTER_REDUCE:
        return store(root().target, reduced(std::vector<std::uint64_t>(ranks), c.count));
      case MUSTER_GATHER:
        return gather();
      case MUSTER_SCATTER:
        return scatter();
      case MUSTER_ALL_TO_ALL:
        return all_to_all();
      case MUSTER_EXCHANGE:
        return exchange();
      case MUSTER_SEND:
      case MUSTER_RECV:
        return copy(members[1].target, 0, members[0].source, 0, c.count);
      default:
        return;
    }
  }
};

inline std::vector<std::byte> oracle(const Collective& c, std::int32_t ranks,
                                     const std::vector<Placement>& members,
                                     const std::vector<std::byte>& before, std::size_t element_bytes) {
  Oracle whole{c, static_cast<std::size_t>(ranks), members, before, element_bytes};
  whole.run();
  return std::move(whole.after);
}

}  // namespace muster::transport::test
