// difference(): says in words why signatures differ. It compares the fields that signature_of() hashes.
#include "api/base/collective/signature.hpp"
#include "api/base/dtype.hpp"

#include <algorithm>
#include <bit>
#include <limits>
#include <tuple>
#include <vector>

namespace muster {
namespace {

using Parties = std::span<const Party>;

constexpr std::size_t kNamedRanksMax = 6;   // a person reads the text
constexpr std::size_t kNamedValuesMax = 3;  // the text is cut to a few lines on its way

bool present(const Party& party) {
  return party.collective != nullptr && party.share != nullptr;
}

std::string at_site(const Party& party) {
  return party.site.empty() ? std::string() : fmt::format(" ({})", party.site);
}

// The members that have one value.
struct Holders {
  std::string value;
  std::vector<const Party*> parties;
};

std::string ranks_of(const Holders& side) {
  std::string text = side.parties.size() == 1 ? "rank " : "ranks ";
  for (std::size_t i = 0; i < side.parties.size() && i < kNamedRanksMax; ++i)
    text += fmt::format("{}{}", i == 0 ? "" : ", ", side.parties[i]->rank);
  if (side.parties.size() > kNamedRanksMax)
    text += fmt::format(" and {} more", side.parties.size() - kNamedRanksMax);
  return text;
}

// "count: 4096 at ranks 0, 1, 3 and 4097 at rank 2 (model.py:311)". The value of most members comes first, so
// a rank that stands alone is named last. Where the sites differ too, the first one is named as well.
std::string describe(std::string_view field, std::vector<Holders> sides) {
  std::stable_sort(sides.begin(), sides.end(),
                   [](const Holders& a, const Holders& b) { return a.parties.size() > b.parties.size(); });
  std::string text = fmt::format("{}: ", field);
  const std::size_t named = std::min(sides.size(), kNamedValuesMax);
  const std::string first = at_site(*sides.front().parties.front());
  const bool apart = std::any_of(sides.begin(), sides.end(), [&](const Holders& side) {
    return at_site(*side.parties.front()) != first;
  });
  for (std::size_t i = 0; i < named; ++i) {
    const std::string site = i == 0 && !apart ? std::string() : at_site(*sides[i].parties.front());
    text += fmt::format("{}{} at {}{}",
                        i == 0                  ? ""
                        : i + 1 == sides.size() ? " and "
                                                : ", ",
                        sides[i].value, ranks_of(sides[i]), site);
  }
  if (sides.size() > named) text += fmt::format(" and {} more values", sides.size() - named);
  return text;
}

// Compares value(party), a number or text, over all parties that are not missing.
template<class Value, class Words>
std::string compare(Parties parties, std::string_view field, Value value, Words words) {
  std::vector<std::pair<decltype(value(parties[0])), Holders>> sides;
  for (const Party& party : parties) {
    if (!present(party)) continue;
    const auto mine = value(party);
    auto side =
        std::find_if(sides.begin(), sides.end(), [&](const auto& other) { return other.first == mine; });
    if (side == sides.end()) side = sides.insert(side, {mine, {fmt::format("{}", words(party)), {}}});
    side->second.parties.push_back(&party);
  }
  if (sides.size() < 2) return {};
  std::vector<Holders> said;
  for (auto& side : sides) said.push_back(std::move(side.second));
  return describe(field, std::move(said));
}

template<class Value>
std::string compare(Parties parties, std::string_view field, Value value) {
  return compare(parties, field, value, value);
}

muster_op agreed_op(const Party& p) {
  return muster::agreed_op(p.collective->op);
}

std::string counts_of(const Party& p) {
  const Collective& c = *p.collective;
  return c.counts.empty() ? fmt::format("even blocks of {}", c.count)
                          : fmt::format("{} entries", c.counts.size());
}

std::string target_of(const Party& p) {
  return target_text(p.collective->shared_memory, p.collective->shared_offset);
}

std::uint64_t block_count(const Party& p, std::size_t i) {
  return p.collective->counts.empty() ? p.collective->count : p.collective->counts[i];
}

// Compares the counts on which all must agree: of the vector, of even blocks, or block by block.
std::string compare_counts(Parties parties) {
  const auto lists = [](const Party& p) { return p.collective->counts.size(); };
  const bool uneven = std::any_of(parties.begin(), parties.end(),
                                  [&](const Party& p) { return present(p) && lists(p) != 0; });
  if (!uneven) return compare(parties, "count", [](const Party& p) { return p.collective->count; });
  std::size_t entries = std::numeric_limits<std::size_t>::max();
  for (const Party& p : parties)
    if (present(p) && lists(p) != 0) entries = std::min(entries, lists(p));
  for (std::size_t i = 0; i < entries; ++i) {
    const auto count = [i](const Party& p) { return block_count(p, i); };
    if (auto found = compare(parties, fmt::format("counts[{}]", i), count); !found.empty()) return found;
  }
  // Lists of different lengths, or a list at one member and even blocks at another.
  return compare(parties, "counts", lists, counts_of);
}

// Compares the pieces of blocks. The counts of the blocks are equal already.
std::string compare_pieces(Parties parties, const Party& first) {
  const auto cut = [](const Party& p) -> const std::vector<Block>& {
    return has_target_blocks(p.collective->op, false) ? p.share->target_blocks : p.share->source_blocks;
  };
  const auto pieces = [&](const Party& p) { return p.collective->first_piece.empty() ? 0 : cut(p).size(); };
  const auto has = [](const Party& p) {
    return std::string(p.collective->first_piece.empty() ? "no" : "yes");
  };
  if (auto found = compare(parties, "blocks in pieces", has); !found.empty()) return found;
  if (auto found = compare(parties, "number of pieces", pieces); !found.empty()) return found;
  const std::vector<std::uint32_t>& starts = first.collective->first_piece;
  for (std::size_t i = 1; i < starts.size(); ++i) {
    const auto entries = [i](const Party& p) {
      return p.collective->first_piece[i] - p.collective->first_piece[i - 1];
    };
    if (auto found = compare(parties, fmt::format("piece_counts[{}]", i - 1), entries); !found.empty())
      return found;
  }
  for (std::size_t i = 0; i < pieces(first); ++i) {
    const auto offset = [&](const Party& p) { return cut(p)[i].offset; };
    const auto count = [&](const Party& p) { return cut(p)[i].count; };
    if (auto found = compare(parties, fmt::format("pieces[{}].offset", i), offset); !found.empty())
      return found;
    if (auto found = compare(parties, fmt::format("pieces[{}].count", i), count); !found.empty())
      return found;
  }
  return {};
}

// Compares where the blocks of a shared ALL_GATHER lie. The counts are equal already.
std::string compare_places(Parties parties, const Party& first) {
  if (first.collective->shared_memory == 0 || !has_target_blocks(first.collective->op, false)) return {};
  for (std::size_t i = 0; i < first.share->target_blocks.size(); ++i) {
    if (first.share->target_blocks[i].count == 0) continue;
    const auto offset = [i](const Party& p) { return p.share->target_blocks[i].offset; };
    if (auto found = compare(parties, fmt::format("target_blocks.offsets[{}]", i), offset); !found.empty())
      return found;
  }
  return {};
}

// Units count their steps and backwards in tags. A number says nothing to a person, so the text says what to
// look for if all members are at one site.
std::string compare_tags(Parties parties) {
  auto found = compare(parties, "tag", [](const Party& p) { return p.collective->tag; });
  const auto is_elsewhere = [&](const Party& p) { return present(p) && p.site != parties.front().site; };
  if (found.empty() || parties.front().site.empty() || std::ranges::any_of(parties, is_elsewhere))
    return found;
  return found +
         "; they are at one site: a rank has left a call out or made it twice, or other parameters of a "
         "unit are unused there";
}

std::string compare_common(Parties parties) {
  if (auto found = compare(parties, "op", agreed_op, [](const Party& p) { return op_name(agreed_op(p)); });
      !found.empty())
    return found;
  const Party* first = nullptr;
  for (const Party& p : parties)
    if (first == nullptr && present(p)) first = &p;
  if (first == nullptr || !has_data(first->collective->op)) return {};
  if (auto found = compare(
          parties, "dtype", [](const Party& p) { return p.collective->dtype; },
          [](const Party& p) { return dtype_name(p.collective->dtype); });
      !found.empty())
    return found;
  if (auto found = compare(
          parties, "redop", [](const Party& p) { return p.collective->redop; },
          [](const Party& p) { return redop_name(p.collective->redop); });
      !found.empty())
    return found;
  const bool transfer = is_transfer(first->collective->op);
  if (auto found = compare(
          parties, "peer",
          [](const Party& p) { return std::pair(p.collective->root, p.collective->receiver); },
          [&](const Party& p) {
            return transfer ? fmt::format("{}→{}", p.collective->root, p.collective->receiver)
                            : fmt::format("{}", p.collective->root);
          });
      !found.empty())
    return found;
  if (auto found = compare_tags(parties); !found.empty()) return found;
  if (auto found = compare_counts(parties); !found.empty()) return found;
  if (auto found = compare(
          parties, "target",
          [](const Party& p) { return std::pair(p.collective->shared_memory, p.collective->shared_offset); },
          target_of);
      !found.empty())
    return found;
  if (auto found = compare_pieces(parties, *first); !found.empty()) return found;
  if (auto found = compare_places(parties, *first); !found.empty()) return found;
  return compare(
      parties, "scale",
      [](const Party& p) {
        return std::bit_cast<std::uint64_t>(p.collective->redop == MUSTER_PREMUL_SUM ? p.collective->scale
                                                                                     : 0.0);
      },
      [](const Party& p) { return p.collective->scale; });
}

// ---- pair by pair --------------------------------------------------------------------------------

struct Edge {
  std::int32_t from = 0;
  std::int32_t to = 0;
  std::uint32_t tag = 0;
  std::uint64_t count = 0;
  muster_dtype dtype = 0;  // of a face
  friend auto operator<=>(const Edge&, const Edge&) = default;
};

// All edges on which members send, or receive, sorted. Edges from or to a missing member are left out.
std::vector<Edge> edges_of(Parties parties, bool sent) {
  std::vector<Edge> edges;
  const auto add = [&](std::int32_t self, std::int32_t peer, std::uint32_t tag, std::uint64_t count,
                       muster_dtype dtype) {
    const auto i = static_cast<std::size_t>(peer);
    if (i < parties.size() && !present(parties[i])) return;
    edges.push_back(sent ? Edge{self, peer, tag, count, dtype} : Edge{peer, self, tag, count, dtype});
  };
  for (const Party& party : parties) {
    if (!present(party)) continue;
    const Share& share = *party.share;
    for (const Face& face : sent ? share.sends : share.receives)
      add(share.index, face.peer, face.tag, face.count(), face.dtype);
    const auto& blocks = sent ? share.source_blocks : share.target_blocks;
    const muster_op op = party.collective->op;
    const bool is_root = share.index == party.collective->root;
    const bool each = sent ? has_source_blocks(op, is_root) : has_target_blocks(op, is_root);
    for (std::size_t i = 0; i < blocks.size(); ++i)
      if (blocks[i].count > 0)
        add(share.index, each ? static_cast<std::int32_t>(i) : party.collective->root, 0, blocks[i].count, 0);
  }
  std::sort(edges.begin(), edges.end());
  return edges;
}

std::string name_of(Parties parties, std::int32_t index) {
  const auto i = static_cast<std::size_t>(index);
  if (i >= parties.size()) return fmt::format("member {}", index);
  return fmt::format("rank {}", parties[i].rank);
}

// Describes an edge whose ends differ in count or dtype, or that one end lacks (nullptr).
std::string describe_edge(Parties parties, const Edge& edge, const Edge* sent, const Edge* expected) {
  const bool dtypes = sent != nullptr && expected != nullptr && sent->count == expected->count;
  const auto end_of = [&](const Edge* said, std::int32_t index, const char* verb) {
    const auto i = static_cast<std::size_t>(index);
    const std::string site = i < parties.size() ? at_site(parties[i]) : std::string();
    if (said == nullptr) return fmt::format("none {}{}", verb, site);
    return dtypes ? fmt::format("{} {}{}", dtype_name(said->dtype), verb, site)
                  : fmt::format("{} {}{}", said->count, verb, site);
  };
  const bool tagged = has_faces(parties[static_cast<std::size_t>(edge.from)].collective->op);
  const std::string tag = tagged ? fmt::format(" with tag {}", edge.tag) : std::string();
  return fmt::format("{} from {} to {}{}: {} and {}", dtypes ? "dtype" : "count", name_of(parties, edge.from),
                     name_of(parties, edge.to), tag, end_of(sent, edge.from, "sent"),
                     end_of(expected, edge.to, "expected"));
}

std::string compare_edges(Parties parties) {
  const std::vector<Edge> sent = edges_of(parties, true);
  const std::vector<Edge> expected = edges_of(parties, false);
  const auto place = [](const Edge& e) { return std::tuple(e.from, e.to, e.tag); };
  std::size_t s = 0;
  std::size_t r = 0;
  while (s < sent.size() || r < expected.size()) {
    const bool only_sent = r == expected.size() || (s < sent.size() && place(sent[s]) < place(expected[r]));
    const bool only_expected =
        s == sent.size() || (r < expected.size() && place(expected[r]) < place(sent[s]));
    if (only_sent) return describe_edge(parties, sent[s], &sent[s], nullptr);
    if (only_expected) return describe_edge(parties, expected[r], nullptr, &expected[r]);
    if (sent[s] != expected[r]) return describe_edge(parties, sent[s], &sent[s], &expected[r]);
    ++s;
    ++r;
  }
  return {};
}

}  // namespace

std::string target_text(std::uint64_t shared_memory, std::uint64_t shared_offset) {
  if (shared_memory == 0) return "its own memory";
  return fmt::format("byte {} of node-shared memory {:x}", shared_offset, shared_memory);
}

std::string difference(std::span<const Party> parties) {
  if (auto found = compare_common(parties); !found.empty()) return found;
  for (const Party& party : parties)
    if (present(party)) return is_pairwise(party.collective->op) ? compare_edges(parties) : std::string();
  return {};
}

}  // namespace muster
