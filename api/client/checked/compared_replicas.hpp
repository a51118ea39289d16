// ComparedReplicas: checks that ranks with the same part of a parameter have the same bytes of it.
#pragma once

#include "api/base/result.hpp"
#include "api/client/check/check_mode.hpp"
#include "api/client/units/unit_watch.hpp"

#include <muster/muster.h>

#include <compare>
#include <cstddef>
#include <set>
#include <span>
#include <vector>

namespace muster::client {

// It compares along each dim of the mesh that does not cut a parameter. It begins with one digest of all
// parameters; where these differ, it compares each parameter. All ranks find the same, so all compare the
// same.
//
// Owns    the list of local parameters that it has reported.
// Thread  the session's.
// Bound   a collective for each dim; after a difference one for each parameter.
// Fails   kCorrupt at all ranks of the dim, naming unit, parameter and ranks. MUSTER_PARAMETER_LOCAL
//         parameters may differ: it writes one line about each to standard error.
class ComparedReplicas {
 public:
  ComparedReplicas(const CheckMode& check, const UnitWatch::Set& set) : check_(check), set_(set) {}

  // A collective of all ranks of the set.
  Status compare();
  // A step was abandoned. Runs of aborted groups still report that, each once; the next compare() goes on
  // past it.
  void expect_aborts() { expects_aborts_ = true; }

 private:
  struct Parameter {
    std::size_t unit = 0, number = 0;
    auto operator<=>(const Parameter&) const = default;
  };
  std::vector<Parameter> shared_along(const char* dim, bool local) const;
  Status compare(muster_group group, std::span<const Parameter> parameters) const;
  Status compare_along(const char* dim, bool local);
  Status differs(const char* dim, const Parameter& parameter, bool local, const Status& how);

  const CheckMode& check_;
  UnitWatch::Set set_;
  std::set<Parameter> told_;
  bool expects_aborts_ = false;
};

}  // namespace muster::client
