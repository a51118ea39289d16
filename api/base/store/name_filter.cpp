#include "api/base/store/name_filter.hpp"

#include "api/base/pattern.hpp"
#include "api/base/utf8.hpp"

#include <algorithm>

namespace muster::store {
namespace {

constexpr std::size_t kNamesShown = 3;

bool fits_any(std::span<const std::string> patterns, std::string_view name) {
  return std::ranges::any_of(patterns, [&](const std::string& each) { return fits_pattern(each, name); });
}

// "it has \"a\", \"b\", \"c\" and 5 more"
std::string shown(std::span<const std::string> names) {
  if (names.empty()) return "it has no tensors";
  std::string text = "it has ";
  for (std::size_t i = 0; i < std::min(names.size(), kNamesShown); ++i)
    text += fmt::format("{}\"{}\"", i == 0 ? "" : ", ", printable(names[i], Lines::kOne));
  if (names.size() > kNamesShown) text += fmt::format(" and {} more", names.size() - kNamesShown);
  return text;
}

Status check_patterns(const char* option, std::span<const std::string> patterns,
                      std::span<const std::string> names, std::string_view where) {
  for (const std::string& pattern : patterns)
    if (!std::ranges::any_of(names, [&](const std::string& name) { return fits_pattern(pattern, name); }))
      return failure(Code::kNotFound, "no tensor of {} fits {} \"{}\"; {}", where, option,
                     printable(pattern, Lines::kOne), shown(names));
  return {};
}

}  // namespace

bool NameFilter::takes(std::string_view name) const {
  return (only.empty() || fits_any(only, name)) && !fits_any(exclude, name);
}

Status NameFilter::check(std::span<const std::string> names, std::string_view where) const {
  MUSTER_RETURN_IF_ERROR(check_patterns("--only", only, names, where));
  MUSTER_RETURN_IF_ERROR(check_patterns("--exclude", exclude, names, where));
  const bool takes_any =
      names.empty() || std::ranges::any_of(names, [&](const std::string& name) { return takes(name); });
  if (takes_any) return {};
  return failure(Code::kNotFound, "--only and --exclude leave no tensor of {}; {}", where, shown(names));
}

}  // namespace muster::store
