#include "api/base/mesh/dim_table.hpp"

#include <algorithm>
#include <vector>

namespace muster::mesh {
namespace {

// Insertions, deletions and substitutions that turn `a` into `b`.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, substituted});
    }
  }
  return row[b.size()];
}

}  // namespace

std::string member_names(DimMask members) {
  std::string text;
  for (std::size_t i = 0; i < kBasicDimCount; ++i) {
    if ((members >> i & 1u) == 0) continue;
    if (!text.empty()) text += ", ";
    text += kBasicDimNames[i];
  }
  return text;
}

std::string_view nearest_name(std::string_view name, std::span<const std::string_view> candidates) {
  // A long text is not a typing error, and the cost of the distance is quadratic.
  constexpr std::size_t kNameBytesMax = 64;
  std::string_view best;
  if (name.size() > kNameBytesMax) return best;
  std::size_t best_distance = 3;
  for (const std::string_view candidate : candidates) {
    const std::size_t distance = edit_distance(name, candidate);
    if (distance + 1 >= std::max(name.size(), candidate.size())) continue;
    const auto begins_alike = [name](std::string_view other) {
      return name.substr(0, 1) == other.substr(0, 1);
    };
    const bool better_tie = distance == best_distance && begins_alike(candidate) && !begins_alike(best);
    if (distance < best_distance || (!best.empty() && better_tie)) {
      best = candidate;
      best_distance = distance;
    }
  }
  return best;
}

bool is_derived_name(std::string_view name) {
  if (name == kWorldName || name == kEfsdpName) return true;
  return std::any_of(kDerivedDims.begin(), kDerivedDims.end(), [name](const DerivedDim& dim) {
    return name == dim.name || (!dim.alias.empty() && name == dim.alias);
  });
}

}  // namespace muster::mesh
