#include "api/base/words.hpp"

#include <array>

#include <fmt/format.h>

namespace muster {

std::string rank_list(std::span<const std::uint32_t> ranks, char between) {
  std::string text;
  for (std::size_t i = 0; i < ranks.size();) {
    // The longest run with one step from here. A run of three ranks or more is written as a range.
    std::size_t end = i + 1;
    const bool rises = end < ranks.size() && ranks[end] > ranks[i];
    const std::uint32_t step = rises ? ranks[end] - ranks[i] : 0;
    while (rises && end < ranks.size() && ranks[end] - ranks[end - 1] == step) ++end;
    if (!text.empty()) text += between;
    if (end - i >= 3) {
      text += fmt::format("{}-{}", ranks[i], ranks[end - 1]);
      if (step != 1) text += fmt::format("/{}", step);
      i = end;
    } else {
      text += fmt::format("{}", ranks[i++]);
    }
  }
  return text;
}

std::string bytes_text(std::uint64_t bytes) {
  constexpr std::array<const char*, 5> kUnits{"B", "KiB", "MiB", "GiB", "TiB"};
  auto value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit + 1 < kUnits.size(); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, unit == 0 || value >= 100 ? 0 : 1, kUnits[unit]);
}

}  // namespace muster
