// Names of the command line that stand for numbers of the C API.
#pragma once

#include "api/base/dtype.hpp"
#include "api/base/spelling.hpp"
#include "daemon/cli/outcome.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <muster/muster.h>

namespace muster::cli {

// The number in 1 … last whose name is `text`. `what` says what was named: "'x' is no collective".
template<class Name>
OrTrouble<std::int32_t> numbered(const std::string& text, std::int32_t last, Name name,
                                 const std::string& what) {
  std::vector<std::string> all;
  for (std::int32_t i = 1; i <= last; ++i) {
    if (text == name(i)) return i;
    all.emplace_back(name(i));
  }
  const std::string hint = did_you_mean(closest(text, all));
  return usage(fmt::format("{}; {} {}", what,
                           hint.empty() ? "there are:" : hint + " There are:", fmt::join(all, ", ")));
}

// The dtype of `--dtype`.
inline OrTrouble<muster_dtype> dtype_named(const std::string& text) {
  return numbered(text, MUSTER_F8_E5M2, dtype_name, fmt::format("--dtype '{}' is no dtype", text));
}

}  // namespace muster::cli
