#include "api/base/spelling.hpp"

#include <algorithm>
#include <cctype>
#include <vector>

#include <fmt/format.h>

namespace muster {
namespace {

char lower(char c) {
  return static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
}

// Optimal string alignment: insert, delete, replace, and swap of two neighbours each cost one.
std::size_t edits(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before(b.size() + 1), last(b.size() + 1), now(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        now[j] = std::min(now[j], before[j - 2] + 1);
    }
    std::swap(before, last);
    std::swap(last, now);
  }
  return last[b.size()];
}

}  // namespace

std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates) {
  constexpr std::size_t kWordMax = 64;  // longer than any key: no typing error, and the cost is quadratic
  if (word.empty() || word.size() > kWordMax) return std::nullopt;
  const std::size_t allowed = word.size() <= 3 ? 1 : std::max<std::size_t>(2, word.size() / 3);
  std::optional<std::string> best;
  std::size_t best_edits = allowed + 1;
  const auto begins_alike = [word](const std::string& a) { return lower(a.front()) == lower(word.front()); };
  for (const std::string& candidate : candidates) {
    const std::size_t n = edits(word, candidate);
    // If every letter must be replaced, the words are not alike.
    if (n >= std::max(word.size(), candidate.size())) continue;
    if (n < best_edits || (best && n == best_edits && begins_alike(candidate) && !begins_alike(*best))) {
      best = candidate;
      best_edits = n;
    }
  }
  if (best || word.size() < 3) return best;
  for (const std::string& candidate : candidates) {
    const bool related =
        candidate.starts_with(word) || word.starts_with(candidate) || candidate.ends_with(word);
    if (!related) continue;
    if (best) return std::nullopt;
    best = candidate;
  }
  return best;
}

std::string did_you_mean(const std::optional<std::string>& candidate) {
  return candidate ? fmt::format("did you mean '{}'?", *candidate) : std::string();
}

}  // namespace muster
