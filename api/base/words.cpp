#include "api/base/words.hpp"

#include <chrono>

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

std::string shell_word(std::string_view word) {
  constexpr std::string_view kPlain =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@%+=:,./-";
  if (!word.empty() && word.find_first_not_of(kPlain) == std::string_view::npos) return std::string(word);
  std::string quoted = "'";
  for (const char c : word) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::string passed_deadline(Nanos deadline) {
  const double seconds = std::chrono::duration<double>(deadline).count();
  const std::string length = seconds > 0 ? fmt::format(" of {:.6g} s", seconds) : "";
  return fmt::format(
      "passed its deadline{} (deadline_ns, muster_mesh_deadline or defaults.deadline gives more)", length);
}

std::string unknown_handle(std::string_view what, std::uint64_t handle, std::string_view ended) {
  if (handle == 0) return fmt::format("the {} is 0, which is none: was it ever set?", what);
  return fmt::format("{} {:#x} is none of this session: it was {}, or never made here", what, handle, ended);
}

}  // namespace muster
