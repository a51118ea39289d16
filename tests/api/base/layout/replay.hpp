// Which rank has which element, the slow way: the cuts are replayed on lists of element indices. It shares no
// code with api/base/layout.
#pragma once

#include "api/base/layout/redistribution.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace muster::test {

using Kind = Placement::Kind;

using Items = std::vector<std::int64_t>;

enum class Rule : std::uint8_t { kCeil, kBalanced, kAligned, kGiven };

// How an axis is said.
struct SaidAxis {
  std::int64_t ranks = 1;
  Kind kind = Kind::kReplicate;
  std::size_t dim = 0;
  Rule rule = Rule::kCeil;
  std::int64_t grain = 1;
  Items given{};
  Items fused{};
  muster_redop redop = MUSTER_SUM;

  Split split() const {
    Split split = rule == Rule::kCeil       ? Split::ceil()
                  : rule == Rule::kBalanced ? Split::balanced()
                  : rule == Rule::kAligned  ? Split::aligned(grain)
                                            : Split::given(given);
    return fused.empty() ? split : Split::fused(split, fused);
  }

  Layout::Axis axis(std::size_t index) const {
    Layout::Axis axis{fmt::format("a{}", index), ranks, Placement::replicate()};
    if (kind == Kind::kShard) axis.placement = Placement::shard(static_cast<std::int32_t>(dim), split());
    if (kind == Kind::kPartial) axis.placement = Placement::partial(redop);
    return axis;
  }

  // The items that go to `coordinate`: they are dealt out.
  Items part(const Items& items, std::int64_t coordinate) const {
    Items mine;
    std::size_t first = 0;
    const Items whole{static_cast<std::int64_t>(items.size())};
    for (const std::int64_t tensor : fused.empty() ? whole : fused) {
      const std::vector<std::int64_t> owner = owners(tensor);
      for (std::size_t i = 0; i < owner.size(); ++i)
        if (owner[i] == coordinate) mine.push_back(items[first + i]);
      first += owner.size();
    }
    return mine;
  }

 private:
  // The owner of each of `count` items.
  std::vector<std::int64_t> owners(std::int64_t count) const {
    std::vector<std::int64_t> owner;
    if (rule == Rule::kCeil) {
      std::int64_t each = 0;
      while (each * ranks < count) ++each;
      for (std::int64_t i = 0; i < count; ++i) owner.push_back(i / each);
    } else if (rule == Rule::kGiven) {
      for (std::int64_t rank = 0; rank < ranks; ++rank)
        owner.insert(owner.end(), static_cast<std::size_t>(given[static_cast<std::size_t>(rank)]), rank);
    } else {
      const std::int64_t unit = rule == Rule::kAligned ? grain : 1;
      std::int64_t dealt = 0;
      for (; dealt + unit <= count; dealt += unit)
        owner.insert(owner.end(), static_cast<std::size_t>(unit), dealt / unit % ranks);
      owner.insert(owner.end(), static_cast<std::size_t>(count - dealt), ranks - 1);
      std::sort(owner.begin(), owner.end());  // neighbours stay together
    }
    return owner;
  }
};

struct SaidLayout {
  Items shape{};
  std::vector<SaidAxis> axes{};
  Layout::Order order = Layout::Order::kInnermostFirst;

  std::int64_t ranks() const {
    std::int64_t product = 1;
    for (const SaidAxis& axis : axes) product *= axis.ranks;
    return product;
  }

  std::int64_t elements() const {
    std::int64_t product = 1;
    for (const std::int64_t length : shape) product *= length;
    return product;
  }

  Items coordinates(std::int64_t rank) const {
    Items found(axes.size());
    for (std::size_t axis = axes.size(); axis-- > 0; rank /= axes[axis].ranks)
      found[axis] = rank % axes[axis].ranks;
    return found;
  }

  // The indices of one dim that a rank has.
  Items items(std::int64_t rank, std::size_t dim) const {
    Items items(static_cast<std::size_t>(shape[dim]));
    for (std::size_t i = 0; i < items.size(); ++i) items[i] = static_cast<std::int64_t>(i);
    const Items at = coordinates(rank);
    for (std::size_t k = 0; k < axes.size(); ++k) {
      const std::size_t axis = order == Layout::Order::kOutermostFirst ? k : axes.size() - 1 - k;
      if (axes[axis].kind == Kind::kShard && axes[axis].dim == dim) items = axes[axis].part(items, at[axis]);
    }
    return items;
  }

  // The rank's array: for each place the element of the tensor, numbered in row-major order.
  Items array(std::int64_t rank) const {
    Items array{0};
    for (std::size_t dim = 0; dim < shape.size(); ++dim) {
      Items longer;
      const Items mine = items(rank, dim);
      for (const std::int64_t element : array)
        for (const std::int64_t item : mine) longer.push_back(element * shape[dim] + item);
      array = std::move(longer);
    }
    return array;
  }

  std::string text() const {
    std::string text = fmt::format("shape [{}]{}", fmt::join(shape, ", "),
                                   order == Layout::Order::kOutermostFirst ? ", outermost first" : "");
    for (const SaidAxis& axis : axes)
      text += axis.kind == Kind::kReplicate ? fmt::format(" | {} replicate", axis.ranks)
              : axis.kind == Kind::kShard
                  ? fmt::format(" | {} shard({}) {}", axis.ranks, axis.dim, axis.split().name())
                  : fmt::format(" | {} partial({})", axis.ranks, axis.redop);
    return text;
  }

  Result<Layout> make() const {
    std::vector<Layout::Axis> list;
    for (std::size_t axis = 0; axis < axes.size(); ++axis) list.push_back(axes[axis].axis(axis));
    return Layout::make(shape, std::move(list), order);
  }
};

// The place of an index in an array of `shape`, row-major.
inline std::size_t place_of(const Index& index, const Index& shape, std::size_t dims) {
  std::int64_t place = 0;
  for (std::size_t dim = 0; dim < dims; ++dim) place = place * shape[dim] + index[dim];
  return static_cast<std::size_t>(place);
}

// Calls `visit(index)` for each index of an array of `shape`, in row-major order.
template<class Visit>
void for_each_index(const Index& shape, std::size_t dims, const Visit& visit) {
  Index index{};
  for (std::size_t dim = 0; dim < dims; ++dim)
    if (shape[dim] == 0) return;
  while (true) {
    visit(index);
    std::size_t dim = dims;
    while (dim > 0 && ++index[dim - 1] == shape[dim - 1]) index[--dim] = 0;
    if (dim == 0) return;
  }
}

inline Index sum(const Index& a, const Index& b) {
  Index found{};
  for (std::size_t dim = 0; dim < found.size(); ++dim) found[dim] = a[dim] + b[dim];
  return found;
}

// One array for each rank.
template<class Value>
using Arrays = std::vector<std::vector<Value>>;

// Moves the boxes that each rank receives. A place that nobody gives keeps `nothing`.
template<class Value>
Arrays<Value> carried(const Redistribution& move, const Arrays<Value>& from, Value nothing) {
  const Layout& old = move.from();
  const Layout& fresh = move.to();
  Arrays<Value> to;
  for (std::int64_t rank = 0; rank < fresh.ranks(); ++rank) {
    std::vector<Value> array(static_cast<std::size_t>(fresh.local_elements(rank)), nothing);
    const std::vector<Redistribution::Overlap> overlaps = move.receives(rank).value();
    for (const Redistribution::Overlap& overlap : overlaps) {
      const std::vector<Value>& giver = from[static_cast<std::size_t>(overlap.from)];
      for_each_index(overlap.box.length, overlap.box.dims, [&](const Index& index) {
        array.at(place_of(sum(overlap.put, index), fresh.local_shape(rank), fresh.dims())) =
            giver.at(place_of(sum(overlap.taken, index), old.local_shape(overlap.from), old.dims()));
      });
    }
    to.push_back(std::move(array));
  }
  return to;
}

}  // namespace muster::test
