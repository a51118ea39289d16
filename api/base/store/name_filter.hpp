// NameFilter: tensors chosen by patterns of their names, as a user gives them to an export or an import.
#pragma once

#include "api/base/result.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace muster::store {

// Which tensors: those that fit one of `only` (all, if it is empty) and none of `exclude`.
struct NameFilter {
  std::span<const std::string> only{};
  std::span<const std::string> exclude{};
  bool takes(std::string_view name) const;
  // `names`: all tensors of `where`, which the text names. Errors: kNotFound, for a pattern that fits none of
  // them, with some names that there are; likewise if the patterns together leave none.
  Status check(std::span<const std::string> names, std::string_view where) const;
};

}  // namespace muster::store
