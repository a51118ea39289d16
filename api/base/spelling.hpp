// Guesses which known word a misspelt one was meant to be.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace muster {

// The candidate that `word` most probably means: a few edits away, or the only one that begins with `word`.
std::optional<std::string> closest(std::string_view word, std::span<const std::string> candidates);

// "did you mean 'x'?", or nothing.
std::string did_you_mean(const std::optional<std::string>& candidate);

}  // namespace muster
