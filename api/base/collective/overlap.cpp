#include "api/base/collective/overlap.hpp"

#include <algorithm>
#include <array>

namespace muster {
namespace {

__extension__ using Wide = __int128;

constexpr std::size_t kUnknownsMax = std::size_t{2} * MUSTER_TENSOR_DIMS_MAX;

// The unknowns of a pair of views, by stride from wide to narrow, with the range of the sum from each one on.
struct Equation {
  // One of them: a multiple `value` of `stride` bytes, low <= value <= high.
  struct Unknown {
    Wide stride = 0;
    Wide low = 0;
    Wide high = 0;
  };
  std::array<Unknown, kUnknownsMax> unknowns{};
  std::size_t count = 0;
  std::array<Wide, kUnknownsMax + 1> least{};
  std::array<Wide, kUnknownsMax + 1> most{};

  // Dims of both views with equal stride are one unknown: only their difference counts.
  void add(const Face& face, bool subtract) {
    const auto element_bytes = static_cast<Wide>(face.element_bytes());
    for (std::size_t d = 0; d < static_cast<std::size_t>(face.dims); ++d) {
      if (face.size[d] <= 1) continue;
      const Wide stride = static_cast<Wide>(face.stride[d]) * element_bytes;
      const auto end = unknowns.begin() + static_cast<std::ptrdiff_t>(count);
      auto known = std::find_if(unknowns.begin(), end, [&](const Unknown& u) { return u.stride == stride; });
      if (known == end) {
        known->stride = stride;
        known->low = known->high = 0;
        ++count;
      }
      (subtract ? known->low : known->high) += subtract ? 1 - face.size[d] : face.size[d] - 1;
    }
  }
  void finish() {
    std::sort(unknowns.begin(), unknowns.begin() + static_cast<std::ptrdiff_t>(count),
              [](const Unknown& a, const Unknown& b) { return a.stride > b.stride; });
    for (std::size_t k = count; k-- > 0;) {
      least[k] = least[k + 1] + unknowns[k].stride * unknowns[k].low;
      most[k] = most[k + 1] + unknowns[k].stride * unknowns[k].high;
    }
  }
};

Wide floor_of(Wide a, Wide b) {
  const Wide quotient = a / b;
  return quotient * b > a ? quotient - 1 : quotient;
}

// Whether the unknowns from `k` on can add up to something in [low, high].
BytesShared solve(const Equation& e, std::size_t k, Wide low, Wide high, OverlapBudget& budget) noexcept {
  if (high < e.least[k] || low > e.most[k]) return BytesShared::kNone;
  if (k == e.count) return BytesShared::kSome;
  const Equation::Unknown& u = e.unknowns[k];
  const Wide first = std::max(u.low, -floor_of(e.most[k + 1] - low, u.stride));
  const Wide last = std::min(u.high, floor_of(high - e.least[k + 1], u.stride));
  if (k + 1 == e.count) return first <= last ? BytesShared::kSome : BytesShared::kNone;
  for (Wide value = first; value <= last; ++value) {
    if (budget.steps == 0) return BytesShared::kUnknown;
    --budget.steps;
    const BytesShared found = solve(e, k + 1, low - value * u.stride, high - value * u.stride, budget);
    if (found != BytesShared::kNone) return found;
  }
  return BytesShared::kNone;
}

}  // namespace

BytesShared overlap_of(const Face& a, const Face& b, OverlapBudget& budget) noexcept {
  if (a.count() == 0 || b.count() == 0) return BytesShared::kNone;
  Equation equation;
  equation.add(a, false);
  equation.add(b, true);
  equation.finish();
  const Wide apart = static_cast<Wide>(reinterpret_cast<std::uintptr_t>(b.data)) -
                     static_cast<Wide>(reinterpret_cast<std::uintptr_t>(a.data));
  // Two elements overlap also if they begin less than one element apart.
  return solve(equation, 0, apart - static_cast<Wide>(a.element_bytes()) + 1,
               apart + static_cast<Wide>(b.element_bytes()) - 1, budget);
}

bool is_nested(const Face& face) noexcept {
  if (face.count() == 0) return true;
  // From the narrowest stride to the widest; dims of one element take no part.
  Wide extent = 0;  // from the first to the last element of the dims so far
  std::array<bool, MUSTER_TENSOR_DIMS_MAX> taken{};
  for (std::int32_t round = 0; round < face.dims; ++round) {
    std::size_t next = taken.size();
    for (std::size_t d = 0; d < static_cast<std::size_t>(face.dims); ++d)
      if (!taken[d] && face.size[d] > 1 && (next == taken.size() || face.stride[d] < face.stride[next]))
        next = d;
    if (next == taken.size()) break;
    taken[next] = true;
    if (face.stride[next] <= extent) return false;
    extent += static_cast<Wide>(face.size[next] - 1) * static_cast<Wide>(face.stride[next]);
  }
  return true;
}

}  // namespace muster
