#include "transport/span/row_plan.hpp"

#include "api/base/dtype.hpp"
#include "api/base/nodes/choice.hpp"

#include <algorithm>

namespace muster::transport::span {

RowPlan::RowPlan(const Collective& collective, const Span& span, const SpanningOptions& options,
                 std::size_t direct_from)
    : row(collective, span),
      op(collective.op),
      here(span.here),
      element(std::max<std::size_t>(1, dtype_bytes(collective.dtype))),
      folds(has_reduction(collective.op)),
      member_count(span.nodes.size()),
      ordinal(span.node_of.size()) {
  for (std::size_t i = 0; i < ordinal.size(); ++i) ordinal[i] = member_count[span.node_of[i]]++;
  unfolded = folds && !combines(collective, options.reproducible);
  if (has_root(op)) root = span.node_of[static_cast<std::size_t>(collective.root)];
  if (row.elements() == 0) return;
  const std::uint32_t rows = unfolded ? *std::max_element(member_count.begin(), member_count.end()) : 0;
  const std::size_t one = element * std::max(rows, 1u);
  chunks = row.chunks(chunk_bytes / one);
  const NodeAlgorithm algorithm =
      choose_algorithm(op, row.chunk(0, chunks), rows, element, root, options.link);
  if (moves_whole(op, algorithm)) chunks = row.chunks((chunk_bytes /= 2) / one);
  const auto nodes = static_cast<std::uint32_t>(member_count.size());
  first_chunk = row.chunk(0, chunks);
  schedule = schedule_of(op, algorithm, nodes, here, root);
  is_large = !unfolded && row.elements() * element >= direct_from;
  lands.resize(nodes);
  for (const Round& round : schedule)
    for (const Round::Move& move : round.receives)
      std::fill(lands.begin() + move.first, lands.begin() + move.last, true);
}

std::uint64_t RowPlan::bytes() const {
  std::uint64_t moves = 0;
  for (const Round& round : schedule) moves += round.sends.size() + round.receives.size();
  return moves * sizeof(Round::Move) + schedule.size() * sizeof(Round) +
         row.blocks() * sizeof(NodeRow::Range) * 2 +
         member_count.size() * (sizeof(NodeRow::Range) + 2 * sizeof(std::uint64_t)) +
         ordinal.size() * sizeof(std::uint32_t);
}

bool RowPlan::gives(std::uint32_t slice) const {
  if (folds) return true;
  return op == MUSTER_ALL_GATHER ? slice == here : root == here;
}

bool RowPlan::needs(std::uint32_t slice) const {
  if (op == MUSTER_REDUCE_SCATTER) return slice == here;
  return op != MUSTER_REDUCE || root == here;
}

}  // namespace muster::transport::span
