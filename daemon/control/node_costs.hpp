// NodeCostBook: what parts of a collective cost on this node. By these the members of a job choose
// algorithms.
#pragma once

#include "api/base/node_costs.hpp"

#include <optional>
#include <span>
#include <string>

namespace muster::control {

// Measures on up to two of these cores. At most kMeasureTime; what it cannot measure in that time, or with
// one core alone, keeps its default.
NodeCosts measure_node_costs(std::span<const int> cores);

// Owns    the costs, once they are known; the file "costs.json" in its folder, which keeps what was measured
//         for a later daemon. Whoever removes the file gets a new measurement.
// Thread  the supervisor's loop.
// Bound   kMeasureTime at the first get().
// Fails   never: a file that cannot be read or written only costs another measurement.
class NodeCostBook {
 public:
  // `given`: by the administrator; 0: to be measured. `folder`: empty: nothing is kept.
  NodeCostBook(const NodeCosts& given, std::string folder) : given_(given), folder_(std::move(folder)) {}

  const NodeCosts& get();

 private:
  NodeCosts given_;
  std::string folder_;
  std::optional<NodeCosts> known_;
};

// What a folder's file keeps for this machine: as many cores of the same model.
std::optional<NodeCosts> kept_node_costs(const std::string& folder);

}  // namespace muster::control
