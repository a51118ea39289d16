#include "api/base/nodes/row.hpp"

#include "api/base/dtype.hpp"

#include <algorithm>

namespace muster::transport::span {
namespace {

constexpr std::size_t kLineBytes = 64;

// Where part `part` of `parts` of a range begins.
std::uint64_t cut_at(std::uint64_t length, std::uint64_t part, std::uint64_t parts, std::uint64_t grain) {
  const std::uint64_t grains = (length + grain - 1) / grain;
  const std::uint64_t whole = grains / parts, rest = grains % parts;
  return std::min(length, (whole * part + std::min(part, rest)) * grain);
}

}  // namespace

NodeRow::NodeRow(const Collective& c, const Span& span)
    : nodes_(static_cast<std::uint32_t>(span.nodes.size())),
      grain_(std::max<std::size_t>(1, kLineBytes / std::max<std::size_t>(1, dtype_bytes(c.dtype)))) {
  if (!has_agreed_blocks(c.op)) {
    if (has_data(c.op) && c.count > 0) stretches_.push_back({0, 0, c.count});
    return;
  }
  std::uint64_t at = 0;
  for (std::uint32_t node = 0; node < nodes_; ++node) {
    of_node_.push_back(at);
    for (std::uint32_t member = 0; member < span.node_of.size(); ++member) {
      if (span.node_of[member] != node) continue;
      const std::uint64_t count = c.counts.empty() ? c.count : c.counts[member];
      stretches_.push_back({member, at, at + count});
      at += count;
    }
  }
  of_node_.push_back(at);
}

std::uint32_t NodeRow::chunks(std::uint64_t most) const {
  most = std::max(most, grain_);
  return static_cast<std::uint32_t>(std::max<std::uint64_t>(1, (elements() + most - 1) / most));
}

void NodeRow::cut(std::uint32_t index, std::uint32_t of, Chunk& chunk) const {
  chunk.slices.reserve(nodes_);
  chunk.at.reserve(nodes_ + 1);
  chunk.at.push_back(0);
  const std::uint64_t first = cut_at(elements(), index, of, grain_);
  const std::uint64_t length = cut_at(elements(), index + 1, of, grain_) - first;
  for (std::uint32_t j = 0; j < nodes_; ++j) {
    Range slice;
    if (of_node_.empty()) {
      slice = {first + cut_at(length, j, nodes_, grain_), first + cut_at(length, j + 1, nodes_, grain_)};
    } else {
      const std::uint64_t begin = of_node_[j], all = of_node_[j + 1] - begin;
      slice = {begin + cut_at(all, index, of, grain_), begin + cut_at(all, index + 1, of, grain_)};
    }
    chunk.slices.push_back(slice);
    chunk.at.push_back(chunk.at.back() + slice.count());
  }
}

}  // namespace muster::transport::span
