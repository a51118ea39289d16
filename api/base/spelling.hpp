// What somebody who made a slip of the hand meant to write.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace muster {

// The candidate that `word` was most probably meant to be: few edits away, or the only one that starts with
// it.
std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates);

// "did you mean 'x'?", or nothing.
std::string did_you_mean(const std::optional<std::string>& candidate);

}  // namespace muster
